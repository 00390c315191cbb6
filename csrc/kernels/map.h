/* Elements of any type: y = f(a, b, c) over rows, of plain C loops, whose contiguous forms the compiler turns into
 * vectors. Integers wrap around; a float without an integer of the type becomes its least. */
#ifndef FO_MAP_H
#define FO_MAP_H

#include <math.h>

typedef int64_t map_i64;
typedef int32_t map_i32;
typedef int8_t map_i8;
typedef uint16_t map_f16, map_bf16; /* its bits */
typedef uint8_t map_u8, map_bool;
typedef float map_f32;
typedef double map_f64;

/* ---- what a function is of elements u, v ------------------------------------------------------------------------- */

INLINE map_i64 map_long(double x) { return x >= -0x1p63 && x < 0x1p63 ? (map_i64)x : INT64_MIN; }
INLINE map_i32 map_int_f32(float x) { return fabsf(x) < 0x1p31f ? (map_i32)x : INT32_MIN; }
INLINE map_i32 map_int(double x) { return x > -0x1p31 - 1 && x < 0x1p31 ? (map_i32)x : INT32_MIN; }
/* Quotients are rounded towards zero, remainders have the sign of v; of v = 0 they are 0. */
INLINE map_i64 map_quotient(map_i64 u, map_i64 v) { return v == 0 ? 0 : v == -1 ? (map_i64)(0 - (uint64_t)u) : u / v; }
INLINE map_i64 map_modulo(map_i64 u, map_i64 v) {
    const map_i64 r = v == 0 || v == -1 ? 0 : u % v;
    return r && (r < 0) != (v < 0) ? r + v : r;
}
/* In steps that the compiler makes vectors of. */
INLINE map_f32 map_sign(map_f32 u) {
    const map_f32 one = copysignf(1, u), v = u == 0 ? 0 : one;
    return u != u ? u : v;
}

/* Rounded to nearest, ties to even, by integers; subnormal float16, multiples of 2^-24, by the last place of 1/2. Each
 * case is computed and one is chosen, for vectors. */
INLINE map_f32 map_float16(map_f32 u) {
    const map_f32 least = (fabsf(u) + 0.5f) - 0.5f;
    uint32_t bits, y, small;
    memcpy(&bits, &u, 4), memcpy(&small, &least, 4);
    const uint32_t size = bits & 0x7fffffff;
    y = (size + 0xfff + (size >> 13 & 1)) & ~0x1fffu;
    y = y < 0x47800000 ? y : 0x7f800000;
    y = size < 0x38800000 ? small : y;
    y = size > 0x7f800000 ? size | 0x400000 : y;
    y |= bits & 0x80000000;
    map_f32 rounded;
    memcpy(&rounded, &y, 4);
    return rounded;
}
INLINE uint32_t map_nearest_bfloat16(map_f32 u) {
    uint32_t bits;
    memcpy(&bits, &u, 4);
    const uint32_t nan = bits | 0x400000, near = bits + 0x7fff + (bits >> 16 & 1);
    return (bits & 0x7fffffff) > 0x7f800000 ? nan : near;
}
INLINE map_f32 map_bfloat16(map_f32 u) {
    const uint32_t y = map_nearest_bfloat16(u) & 0xffff0000;
    map_f32 rounded;
    memcpy(&rounded, &y, 4);
    return rounded;
}

/* A loop over rows for each form of a row: all contiguous, one operand the same for all, any strides. n is a copy: a
 * store of bytes might change g->n, and there would be no vectors. Strides stay without, and so do wider elements to
 * bytes or back, but those of 4 bytes where all is contiguous: vectors of those took 0.4 MB of code. */
#define MAP_NEAR(y, a) (sizeof(y) == sizeof(a) || (sizeof(a) > 1 && sizeof(y) > 1))
#define MAP_ROW(u_at, v_at, y_at, value, vectors) \
    for (ptrdiff_t j = 0; j < n; j++) { \
        if (!(vectors)) __asm__ volatile(""); \
        const map_a u = a[u_at]; \
        const map_b v = b[v_at]; \
        (void)u, (void)v; \
        y[y_at] = (map_y)(value); \
    }
#define MAP(name, type_y, type_a, type_b, value) \
    static void map_##name(const fo_map_rows *g) { \
        typedef map_##type_y map_y; \
        typedef map_##type_a map_a; \
        typedef map_##type_b map_b; \
        enum { NEAR = MAP_NEAR(map_y, map_a) }; \
        const ptrdiff_t sa = g->step[1], sb = g->step[2], sy = g->step[0], n = g->n; \
        for (ptrdiff_t i = 0; i < g->m; i++) { \
            map_y *restrict const y = (map_y *)g->at[0] + i * g->ld[0]; \
            const map_a *const a = (const map_a *)g->at[1] + i * g->ld[1]; \
            const map_b *const b = (const map_b *)g->at[2] + i * g->ld[2]; \
            if (sy == 1 && sa == 1 && sb == 1) \
                MAP_ROW(j, j, j, value, NEAR || sizeof(map_a) + sizeof(map_y) == 5) \
            else if (sy == 1 && sa == 1 && sb == 0) \
                MAP_ROW(j, 0, j, value, NEAR) \
            else if (sy == 1 && sa == 0 && sb == 1) \
                MAP_ROW(0, j, j, value, NEAR) \
            else \
                MAP_ROW(j * sa, j * sb, j * sy, value, false) \
        } \
    }

/* The same of one operand. */
#define MAP_ONE(name, type_y, type_a, value) \
    static void map_##name(const fo_map_rows *g) { \
        typedef map_##type_y map_y; \
        typedef map_##type_a map_a, map_b; \
        enum { NEAR = MAP_NEAR(map_y, map_a) }; \
        const ptrdiff_t sa = g->step[1], sy = g->step[0], n = g->n; \
        for (ptrdiff_t i = 0; i < g->m; i++) { \
            map_y *restrict const y = (map_y *)g->at[0] + i * g->ld[0]; \
            const map_a *const a = (const map_a *)g->at[1] + i * g->ld[1], *const b = a; \
            if (sy == 1 && sa == 1) \
                MAP_ROW(j, j, j, value, NEAR || sizeof(map_a) + sizeof(map_y) == 5) \
            else \
                MAP_ROW(j * sa, j * sa, j * sy, value, false) \
        } \
    }

typedef void map_fn(const fo_map_rows *);

/* ---- casts ------------------------------------------------------------------------------------------------------- */

#define MAP_CASTS_FROM(from, whole_long, whole_int) \
    MAP_ONE(from##_f32, f32, from, u) MAP_ONE(from##_f64, f64, from, u) \
    MAP_ONE(from##_i64, i64, from, whole_long) MAP_ONE(from##_i32, i32, from, whole_int) \
    MAP_ONE(from##_i8, i8, from, whole_int) MAP_ONE(from##_u8, u8, from, whole_int) \
    MAP_ONE(from##_bool, bool, from, u != 0)
MAP_CASTS_FROM(f32, map_long((double)u), map_int_f32(u))
MAP_CASTS_FROM(f64, map_long(u), map_int(u))
MAP_CASTS_FROM(i64, u, u)
MAP_CASTS_FROM(i32, u, u)
MAP_CASTS_FROM(i8, u, u)
MAP_CASTS_FROM(u8, u, u)
MAP_ONE(f32_bf16, bf16, f32, map_nearest_bfloat16(u) >> 16)

/* By type, what its name ends. */
#define MAP_TYPES(name, of_bool) \
    {[FO_F32] = map_##name##_f32, [FO_F64] = map_##name##_f64, [FO_S64] = map_##name##_i64, \
     [FO_S32] = map_##name##_i32, [FO_S8] = map_##name##_i8,   [FO_U8] = map_##name##_u8,   [FO_BOOL] = of_bool}
#define MAP_CASTS(from) MAP_TYPES(from, map_##from##_bool)
static map_fn *const map_casts[][FO_DTYPES] = {
    [FO_F32] = MAP_CASTS(f32), [FO_F64] = MAP_CASTS(f64), [FO_S64] = MAP_CASTS(i64), [FO_S32] = MAP_CASTS(i32),
    [FO_S8] = MAP_CASTS(i8),   [FO_U8] = MAP_CASTS(u8),   [FO_BOOL] = MAP_CASTS(u8)};

/* ---- tests, logic, arithmetic ------------------------------------------------------------------------------------ */

#define MAP_TESTS(t) \
    MAP(equal_##t, bool, t, t, u == v) MAP(less_##t, bool, t, t, u < v) MAP(at_most_##t, bool, t, t, u <= v)
MAP_TESTS(f32)
MAP_TESTS(f64)
MAP_TESTS(i64)
MAP_TESTS(i32)
MAP_TESTS(i8)
MAP_TESTS(u8)

#define MAP_TEST(f) MAP_TYPES(f, map_##f##_u8)
static map_fn *const map_tests[][FO_DTYPES] = {MAP_TEST(equal), MAP_TEST(less), MAP_TEST(at_most)};

MAP(logic_and, bool, u8, u8, (u != 0) & (v != 0))
MAP(logic_or, bool, u8, u8, (u | v) != 0)
MAP(logic_xor, bool, u8, u8, (u != 0) ^ (v != 0))
MAP_ONE(logic_not, bool, u8, !u)
static map_fn *const map_logic[] = {map_logic_and, map_logic_or, map_logic_xor, map_logic_not};

#define MAP_INTEGERS(t, unsigned_t) \
    MAP(add_##t, t, t, t, (unsigned_t)u + (unsigned_t)v) MAP(sub_##t, t, t, t, (unsigned_t)u - (unsigned_t)v) \
    MAP(mul_##t, t, t, t, (unsigned_t)u * (unsigned_t)v) MAP(div_##t, t, t, t, map_quotient(u, v)) \
    MAP(mod_##t, t, t, t, map_modulo(u, v)) MAP(max_##t, t, t, t, u > v ? u : v) MAP(min_##t, t, t, t, u < v ? u : v) \
    MAP_ONE(neg_##t, t, t, 0 - (unsigned_t)u) MAP_ONE(abs_##t, t, t, u < 0 ? 0 - (unsigned_t)u : (unsigned_t)u) \
    MAP_ONE(sign_##t, t, t, (u > 0) - (u < 0))
MAP_INTEGERS(i64, uint64_t)
MAP_INTEGERS(i32, uint32_t)

#define MAP_INTEGER(t) \
    {map_add_##t, map_sub_##t, map_mul_##t, map_div_##t, map_mod_##t, map_max_##t, map_min_##t, map_neg_##t, \
     map_abs_##t, map_sign_##t}
static map_fn *const map_integers[][FO_MAP_FLOOR - FO_MAP_ADD] = {MAP_INTEGER(i64), MAP_INTEGER(i32)};

/* ---- floats to whole ones ---------------------------------------------------------------------------------------- */

MAP_ONE(floor, f32, f32, floorf(u))
MAP_ONE(ceil, f32, f32, ceilf(u))
MAP_ONE(round, f32, f32, rintf(u))
MAP_ONE(sign_f32, f32, f32, map_sign(u))
MAP_ONE(to_float16, f32, f32, map_float16(u))
MAP_ONE(to_bfloat16, f32, f32, map_bfloat16(u))
static map_fn *const map_floats[] = {map_floor, map_ceil, map_round, map_to_float16, map_to_bfloat16};

/* ---- choices ----------------------------------------------------------------------------------------------------- */

/* y = a ? b : c of elements as large as `type`. */
#define MAP_CHOICE_ROW(a_at, b_at, c_at, y_at, vectors) \
    for (ptrdiff_t j = 0; j < n; j++) { \
        if (!(vectors)) __asm__ volatile(""); \
        const map_e u = b[b_at], v = c[c_at]; \
        y[y_at] = a[a_at] ? u : v; \
    }
#define MAP_CHOICE(type) \
    static void map_where_##type(const fo_map_rows *g) { \
        typedef map_##type map_e; \
        const ptrdiff_t sy = g->step[0], sa = g->step[1], sb = g->step[2], sc = g->step[3], n = g->n; \
        const bool whole = sy == 1 && sa == 1; \
        for (ptrdiff_t i = 0; i < g->m; i++) { \
            map_e *restrict const y = (map_e *)g->at[0] + i * g->ld[0]; \
            const map_u8 *const a = (const map_u8 *)g->at[1] + i * g->ld[1]; \
            const map_e *const b = (const map_e *)g->at[2] + i * g->ld[2]; \
            const map_e *const c = (const map_e *)g->at[3] + i * g->ld[3]; \
            if (whole && sb == 1 && sc == 1) \
                MAP_CHOICE_ROW(j, j, j, j, sizeof(map_e) < 8) \
            else if (whole && sb == 0 && sc == 1) \
                MAP_CHOICE_ROW(j, 0, j, j, sizeof(map_e) < 8) \
            else if (whole && sb == 1 && sc == 0) \
                MAP_CHOICE_ROW(j, j, 0, j, sizeof(map_e) < 8) \
            else if (whole && sb == 0 && sc == 0) \
                MAP_CHOICE_ROW(j, 0, 0, j, sizeof(map_e) < 8) \
            else \
                MAP_CHOICE_ROW(j * sa, j * sb, j * sc, j * sy, false) \
        } \
    }
MAP_CHOICE(u8)
MAP_CHOICE(f16)
MAP_CHOICE(i32)
MAP_CHOICE(i64)

/* y = a[b * stride], b from -size to size - 1. */
#define MAP_GATHER(type) \
    static void map_gather_##type(const fo_map_rows *g) { \
        const ptrdiff_t sy = g->step[0], sa = g->step[1], sb = g->step[2], size = g->size, stride = g->stride; \
        const ptrdiff_t n = g->n; \
        for (ptrdiff_t i = 0; i < g->m; i++) { \
            map_##type *const y = (map_##type *)g->at[0] + i * g->ld[0]; \
            const map_##type *const a = (const map_##type *)g->at[1] + i * g->ld[1]; \
            const map_i64 *const b = (const map_i64 *)g->at[2] + i * g->ld[2]; \
            for (ptrdiff_t j = 0; sb && j < n; j++) { \
                const ptrdiff_t k = (ptrdiff_t)b[j * sb]; \
                y[j * sy] = a[j * sa + (k < 0 ? k + size : k) * stride]; \
            } \
            if (!sb) { \
                const ptrdiff_t k = (ptrdiff_t)*b; \
                const map_##type *const from = a + (k < 0 ? k + size : k) * stride; \
                if (sy == 1 && sa == 1) \
                    memcpy(y, from, (size_t)n * sizeof *y); \
                else \
                    for (ptrdiff_t l = 0; l < n; l++) y[l * sy] = from[l * sa]; \
            } \
        } \
    }
MAP_GATHER(u8)
MAP_GATHER(f16)
MAP_GATHER(i32)
MAP_GATHER(i64)

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

/* Of elements of 1, 2, 4 and 8 bytes. */
INLINE int map_width(fo_dtype e) { return __builtin_ctz((unsigned)fo_size(e)); }

static map_fn *map_of(const fo_map_rows *g) {
    static map_fn *const choices[] = {map_where_u8, map_where_f16, map_where_i32, map_where_i64};
    static map_fn *const gathers[] = {map_gather_u8, map_gather_f16, map_gather_i32, map_gather_i64};
    if (g->f == FO_MAP_CAST) return g->to == FO_BF16 ? map_f32_bf16 : map_casts[g->from][g->to];
    if (g->f < FO_MAP_AND) return map_tests[g->f - FO_MAP_EQUAL][g->from];
    if (g->f < FO_MAP_ADD) return map_logic[g->f - FO_MAP_AND];
    if (g->f == FO_MAP_SIGN && g->from == FO_F32) return map_sign_f32;
    if (g->f < FO_MAP_FLOOR) return map_integers[g->from == FO_S32][g->f - FO_MAP_ADD];
    if (g->f < FO_MAP_WHERE) return map_floats[g->f - FO_MAP_FLOOR];
    if (g->f == FO_MAP_WHERE) return choices[map_width(g->to)];
    return gathers[map_width(g->to)];
}

/* Floats as float16, one step of rows where they are contiguous. */
INLINE void map_narrow(const fo_map_rows *g) {
    const bool whole = g->step[0] == 1 && g->step[1] == 1;
    for (ptrdiff_t i = 0; i < g->m; i++) {
        map_f16 *const y = (map_f16 *)g->at[0] + i * g->ld[0];
        const map_f32 *const a = (const map_f32 *)g->at[1] + i * g->ld[1];
        ptrdiff_t j = 0;
        for (; whole && j + VL <= g->n; j += VL) v_store_f16(y + j, v_load(a + j));
        for (map_f16 rounded[VL]; j < g->n; j++) {
            v_store_f16(rounded, v_set1(a[j * g->step[1]]));
            y[j * g->step[0]] = rounded[0];
        }
    }
}

/* float16 or bfloat16 as floats. */
INLINE void map_widen(const fo_map_rows *g) {
    const bool whole = g->step[0] == 1 && g->step[1] == 1;
    for (ptrdiff_t i = 0; i < g->m; i++) {
        map_f32 *const y = (map_f32 *)g->at[0] + i * g->ld[0];
        const map_f16 *const a = (const map_f16 *)g->at[1] + i * g->ld[1];
        for (ptrdiff_t j = 0, of = whole ? g->n : 1; j < g->n; j += of)
            FO_NAME(fo_widen)(of, g->from, a + j * g->step[1], y + j * g->step[0]);
    }
}

void FO_MAP(const fo_map_rows *g) {
    FO_RAN("map");
    if (g->f == FO_MAP_CAST && (g->from == FO_F16 || g->from == FO_BF16))
        map_widen(g);
    else if (g->f == FO_MAP_CAST && g->to == FO_F16)
        map_narrow(g);
    else
        map_of(g)(g);
}

#endif
