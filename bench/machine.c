/* What the machine can do at most, in float32: multiply-adds from registers, and passes over images of several sizes.
 *
 *     machine THREADS     prints "peak GFLOP/s", then "BYTES GB/s" lines
 *
 * The vectors are the widest that the compiler was told of; CHAINS independent sums hide its latency. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __AVX512F__
enum { VL = 16, CHAINS = 24 };
#elif defined(__AVX__)
enum { VL = 8, CHAINS = 12 };
#else
enum { VL = 4, CHAINS = 24 };
#endif
enum { PEAK_ROUNDS = 300, ROUNDS = 15 }; /* many short ones: other work on the machine disturbs most long ones */
typedef float vf __attribute__((vector_size(VL * sizeof(float))));

static float multiply_add(long n) {
    vf sum[CHAINS], factor = {0}, term = {0}, all = {0};
    factor += 0.999f;
    term += 0.001f;
#pragma GCC unroll 24 /* or the sums live in memory */
    for (int i = 0; i < CHAINS; i++) sum[i] = term * (float)i;
    for (long k = 0; k < n; k++) {
#pragma GCC unroll 24
        for (int i = 0; i < CHAINS; i++) sum[i] = sum[i] * factor + term;
        __asm__ volatile("" ::: "memory");
    }
#pragma GCC unroll 24
    for (int i = 0; i < CHAINS; i++) all += sum[i];
    return all[0] + all[VL - 1];
}

static void pass(const vf *restrict x, vf *restrict y, long n) {
    for (long i = 0; i < n; i++) y[i] = x[i] + 1.0f;
}

/* GFLOP/s of all threads together. */
static double peak(int threads) {
    const long n = 100000;
    volatile float sink = 0;
    double best = 0;
    for (int r = 0; r < PEAK_ROUNDS; r++) {
        double start = omp_get_wtime();
#pragma omp parallel num_threads(threads)
        sink += multiply_add(n);
        double rate = 2e-9 * threads * n * CHAINS * VL / (omp_get_wtime() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

/* GB/s of reading half the bytes and writing the other half, each thread its own. */
static double bandwidth(int threads, size_t bytes) {
    const long n = (long)(bytes / threads / 2 / sizeof(vf)), repeats = 1 + (long)((64u << 20) / bytes);
    double best = 0;
#pragma omp parallel num_threads(threads)
    {
        vf *x = aligned_alloc(4096, (n * sizeof(vf) / 4096 + 1) * 4096),
           *y = aligned_alloc(4096, (n * sizeof(vf) / 4096 + 1) * 4096);
        if (!x || !y) abort();
        for (long i = 0; i < n; i++) x[i] = y[i] = (vf){0};
        for (int r = 0; r < ROUNDS; r++) {
#pragma omp barrier
            double start = omp_get_wtime();
            for (long k = 0; k < repeats; k++) {
                pass(x, y, n);
                __asm__ volatile("" ::: "memory");
            }
#pragma omp barrier
#pragma omp master
            {
                double rate = 2e-9 * threads * n * sizeof(vf) * repeats / (omp_get_wtime() - start);
                best = rate > best ? rate : best;
            }
        }
        free(x);
        free(y);
    }
    return best;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    printf("peak %.1f\n", peak(threads));
    for (int shift = 15; shift <= 29; shift += 2)
        printf("%zu %.1f\n", (size_t)1 << shift, bandwidth(threads, (size_t)1 << shift));
    return 0;
}
