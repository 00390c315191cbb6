/* Races, as ThreadSanitizer sees them: several threads call the same prepared layers, which are large enough for teams
 * of threads.
 *
 * GCC's libgomp is not instrumented, so its joins look like races. Here the few functions of it that parallel.c uses
 * stand on POSIX threads, which ThreadSanitizer knows; everything else is the library as it is. Each result is compared
 * with that of one thread. */
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../csrc/include/fusedops/fusedops.h"

enum { CALLERS = 4, TEAM = 3, ROUNDS = 6 };

/* ---- OpenMP on POSIX threads ---- */

static __thread int member, members = 1, asked;
static __thread pthread_barrier_t *barrier;
static atomic_int teams;

typedef struct {
    void (*fn)(void *);
    void *data;
    int member, members;
    pthread_barrier_t *barrier;
} share;

static void *run_share(void *pointer) {
    const share *s = pointer;
    member = s->member, members = s->members, barrier = s->barrier;
    s->fn(s->data);
    member = 0, members = 1;
    return NULL;
}

void GOMP_parallel(void (*fn)(void *), void *data, unsigned n, unsigned flags) {
    share shares[64];
    pthread_t threads[64];
    pthread_barrier_t all;
    pthread_barrier_init(&all, NULL, n);
    (void)flags;
    teams++;
    for (unsigned i = 0; i < n; i++) {
        shares[i] = (share){fn, data, (int)i, (int)n, &all};
        if (i) pthread_create(&threads[i], NULL, run_share, &shares[i]);
    }
    run_share(&shares[0]);
    for (unsigned i = 1; i < n; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&all);
}

void GOMP_barrier(void) {
    if (members > 1) pthread_barrier_wait(barrier);
}

int omp_get_thread_num(void) { return member; }
int omp_get_num_threads(void) { return members; }
int omp_in_parallel(void) { return members > 1; }
int omp_get_max_threads(void) { return asked ? asked : TEAM; }
void omp_set_num_threads(int n) { asked = n; }
int omp_get_num_procs(void) { return TEAM; }
int omp_get_num_places(void) { return 0; }
int omp_get_place_num_procs(int place) { return (void)place, 0; }

/* ---- layers that all callers share ---- */

enum { C = 32, H = 24, M = 64, K = 96, STEPS = 12, BATCH = 4, HIDDEN = 48, LAYERS = 2, KINDS = 6 };
enum { INPUTS = HIDDEN / 4 }; /* of the first layer of the cells of bfloat16: others have more */
static const int floats[KINDS] = {
    C * H * H, C * H * H, C * H * H, M * K, STEPS * BATCH * HIDDEN, STEPS * BATCH * HIDDEN};
static fo_conv2d *direct, *winograd, *depthwise;
static fo_linear *linear;
static const fo_cell *cells[LAYERS], *narrow[LAYERS];
static float *x, *expected[KINDS];

static float *drawn(size_t n) {
    float *a = malloc(n * sizeof *a);
    for (size_t i = 0; i < n; i++) a[i] = (float)rand() / RAND_MAX - 0.5f;
    return a;
}

/* Plans whose weights are packed by the first call, or by several at once. */
static void make_plans(void) {
    fo_conv2d_shape s = {
        .ic = C, .oc = C, .groups = 1, .kh = 3, .kw = 3, .sh = 1, .sw = 1, .dh = 1, .dw = 1, .algorithm = FO_DIRECT};
    s.act.kind = FO_GELU;
    direct = fo_conv2d_create(&s, FO_F32, &(fo_weights){drawn(C * C * 9), FO_F32}, NULL, drawn(C));
    s.algorithm = FO_WINOGRAD;
    winograd = fo_conv2d_create(&s, FO_F32, &(fo_weights){drawn(C * C * 9), FO_F32}, NULL, drawn(C));
    s.algorithm = FO_AUTO, s.groups = C;
    depthwise = fo_conv2d_create(&s, FO_F32, &(fo_weights){drawn(C * 9), FO_F32}, NULL, drawn(C));
    linear = fo_linear_create(K, K, FO_F32, &(fo_weights){drawn(K * K), FO_F32}, K, 1, drawn(K), s.act);
    for (int i = 0; i < LAYERS; i++) {
        fo_cell_shape shape = {
            .kind = FO_LSTM, .inputs = HIDDEN, .hidden = HIDDEN, .outputs = HIDDEN, .clip = 1e30f, .cell_clip = 1e30f};
        const fo_cell_weights w = {.w_ih = {drawn(4 * HIDDEN * HIDDEN), FO_F32},
                                   .w_hh = {drawn(4 * HIDDEN * HIDDEN), FO_F32}};
        cells[i] = fo_cell_create(&shape, &w);
        shape.a = FO_BF16, shape.inputs = i ? HIDDEN : INPUTS;
        narrow[i] = fo_cell_create(&shape, &w);
    }
}

static void compute(int kind, float *y) {
    const fo_conv2d_size size = {.n = 1, .ih = H, .iw = H, .oh = H, .ow = H, .top = 1, .left = 1};
    const fo_image in = {x, C * H * H, 1, H * C, C}, out = {y, C * H * H, 1, H * C, C};
    float state[4][LAYERS * BATCH * HIDDEN] = {{0}};
    const fo_sequence sequence = {.cells = kind == 5 ? narrow : cells,
                                  .layers = LAYERS,
                                  .directions = 1,
                                  .steps = STEPS,
                                  .batch = BATCH,
                                  .x = x,
                                  .xt = BATCH * HIDDEN,
                                  .xb = HIDDEN,
                                  .h0 = state[0],
                                  .c0 = state[1],
                                  .hn = state[2],
                                  .cn = state[3],
                                  .y = y,
                                  .yt = BATCH * HIDDEN,
                                  .yb = HIDDEN};
    switch (kind) {
        case 0: fo_conv2d_run(direct, &size, &in, NULL, &out); break;
        case 1: fo_conv2d_run(winograd, &size, &in, NULL, &out); break;
        case 2: fo_conv2d_run(depthwise, &size, &in, NULL, &out); break;
        case 3: fo_linear_run(linear, (fo_types){0}, M, x, K, NULL, 0, y, K); break;
        default: fo_sequence_run(&sequence);
    }
}

static void *call(void *pointer) {
    float *y = malloc(sizeof *y * C * H * H);
    size_t wrong = 0;
    for (int i = 0; i < ROUNDS * KINDS; i++) {
        const int kind = (i + (int)(size_t)pointer) % KINDS;
        compute(kind, y);
        wrong += expected[kind] && memcmp(y, expected[kind], sizeof *y * (size_t)floats[kind]);
    }
    free(y);
    return (void *)wrong;
}

static size_t call_from_many(void) {
    pthread_t callers[CALLERS];
    size_t wrong = 0;
    for (size_t i = 0; i < CALLERS; i++) pthread_create(&callers[i], NULL, call, (void *)i);
    for (int i = 0; i < CALLERS; i++) {
        void *result;
        pthread_join(callers[i], &result);
        wrong += (size_t)result;
    }
    return wrong;
}

int main(void) {
    x = drawn(C * H * H);
    fo_set_isa(0);
    fo_set_num_threads(TEAM);
    make_plans();
    call_from_many();
    fo_set_num_threads(1);
    for (int kind = 0; kind < KINDS; kind++) compute(kind, expected[kind] = malloc(sizeof *x * (size_t)floats[kind]));
    fo_set_num_threads(TEAM);
    const size_t wrong = call_from_many();
    printf("%d calls from %d threads at once, %d teams of up to %d: %zu differ from those of one thread\n",
           2 * ROUNDS * KINDS * CALLERS, CALLERS, teams, TEAM, wrong);
    return wrong || !teams;
}
