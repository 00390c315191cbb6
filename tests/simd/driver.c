/* Runs one operation of csrc/simd/simd.h on the records of stdin: driver OP < records > results
 * (tests/kernels/test_simd.py).
 *
 * A record is four 64-bit integers and IN floats; a result is OUT floats, 7 where the operation writes none. Without
 * arguments it prints VL, IN and OUT. The memory of masks and tails has pages around it that may not be touched.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)
#define HEADER_(set) TEXT(../../csrc/simd/set.h)
#define HEADER(set) HEADER_(set)
#include HEADER(FO_ISA)

#include "../../csrc/simd/lanes.h"
#define FO_STRING(a) TEXT(a)
#include "../../csrc/simd/int8.h"

enum { MORE = 2 * VL, IN = (VL * VL + 4 * VL + 1) / 2 * 2, OUT = VL * VL + 4 * VL + 2 * MORE };

typedef struct {
    int64_t n[4];
    float in[IN];
} record;

/* The arguments of an operation: vectors and integers. Results have MORE floats before and after them. */
#define A v_load(r->in)
#define B v_load(r->in + VL)
#define C v_load(r->in + 2 * VL)
#define N(i) ((ptrdiff_t)r->n[i])

static float *near, *near_end; /* the first float that may be touched, and the first one after that may not */

/* A place of VL floats of which the first n may be touched, or all but the first n. */
static float *at_the_end(ptrdiff_t n) { return near_end - n; }
static float *at_the_start(ptrdiff_t n) { return near - n; }

#define BINARY(name) \
    static void op_##name(const record *r, float *y) { v_store(y, name(A, B)); }
#define UNARY(name) \
    static void op_##name(const record *r, float *y) { v_store(y, name(A)); }
#define TERNARY(name) \
    static void op_##name(const record *r, float *y) { v_store(y, name(A, B, C)); }
#define EACH_BINARY(X) \
    X(v_add) X(v_sub) X(v_mul) X(v_div) X(v_max) X(v_min) X(v_copysign) X(v_uzp_even) X(v_uzp_odd) \
    X(v_halves) X(v_largest)
#define EACH_UNARY(X) X(v_sqrt) X(v_abs) X(v_pow2) X(v_sum_lanes) X(v_largest_lane)
#define EACH_TERNARY(X) X(v_fma) X(v_fnma)
EACH_BINARY(BINARY)
EACH_UNARY(UNARY)
EACH_TERNARY(TERNARY)

static void op_v_scale(const record *r, float *y) { v_store(y, v_scale(A, B)); }
static void op_v_load(const record *r, float *y) { v_store(y, v_load(r->in + N(0))); }
/* By type, as kernels load: v_load_f16, v_load_bf16. */
static void op_v_load_as(const record *r, float *y) {
#define LOAD(type) \
    if (N(1) == FO_##type) v_store(y, v_load_as(FO_##type, r->in, N(0)));
    FO_EACH_WEIGHT(LOAD)
#undef LOAD
}
static void op_v_store_f16(const record *r, float *y) {
    uint16_t to[VL];
    v_store_f16(to, A);
    for (int l = 0; l < VL; l++) y[l] = to[l];
}
static void op_v_load_bits(const record *r, float *y) {
    v_store(y, v_load_bits((const uint32_t *)r->in + N(0), (int)N(1), (int)N(2), (int)N(3)));
}
static void op_v_store(const record *r, float *y) { v_store(y + N(0), A); }
static void op_v_zero(const record *r, float *y) { (void)r, v_store(y, v_zero()); }
static void op_v_set1(const record *r, float *y) { v_store(y, v_set1(r->in[0])); }
static void op_v_first(const record *r, float *y) { *y = v_first(A); }
static void op_v_range(const record *r, float *y) { v_store(y, v_select(v_range(N(0), N(1)), A, B)); }
static void op_v_lt(const record *r, float *y) { v_store(y, v_select(v_lt(A, B), v_set1(1), v_zero())); }
static void op_v_isnan(const record *r, float *y) { v_store(y, v_select(v_isnan(A), v_set1(1), v_zero())); }
static void op_v_select(const record *r, float *y) { v_store(y, v_select(v_lt(C, v_zero()), A, B)); }

static void op_v_force_reg(const record *r, float *y) {
    vf v = A;
    v_force_reg(v);
    v_store(y, v);
}

static void op_v_fma_to(const record *r, float *y) {
    vf c = C;
    v_fma_to(c, A, B);
    v_store(y, c);
}

/* A is one element of memory. */
static void op_v_fma_at(const record *r, float *y) {
    vf c = C;
    v_fma_at(c, r->in + N(0), B);
    v_store(y, c);
}

/* The lanes lo <= lane < hi are all that may be touched: they end at the end, or begin at the start. */
static float *masked(const record *r) { return N(2) ? at_the_start(N(0)) : at_the_end(N(1)); }

static void op_v_load_mask(const record *r, float *y) {
    float *p = masked(r);
    for (ptrdiff_t l = N(0); l < N(1); l++) p[l] = r->in[l];
    v_store(y, v_load_mask(p, v_range(N(0), N(1))));
}

static void op_v_store_mask(const record *r, float *y) {
    float *p = masked(r);
    v_store_mask(p, A, v_range(N(0), N(1)));
    for (ptrdiff_t l = N(0); l < N(1); l++) y[l] = p[l];
    v_store_mask(y + VL, A, v_range(N(0), N(1)));
}

static void op_v_load_tail(const record *r, float *y) {
    const ptrdiff_t n = N(0) < 0 ? 0 : N(0) > VL ? VL : N(0);
    float *p = at_the_end(n);
    memcpy(p, r->in, (size_t)n * sizeof *p);
    v_store(y, v_load_tail(p, N(0)));
}

static void op_v_store_tail(const record *r, float *y) {
    const ptrdiff_t n = N(0) < 0 ? 0 : N(0) > VL ? VL : N(0);
    float *p = at_the_end(n);
    v_store_tail(p, A, N(0));
    memcpy(y, p, (size_t)n * sizeof *p);
    v_store_tail(y + VL, A, N(0));
}

static void op_v_store_first(const record *r, float *y) {
    float *p = at_the_end(N(0));
    v_store_first(p, A, N(0), v_range(0, N(0)));
    memcpy(y, p, (size_t)N(0) * sizeof *p);
    v_store_first(y + VL, A, N(0), v_range(0, N(0)));
}

/* In the set's own order, then in that of v_uzp_even. */
static void op_v_uzp_inlane_even(const record *r, float *y) { v_store(y, v_lane_order(v_uzp_inlane_even(A, B))); }
static void op_v_uzp_inlane_odd(const record *r, float *y) { v_store(y, v_lane_order(v_uzp_inlane_odd(A, B))); }

static void op_v_rotate(const record *r, float *y) {
    v_store(y, v_lane_order(v_uzp_inlane_even(A, B)));
    v_store(y + VL, v_lane_order(v_rotate(v_uzp_inlane_even(A, B), 1)));
    v_store(y + 2 * VL, v_lane_order(v_rotate(v_uzp_inlane_even(A, B), VL - 1)));
}

#define CONCAT(k) \
    case k: \
        if (k < VL) v_store(y, v_concat(A, B, k % VL)); \
        break;
#define EACH_CONCAT \
    CONCAT(1) CONCAT(2) CONCAT(3) CONCAT(4) CONCAT(5) CONCAT(6) CONCAT(7) CONCAT(8) CONCAT(9) CONCAT(10) CONCAT(11) \
    CONCAT(12) CONCAT(13) CONCAT(14) CONCAT(15)
static void op_v_concat(const record *r, float *y) {
    switch (N(0)) { EACH_CONCAT }
}

static void op_v_load_halves(const record *r, float *y) { v_store(y, v_load_halves(r->in + N(0), r->in + N(1))); }
static void op_v_store_halves(const record *r, float *y) { v_store_halves(y + N(0), y + N(1), A); }

static void op_v_transpose(const record *r, float *y) {
    vf m[VL];
    UNROLL_FOR (int i = 0; i < VL; i++) m[i] = v_load(r->in + i * VL);
    v_transpose(m);
    UNROLL_FOR (int i = 0; i < VL; i++) v_store(y + i * VL, m[i]);
}

static void op_v_load_transposed(const record *r, float *y) {
    vf m[VL];
    v_load_transposed(m, r->in, N(0));
    UNROLL_FOR (int i = 0; i < VL; i++) v_store(y + i * VL, m[i]);
}

static void op_v_load_strided(const record *r, float *y) { v_store(y, v_load_strided(r->in, N(0), N(1))); }
static void op_v_store_strided(const record *r, float *y) { v_store_strided(y, N(0), A, N(1)); }

/* Integers and bytes: the bits of the floats. A place of n bytes ends where none may be touched. */
#define IA v_iload(r->in)
#define IB v_iload(r->in + VL)
#define INTEGERS(name) \
    static void op_##name(const record *r, float *y) { v_istore(y, name(IA, IB)); }
#define EACH_INTEGERS(X) X(v_iadd) X(v_isub) X(v_imul) X(v_iand) X(v_ixor) X(v_pack_bytes)
EACH_INTEGERS(INTEGERS)
static uint8_t *bytes_at_the_end(ptrdiff_t n) { return (uint8_t *)near_end - n; }

static void op_v_iload(const record *r, float *y) { v_istore(y, v_iload((const char *)r->in + N(0))); }
static void op_v_istore(const record *r, float *y) { v_istore((char *)y + N(0), IA); }
static void op_v_iset1(const record *r, float *y) { v_istore(y, v_iset1((int32_t)N(0))); }
static void op_v_nibbles(const record *r, float *y) { v_istore(y, N(0) ? v_nibbles(IA, 1) : v_nibbles(IA, 0)); }
static void op_v_zip_shorts(const record *r, float *y) {
    v_istore(y, N(0) ? v_zip_shorts(IA, IB, 1) : v_zip_shorts(IA, IB, 0));
}
static void op_v_as_float(const record *r, float *y) { v_store(y, v_as_float(IA)); }
static void op_v_as_int(const record *r, float *y) { v_istore(y, v_as_int(A)); }
static void op_v_to_float(const record *r, float *y) { v_store(y, v_to_float(IA)); }
static void op_v_to_int(const record *r, float *y) { v_istore(y, v_to_int(A)); }
static void op_v_load_bytes(const record *r, float *y) { v_istore(y, v_load_bytes((const uint8_t *)r->in + N(0))); }

static void op_v_load_bytes_tail(const record *r, float *y) {
    const ptrdiff_t n = N(0) < 0 ? 0 : N(0) > VL ? VL : N(0);
    v_istore(y, v_load_bytes_tail(memcpy(bytes_at_the_end(n), r->in, (size_t)n), N(0)));
}

static void op_v_load_quads_tail(const record *r, float *y) {
    v_istore(y, v_load_quads_tail(memcpy(bytes_at_the_end(N(0)), r->in, (size_t)N(0)), N(0)));
}

static void op_v_store_quads_tail(const record *r, float *y) {
    const ptrdiff_t n = N(0) > 4 * VL ? 4 * VL : N(0);
    v_store_quads_tail(bytes_at_the_end(n), IA, N(0));
    memcpy(y, bytes_at_the_end(n), (size_t)n);
}

/* Parts of n bytes, one after another: N(0) of them. */
static void op_v_load_parts(const record *r, float *y) {
    const ptrdiff_t parts = N(0), n = N(1);
    const uint8_t *p[4], *from = memcpy(bytes_at_the_end(parts * n), r->in, (size_t)(parts * n));
    for (int i = 0; i < parts; i++) p[i] = from + i * n;
    v_istore(y, parts == 4 ? v_load_parts(4, p, n) : parts == 2 ? v_load_parts(2, p, n) : v_load_parts(1, p, n));
}

static void op_v_store_parts(const record *r, float *y) {
    const ptrdiff_t parts = N(0), n = N(1), count = N(2);
    uint8_t *to = bytes_at_the_end(count * n);
    if (parts == 4)
        v_store_parts(4, to, n, IA, n, count);
    else if (parts == 2)
        v_store_parts(2, to, n, IA, n, count);
    else
        v_store_parts(1, to, n, IA, n, count);
    memcpy(y, to, (size_t)(count * n));
}

static void four(const record *r, vi v[4]) {
    UNROLL_FOR (int i = 0; i < 4; i++) v[i] = v_iload(r->in + i * VL);
}

static void op_v_pack(const record *r, float *y) {
    vi v[4];
    four(r, v);
    v_istore(y, v_pack(v, v_iset1((int32_t)N(0) * 0x10001)));
}

static void op_v_pack_lanes(const record *r, float *y) {
    vi v[4];
    four(r, v);
    v_istore(y, v_pack_lanes(v, v_iset1((int32_t)N(0) * 0x10001)));
}

static void op_v_pack_pairs(const record *r, float *y) {
    vi v[4];
    four(r, v);
    v_istore(y, v_pack_pairs(v, v_iset1((int32_t)N(0) * 0x10001)));
}

static void op_v_pack_inlane(const record *r, float *y) {
    vi v[4];
    four(r, v);
    v_istore(y, v_pack_inlane(v, v_iset1((int32_t)N(0) * 0x10001)));
}

static void op_v_pack_shorts(const record *r, float *y) {
    v_istore(y, v_pack_shorts(IA, IB, v_iset1((int32_t)N(0) * 0x10001)));
}

static void op_v_quads(const record *r, float *y) {
    vi v[4], q[4];
    four(r, v);
    v_quads(v, q);
    UNROLL_FOR (int i = 0; i < 4; i++) v_istore(y + i * VL, q[i]);
}

/* C + the products of A's bytes and B's. */
static void op_v_dot(const record *r, float *y) {
    const vi flip = v_iset1(DOT_SIGNED ? (int32_t)0x80808080 : 0);
    vi sum = v_iload(r->in + 2 * VL);
    for (int phase = 0; phase < PHASES; phase++)
        v_dot(sum, v_dot_bytes(v_ixor(IA, flip), phase), v_dot_weights(IB, phase));
    v_istore(y, sum);
    y[VL] = DOT_SIGNED;
}

/* The same with the bytes of one of A's lanes, where a set has it. */
static void op_v_dot_lane(const record *r, float *y) {
    vi sum = v_iload(r->in + 2 * VL);
#ifdef v_dot_lane
    v_dot_lane(sum, v_ixor(IA, v_iset1((int32_t)0x80808080)), IB, (int)N(0));
#endif
    v_istore(y, sum);
}

/* Of bfloat16, where a set and the processor have them: C + the products of A's and B's; A's floats, narrow. */
static void op_v_dot_bf16(const record *r, float *y) {
    vi sum = v_iload(r->in + 2 * VL);
    v_dot_bf16(sum, IA, IB);
    v_istore(y, sum);
}
static void op_v_store_bf16(const record *r, float *y) {
    uint16_t *to = (uint16_t *)bytes_at_the_end(2 * VL);
    v_store_bf16(to, A);
    memcpy(y, to, 2 * VL);
}
static void op_v_narrow(const record *r, float *y) { v_istore(y, v_narrow(A, B)); }
static void op_v_narrow_pairs(const record *r, float *y) { v_istore(y, v_narrow_pairs(A, B)); }

/* By blocks of two rows and two columns, where a set has them. */
#ifdef v_mmla_bf16
static void op_v_mmla_bf16(const record *r, float *y) {
    vi sum = v_iload(r->in + 2 * VL);
    v_mmla_bf16(sum, IA, IB);
    v_istore(y, sum);
}
static void op_v_load_two(const record *r, float *y) {
    uint8_t *last = bytes_at_the_end(8);
    memcpy(last, r->in, 8);
    v_istore(y, v_load_two(last, r->in + 2));
}
static void op_v_zip_words(const record *r, float *y) {
    v_istore(y, N(0) ? v_zip_words(IA, IB, 1) : v_zip_words(IA, IB, 0));
}
static void op_v_zip_pairs(const record *r, float *y) {
    v_istore(y, N(0) ? v_zip_pairs(IA, IB, 1) : v_zip_pairs(IA, IB, 0));
}
#define EACH_BLOCK(X) X(v_mmla_bf16) X(v_load_two) X(v_zip_words) X(v_zip_pairs)
#else
#define EACH_BLOCK(X)
#endif

typedef void op_fn(const record *, float *);
#define NAMED(name) {#name, op_##name},
#define EACH_OTHER(X) \
    X(v_scale) X(v_load) X(v_load_as) X(v_store_f16) X(v_load_bits) X(v_store) \
    X(v_zero) X(v_set1) X(v_first) X(v_range) X(v_lt) X(v_isnan) X(v_select) \
    X(v_force_reg) X(v_fma_to) X(v_fma_at) X(v_load_mask) X(v_store_mask) X(v_load_tail) X(v_store_tail) \
    X(v_store_first) X(v_uzp_inlane_even) X(v_uzp_inlane_odd) X(v_rotate) X(v_concat) X(v_load_halves) \
    X(v_store_halves) X(v_transpose) X(v_load_transposed) X(v_load_strided) X(v_store_strided) X(v_iload) \
    X(v_istore) X(v_iset1) X(v_nibbles) X(v_as_float) X(v_as_int) X(v_to_float) X(v_to_int) X(v_load_bytes) \
    X(v_load_bytes_tail) X(v_zip_shorts) \
    X(v_load_quads_tail) X(v_store_quads_tail) X(v_load_parts) X(v_store_parts) X(v_pack_shorts) X(v_pack) \
    X(v_pack_inlane) X(v_pack_lanes) X(v_pack_pairs) X(v_quads) X(v_dot) \
    X(v_dot_lane) X(v_dot_bf16) X(v_store_bf16) X(v_narrow) X(v_narrow_pairs)
static const struct {
    const char *name;
    op_fn *run;
} ops[] = {EACH_BINARY(NAMED) EACH_UNARY(NAMED) EACH_INTEGERS(NAMED) EACH_TERNARY(NAMED) EACH_OTHER(NAMED)
               EACH_BLOCK(NAMED)};

/* Two pages that may be touched, between two that may not. */
static void map_near(void) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *all = mmap(NULL, 4 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || mprotect(all + page, 2 * page, PROT_READ | PROT_WRITE)) exit(3);
    near = (float *)(all + page), near_end = (float *)(all + 3 * page);
}

int main(int count, char **arguments) {
    if (count < 2) return printf("%d %d %d\n", VL, IN, OUT) < 0;
    map_near();
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
        if (strcmp(ops[o].name, arguments[1])) continue;
        record r;
        while (fread(&r, sizeof r, 1, stdin) == 1) {
            float y[OUT];
            for (int i = 0; i < OUT; i++) y[i] = 7;
            ops[o].run(&r, y + MORE);
            fwrite(y, sizeof y, 1, stdout);
        }
        return 0;
    }
    return 2; /* no such operation */
}
