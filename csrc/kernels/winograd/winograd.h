/* Winograd's convolution F(m x m, 3x3): m x m outputs of a tile from (m+2) x (m+2) inputs d and 3x3 weights g,
 *
 *     y = A^T [ (G g G^T) o (B^T d B) ] A
 *
 * so that a sum over channels is one small product of matrices for each of the (m+2)^2 positions (conv/winograd.c).
 *
 * The matrices come from polynomials that are evaluated at 0, at infinity and at pairs +-p (the order of the rows everywhere here):
 * B^T has the coefficients of the product of (x - q) over the other points q, A^T the powers p^0 .. p^(m-1), and G the powers
 * p^0 .. p^2 over the product of (p - q). Pairs share their even and their odd part. The points were searched for the lowest error
 * in float32; all are short binary fractions, so that every constant below but those of G is exact.
 *
 * The last row and the last column of tiles may be smaller, s outputs instead of m: they take the first s+2 points of m, whose G
 * they share; what G's denominators have too much is a factor of their B^T. So 14 outputs take 6+6+6+4 positions, not 4 times 6.
 *
 * The input's transform runs over strips of a row of tiles, VL channels wide, in the first-level cache: first all columns, then all
 * rows, so that a column which two tiles share is transformed once. The output's has nothing to share: a tile stays in registers.
 *
 * Stride 2: along each axis even pixels meet the outer taps, odd ones the middle tap. The even ones are F(m, 2 taps) of m+1 points: 0,
 * infinity, ONE and pairs. The odd ones, F(m, 1 tap), take the m points but ONE, at which products can sum up to any m outputs. So 2m+1
 * inputs become as many values at m+1 points, and for m = 4 81 products serve 16 outputs instead of 144. The phases of a position, what it has
 * of even and of odd pixels, are further channels of its product.
 */
#include <stdalign.h>

#define SQUARE(x) ((x) * (x))

enum { ZERO, INFINITE, PAIRS }; /* rows of the matrices */
static const double points[7][3] = {[2] = {1}, [4] = {0.75, 1.5}, [6] = {1, 0.5, 2}};

/* The product of (p^2 - q^2) over the pairs from k on, but p's own. */
INLINE double differences(const int m, const int k, const double p) {
    double product = 1;
    UNROLL for (int i = k; i < m / 2; i++) product *= points[m][i] == p ? 1 : SQUARE(p) - SQUARE(points[m][i]);
    return product;
}

/* Runs `statement` with TILE and SIZE, the m and the s above, as literals: one copy of it for each pair; of stride 2 there are fewer. */
#define WITH_TILE(tile, size, statement) \
    do switch ((tile) * 8 + (size)) { \
        TILE_CASE(2, 2, statement) TILE_CASE(4, 2, statement) TILE_CASE(4, 4, statement) \
        TILE_CASE(6, 2, statement) TILE_CASE(6, 4, statement) TILE_CASE(6, 6, statement) \
    } while (0)
#define WITH_STRIDED_TILE(tile, size, statement) \
    do switch ((tile) * 8 + (size)) { \
        TILE_CASE(2, 2, statement) TILE_CASE(4, 2, statement) TILE_CASE(4, 4, statement) \
    } while (0)
#define TILE_CASE(m, s, statement) \
    case m * 8 + s: { enum { TILE = m, SIZE = s }; statement; } break;

/* Inputs for s outputs along an axis, and the values that they become. */
INLINE int values_for(const int stride, const int s) { return stride * (s - 1) + 3; }

/* Stride 2: whether value i is of odd pixels, which stand behind the even ones', its point, and the values of a point. */
enum { ONE = 2 };
static const double one[5] = {[2] = 1, [4] = -1.5}, two[5] = {[4] = 0.75}; /* ONE and the pair, searched for as those above */
INLINE bool is_odd(const int s, int i) { return i > s; }
INLINE int point_of(const int s, int i) { return !is_odd(s, i) ? i : i - (s + 1) < ONE ? i - (s + 1) : i - s; }
INLINE int values_at(int point) { return point == ONE ? 1 : 2; }

/* ---- weights ------------------------------------------------------------------------------------------------------ */

/* Row i of G. */
static void filter_row(int m, int i, double row[3]) {
    const double p = i < PAIRS ? 0 : points[m][(i - PAIRS) / 2], denominator = differences(m, 0, p) * (i < PAIRS ? 1 : 2 * SQUARE(p));
    for (int j = 0; j < 3; j++) row[j] = i == INFINITE ? j == 2 : (j == 0 ? 1 : j == 1 ? i % 2 ? -p : p : SQUARE(p)) / denominator;
}

/* Stride 2: of value i. */
static void strided_filter_row(int m, int i, double row[3]) {
    const int point = point_of(m, i);
    const double c = one[m], a = two[m], a2 = m == 2 ? -1 : SQUARE(a); /* m = 2 has no pair */
    const double p = point < ONE ? 0 : point > ONE ? (point % 2 ? a : -a) : c;
    row[0] = row[1] = row[2] = 0;
    if (point == INFINITE)
        row[is_odd(m, i) ? 1 : 2] = 1;
    else if (is_odd(m, i))
        row[1] = point == ZERO ? -1 / a2 : 1 / (2 * a2);
    else
        row[0] = 1 / (point == ZERO ? a2 * c : point == ONE ? m == 2 ? c : c * (SQUARE(c) - a2) : 2 * a2 * (p - c)), row[2] = p * row[0];
}

/* filter g filter^T for NR output channels side by side: g[9][NR], u[p * position + 0..NR) for each two values p. In double, rounded once. */
INLINE void filter_weights(const int n, double (*filter)[3], const float *restrict g, float *restrict u, ptrdiff_t position) {
    double rows[9][3][NR];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 3; j++)
            for (int o = 0; o < NR; o++)
                rows[i][j][o] = filter[i][0] * g[j * NR + o] + filter[i][1] * g[(3 + j) * NR + o] + filter[i][2] * g[(6 + j) * NR + o];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++, u += position)
            for (int o = 0; o < NR; o++)
                u[o] = (float)(filter[j][0] * rows[i][0][o] + filter[j][1] * rows[i][1][o] + filter[j][2] * rows[i][2][o]);
}

void FO_NAME(fo_winograd_weights)(int m, const float *restrict g, float *restrict u, ptrdiff_t position) {
    double filter[8][3];
    for (int i = 0; i < m + 2; i++) filter_row(m, i, filter[i]);
    filter_weights(m + 2, filter, g, u, position);
}

void FO_NAME(fo_winograd_strided_weights)(int m, const float *restrict g, float *restrict u, ptrdiff_t position) {
    double filter[9][3];
    for (int i = 0; i < values_for(2, m); i++) strided_filter_row(m, i, filter[i]);
    filter_weights(values_for(2, m), filter, g, u, position);
}

/* ---- transforms of one row or column -------------------------------------------------------------------------------- */

INLINE vf v_times(double c, vf x) { return c == 1 ? x : v_mul(v_set1((float)c), x); }
INLINE vf v_plus(vf y, double c, vf x) { return c == 1 ? v_add(y, x) : v_fma(v_set1((float)c), x, y); }   /* y + c x */
INLINE vf v_minus(vf y, double c, vf x) { return c == 1 ? v_sub(y, x) : v_fnma(v_set1((float)c), x, y); } /* y - c x */

/* The rows of B^T for the points +-p, from the even and the odd part of the product over the other points. */
INLINE void pair(vf *rows, double p, vf even, vf odd) {
    rows[0] = v_plus(even, p, odd);
    rows[1] = v_minus(even, p, odd);
}

/* Processors of 16 registers add beside two multiply-adds a cycle. There F(6x6), whose points are 1, p and 1/p, is written with sums, most of which
 * several rows of B^T share: 12 multiply-adds and 10 sums, not 18 and 6. */
enum { SUMS = REGISTERS <= 16 };

/* x4 - (p^2 + q^2) x2 + p^2 q^2 x0 */
INLINE vf quartic(double p, double q, vf x4, vf x2, vf x0) {
    if (SUMS && p == 1) return v_minus(v_sub(x4, x2), SQUARE(q), v_sub(x2, x0));
    if (SUMS && p * q == 1) return v_minus(v_add(x4, x0), SQUARE(p) + SQUARE(q), x2);
    return v_plus(v_minus(x4, SQUARE(p) + SQUARE(q), x2), SQUARE(p) * SQUARE(q), x0);
}

/* x6 - e1 x4 + e2 x2 - e3 x0, e the elementary symmetric polynomials of the squared points */
INLINE vf sextic(double p, double q, double r, vf x6, vf x4, vf x2, vf x0) {
    const double a = SQUARE(p), b = SQUARE(q), c = SQUARE(r);
    if (SUMS) return v_minus(v_sub(x6, x0), a + b + c, v_sub(x4, x2)); /* p q r and p are 1 */
    return v_minus(v_plus(v_minus(x6, a + b + c, x4), a * b + a * c + b * c, x2), a * b * c, x0);
}

/* The same of stride 2: even pixels' values, then the odd ones'. Each t is an even pixel less c times the one before: ONE's factor (x - c). */
INLINE void strided_input(const int m, const int s, vf *d) {
    const double c = one[m], a = two[m], a2 = SQUARE(a);
    const vf e0 = d[0], e1 = d[2], e2 = d[4], o0 = d[1], o1 = d[3], t1 = v_minus(e1, c, e0), t2 = v_minus(e2, c, e1);
    vf *odd = d + s + 1;
    if (s == 2) {
        d[ZERO] = m == 2 ? t1 : v_times(-a2, t1);
        d[INFINITE] = t2;
        d[ONE] = m == 2 ? e1 : v_times(SQUARE(c) - a2, e1);
        odd[ZERO] = m == 2 ? o0 : v_times(-a2, o0);
        odd[INFINITE] = o1;
        return;
    }
    const vf e3 = d[6], e4 = d[8], o2 = d[5], o3 = d[7], t3 = v_minus(e3, c, e2), t4 = v_minus(e4, c, e3);
    d[ZERO] = v_minus(t3, a2, t1);
    d[INFINITE] = v_minus(t4, a2, t2);
    d[ONE] = v_minus(e3, a2, e1);
    pair(d + ONE + 1, a, t3, t2);
    odd[ZERO] = v_minus(o2, a2, o0);
    odd[INFINITE] = v_minus(o3, a2, o1);
    pair(odd + PAIRS, a, o2, o1);
}

/* d = B^T d, of s outputs by the points of m */
INLINE void input_transform(const int stride, const int m, const int s, vf *d) {
    if (stride == 2) {
        strided_input(m, s, d);
        return;
    }
    const double a = points[m][0], b = points[m][1], c = points[m][2];
    const vf d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
    if (s == 2) {
        d[ZERO] = v_minus(d2, SQUARE(a), d0);
        d[INFINITE] = v_minus(d3, SQUARE(a), d1);
        pair(d + PAIRS, a, d2, d1);
    } else if (s == 4) {
        const vf d4 = d[4], d5 = d[5];
        d[ZERO] = quartic(a, b, d4, d2, d0);
        d[INFINITE] = quartic(a, b, d5, d3, d1);
        pair(d + PAIRS, a, v_minus(d4, SQUARE(b), d2), v_minus(d3, SQUARE(b), d1));
        pair(d + PAIRS + 2, b, v_minus(d4, SQUARE(a), d2), v_minus(d3, SQUARE(a), d1));
    } else {
        const vf d4 = d[4], d5 = d[5], d6 = d[6], d7 = d[7];
        d[ZERO] = sextic(a, b, c, d6, d4, d2, d0);
        d[INFINITE] = sextic(a, b, c, d7, d5, d3, d1);
        pair(d + PAIRS, a, quartic(b, c, d6, d4, d2), quartic(b, c, d5, d3, d1));
        pair(d + PAIRS + 2, b, quartic(a, c, d6, d4, d2), quartic(a, c, d5, d3, d1));
        pair(d + PAIRS + 4, c, quartic(a, b, d6, d4, d2), quartic(a, b, d5, d3, d1));
    }
    d[ZERO] = v_times(differences(m, s / 2, 0), d[ZERO]);
    UNROLL for (int i = PAIRS; i < s + 2; i++) d[i] = v_times(differences(m, s / 2, points[m][(i - PAIRS) / 2]), d[i]);
}

/* a p^k + b q^k + c r^k */
INLINE vf powers(double p, vf a, double q, vf b, double r, vf c) { return v_plus(v_plus(v_times(p, a), r, c), q, b); }

INLINE void strided_output(const int m, const int s, vf *d) {
    const double c = one[m], a = two[m];
    const vf zero = d[ZERO], infinite = d[INFINITE], single = d[ONE];
    if (s == 2) {
        d[0] = v_add(zero, single);
        d[1] = v_plus(infinite, c, single);
        return;
    }
    const vf sa = v_add(d[3], d[4]), da = v_sub(d[3], d[4]);
    d[0] = v_add(v_add(zero, single), sa);
    d[1] = v_plus(v_times(a, da), c, single);
    d[2] = v_plus(v_times(SQUARE(a), sa), SQUARE(c), single);
    d[3] = v_plus(v_plus(infinite, a * SQUARE(a), da), c * SQUARE(c), single);
}

/* d[0..s) = A^T d */
INLINE void output_transform(const int stride, const int m, const int s, vf *d) {
    if (stride == 2) {
        strided_output(m, s, d);
        return;
    }
    const double a = points[m][0], b = points[m][1], c = points[m][2], a2 = SQUARE(a), b2 = SQUARE(b), c2 = SQUARE(c);
    const vf zero = d[ZERO], infinite = d[INFINITE], sa = v_add(d[2], d[3]), da = v_sub(d[2], d[3]);
    if (s == 2) {
        d[0] = v_add(zero, sa);
        d[1] = v_plus(infinite, a, da);
        return;
    }
    const vf sb = v_add(d[4], d[5]), db = v_sub(d[4], d[5]);
    if (s == 4) {
        d[0] = v_add(zero, v_add(sa, sb));
        d[1] = v_plus(v_times(a, da), b, db);
        d[2] = v_plus(v_times(a2, sa), b2, sb);
        d[3] = v_plus(v_plus(infinite, a * a2, da), b * b2, db);
        return;
    }
    const vf sc = v_add(d[6], d[7]), dc = v_sub(d[6], d[7]);
    d[0] = v_add(v_add(zero, sa), v_add(sb, sc));
    d[1] = powers(a, da, b, db, c, dc);
    d[2] = powers(a2, sa, b2, sb, c2, sc);
    d[3] = powers(a2 * a, da, b2 * b, db, c2 * c, dc);
    d[4] = powers(a2 * a2, sa, b2 * b2, sb, c2 * c2, sc);
    d[5] = powers(a2 * a2 * a, v_add(infinite, da), b2 * b2 * b, db, c2 * c2 * c, dc);
}

/* ---- strips ----------------------------------------------------------------------------------------------------------- */

/* A strip has a row for each row of a tile, of STRIP tiles and the two pixels that reach beyond the last one: with the tiles that it
 * is read from or written to it stays in the first-level cache. */
enum { STRIP = 8, PITCH = (STRIP * 6 + 2) * VL };
INLINE ptrdiff_t strip_tiles(const int stride) { return stride == 1 ? STRIP : STRIP * 6 / (2 * 4); } /* of inputs */

/* Planes of a large image come from the third-level cache, and lines of y too before they are written; the walk over rows, channels and
 * pixels is nothing that the hardware foresees. So each is fetched a line, or a tile, before its turn. Where channels are last, fetching
 * either cost more than it gained (weenet 0.95). */
enum { LINE = 64 / sizeof(float) };

INLINE float *strip_at(float *strip, int row, ptrdiff_t pixel) { return strip + row * PITCH + pixel * VL; }
INLINE ptrdiff_t clamped(ptrdiff_t i, ptrdiff_t lo, ptrdiff_t hi) { return i < lo ? lo : i > hi ? hi : i; }

/* Floats by which p lies behind a boundary of a vector's size. */
INLINE ptrdiff_t misalignment(const float *p) { return (ptrdiff_t)((uintptr_t)p / sizeof(float) % VL); }

/* ---- input: V[position][tile][channel] = B^T d B --------------------------------------------------------------------- */

/* VL channels at a time: rows lo .. hi-1 of the strip lie in the image. An image whose pixels are neighbours comes in blocks of VL
 * pixels, which begin at vector boundaries: channels that lie 2^n bytes apart share few sets of the cache, and no line is read twice. */
typedef struct {
    const fo_winograd_input_args *g;
    ptrdiff_t c;
    int lo, hi;
    ptrdiff_t next; /* the block holds columns next-VL .. next-1 of the image */
    alignas(64) float block[9 * VL * VL];
    alignas(64) float strip[9 * PITCH];
} input_state;

INLINE void store_column(const int stride, const int height, input_state *s, ptrdiff_t q, const vf *d) {
    UNROLL for (int i = 0; i < values_for(stride, height); i++) v_store(strip_at(s->strip, i, q), d[i]);
}

/* Columns q .. end-1 of the strip, which lie in the image from column w on. whole: so do all rows, and all lanes are channels. */
INLINE void columns_nhwc(const int stride, const int m, const int height, const bool whole, input_state *s, ptrdiff_t q, ptrdiff_t end, ptrdiff_t w) {
    const fo_image image = s->g->x;
    const vm lanes = v_range(0, s->g->channels - s->c);
    const int lo = s->lo, hi = s->hi;
    const float *x = image.data + s->g->h0 * image.sh + w * image.sw + s->c;
    for (; q < end; q++, x += image.sw) {
        vf d[9];
        UNROLL for (int i = 0; i < values_for(stride, height); i++)
            d[i] = whole ? v_load(x + i * image.sh) : i < lo || i >= hi ? v_zero() : v_load_mask(x + i * image.sh, lanes);
        input_transform(stride, m, height, d);
        store_column(stride, height, s, q, d);
    }
}

/* VL channels of VL pixels of each row, from column w on, transposed. */
INLINE void load_block(input_state *s, ptrdiff_t w) {
    const fo_image image = s->g->x;
    const vm columns = v_range(-w, s->g->iw - w);
    const ptrdiff_t channels = s->g->channels - s->c;
    for (int i = s->lo; i < s->hi; i++) {
        const float *x = image.data + s->c * image.sc + (s->g->h0 + i) * image.sh + w;
        vf t[VL];
        if (channels >= VL)
            UNROLL for (int l = 0; l < VL; l++) t[l] = v_load_mask(x + l * image.sc, columns);
        else
            UNROLL for (int l = 0; l < VL; l++) t[l] = l < channels ? v_load_mask(x + l * image.sc, columns) : v_zero();
        if (w + VL < s->g->iw) /* to the second level, for block and strip fill the first: weenet 1.01, 32 channels at 112x112 1.02 of the speed */
            UNROLL for (int l = 0; l < VL; l++) __builtin_prefetch(x + l * image.sc + LINE, 0, 2);
        v_transpose(t);
        UNROLL for (int l = 0; l < VL; l++) v_store(s->block + (i * VL + l) * VL, t[l]);
    }
    s->next = w + VL;
}

INLINE void columns_nchw(const int stride, const int m, const int height, input_state *s, ptrdiff_t q, ptrdiff_t end, ptrdiff_t w) {
    const fo_image image = s->g->x;
    while (q < end) {
        if (w >= s->next) load_block(s, w - misalignment(image.data + s->c * image.sc + (s->g->h0 + s->lo) * image.sh + w));
        for (; q < end && w < s->next; q++, w++) {
            const float *column = s->block + (w - s->next + VL) * VL;
            vf d[9];
            UNROLL for (int i = 0; i < values_for(stride, height); i++) d[i] = v_load(column + i * VL * VL);
            input_transform(stride, m, height, d);
            store_column(stride, height, s, q, d);
        }
    }
}

/* Columns q .. end-1 of a strip that begins at column w0 of the image: transformed, or zero. */
INLINE void input_columns(const int stride, const int m, const int height, input_state *s, ptrdiff_t q, ptrdiff_t end, ptrdiff_t w0) {
    const vf zeros[9] = {0};
    const ptrdiff_t inside = clamped(-w0, q, end), outside = clamped(s->g->iw - w0, inside, end);
    for (; q < inside; q++) store_column(stride, height, s, q, zeros);
    if (s->g->x.sc != 1)
        columns_nchw(stride, m, height, s, inside, outside, w0 + inside);
    else if (s->g->channels - s->c >= VL && s->hi - s->lo == values_for(stride, height))
        columns_nhwc(stride, m, height, true, s, inside, outside, w0 + inside);
    else
        columns_nhwc(stride, m, height, false, s, inside, outside, w0 + inside);
    for (q = outside; q < end; q++) store_column(stride, height, s, q, zeros);
}

/* The rows of `tiles` tiles of one width, from the strip's column q on. */
INLINE void input_rows(const int m, const int width, const input_state *s, ptrdiff_t q, ptrdiff_t tiles, float *v) {
    const ptrdiff_t ldv = s->g->ldv, position = s->g->position;
    for (int i = 0; i < s->g->height + 2; i++, v += (m + 2) * position) {
        const float *row = strip_at((float *)s->strip, i, q);
        float *to = v;
        for (ptrdiff_t t = 0; t < tiles; t++, row += width * VL, to += ldv) {
            vf d[8];
            UNROLL for (int j = 0; j < width + 2; j++) d[j] = v_load(row + j * VL);
            input_transform(1, m, width, d);
            UNROLL for (int j = 0; j < width + 2; j++) v_store(to + j * position, d[j]);
        }
    }
}

/* The same of stride 2: a position's phases are even rows' even and odd columns, then odd rows'. */
INLINE void strided_rows(const int m, const int width, const input_state *s, ptrdiff_t q, ptrdiff_t tiles, float *v) {
    const ptrdiff_t ldv = s->g->ldv, position = s->g->position, phase = s->g->phase;
    for (int i = 0; i < values_for(2, s->g->height); i++) {
        const float *row = strip_at((float *)s->strip, i, q);
        const ptrdiff_t second = is_odd(s->g->height, i) ? phase : 0;
        float *to = v + point_of(s->g->height, i) * (m + 1) * position;
        for (ptrdiff_t t = 0; t < tiles; t++, row += 2 * width * VL, to += ldv) {
            vf d[9];
            UNROLL for (int j = 0; j < values_for(2, width); j++) d[j] = v_load(row + j * VL);
            strided_input(m, width, d);
            UNROLL for (int j = 0; j < values_for(2, width); j++)
                v_store(to + point_of(width, j) * position + values_at(point_of(width, j)) * second + is_odd(width, j) * phase, d[j]);
        }
    }
}

static __attribute__((noinline)) void input_tiles(int width, const input_state *s, ptrdiff_t q, ptrdiff_t tiles, float *v) {
    WITH_TILE(s->g->tile, width, input_rows(TILE, SIZE, s, q, tiles, v));
}

static __attribute__((noinline)) void strided_tiles(int width, const input_state *s, ptrdiff_t q, ptrdiff_t tiles, float *v) {
    WITH_STRIDED_TILE(s->g->tile, width, strided_rows(TILE, SIZE, s, q, tiles, v));
}

/* A state for n rows: those of a block outside the image stay zero. */
INLINE void begin_input(const fo_winograd_input_args *g, const int n, input_state *s) {
    s->g = g, s->lo = (int)clamped(-g->h0, 0, n), s->hi = (int)clamped(g->ih - g->h0, s->lo, n);
    for (int i = 0; i < n; i++)
        if (i < s->lo || i >= s->hi) memset(s->block + i * VL * VL, 0, VL * VL * sizeof(float));
}

INLINE void input_run(const int stride, const int m, const int height, const fo_winograd_input_args *g) {
    const int n = values_for(stride, height), step = stride * m, shared = 3 - stride, across = (int)strip_tiles(stride); /* of columns */
    const ptrdiff_t width = g->count * step + g->last * stride;
    input_state s;
    begin_input(g, n, &s);
    for (s.c = 0; s.c < g->channels; s.c += VL) {
        s.next = PTRDIFF_MIN;
        for (ptrdiff_t t = 0, kept = 0; t * step < width; t += across, kept = shared) {
            const ptrdiff_t columns = clamped(width - t * step, 0, across * step), tiles = columns / step;
            for (int i = 0; i < n && kept; i++) memcpy(strip_at(s.strip, i, 0), strip_at(s.strip, i, across * step), kept * VL * sizeof(float));
            input_columns(stride, m, height, &s, kept, columns + shared, g->w0 + t * step);
            (stride == 1 ? input_tiles : strided_tiles)(m, &s, 0, tiles, g->v + t * g->ldv + s.c);
            if (columns % step) (stride == 1 ? input_tiles : strided_tiles)(g->last, &s, tiles * step, 1, g->v_last + s.c);
        }
    }
}

void FO_NAME(fo_winograd_input)(const fo_winograd_input_args *g) {
    WITH_TILE(g->tile, g->height, input_run(1, TILE, SIZE, g));
}

void FO_NAME(fo_winograd_strided_input)(const fo_winograd_input_args *g) {
    WITH_STRIDED_TILE(g->tile, g->height, input_run(2, TILE, SIZE, g));
}

/* ---- output: y = activation(A^T M A + bias + residual) ---------------------------------------------------------------- */

/* One tile, to its place in the strip. */
INLINE void output_tile(const int stride, const int m, const int height, const int width, const float *products, ptrdiff_t position, vf bias,
                        float *strip) {
    vf rows[8][8];
    UNROLL for (int i = 0; i < height + 3 - stride; i++, products += (m - width) * position) {
        UNROLL for (int j = 0; j < width + 3 - stride; j++, products += position) rows[i][j] = v_load(products);
        output_transform(stride, m, width, rows[i]);
    }
    UNROLL for (int j = 0; j < width; j++) {
        vf d[8];
        UNROLL for (int i = 0; i < height + 3 - stride; i++) d[i] = rows[i][j];
        output_transform(stride, m, height, d);
        UNROLL for (int i = 0; i < height; i++) v_store(strip_at(strip, i, j), v_add(d[i], bias));
    }
}

/* Tiles of the first strip: so many that those after it begin at a vector's boundary of y, where it can be had. */
INLINE ptrdiff_t first_strip(const int m, const fo_winograd_output_args *g) {
    ptrdiff_t tiles = STRIP;
    if (g->y.sc != 1)
        while (tiles > 1 && misalignment(g->y.data + tiles * m)) tiles--;
    return tiles > 1 ? tiles : STRIP;
}

/* Fetches a share of the lines that a strip of `columns` pixels goes to in planes, that of its tile i of n: into the second-level cache, for
 * planes that lie 2^n bytes apart share few sets of the first. */
INLINE void fetch_share(const fo_winograd_output_args *g, const float *y, ptrdiff_t columns, int lanes, ptrdiff_t i, ptrdiff_t n) {
    for (ptrdiff_t row = 0; row < g->rows; row++, y += g->y.sh)
        for (ptrdiff_t c = lanes * i / n; c < lanes * (i + 1) / n; c++)
            for (ptrdiff_t q = 0; q < columns; q += LINE) __builtin_prefetch(y + c * g->y.sc + q * g->y.sw, 0, 2);
}

INLINE void output_run(const int stride, const int m, const int height, const fo_winograd_output_args *g) {
    const bool nhwc = g->y.sc == 1;
    const ptrdiff_t first = first_strip(m, g);
    alignas(64) float strip[8 * PITCH];
    for (ptrdiff_t o = 0; o < g->channels; o += VL) {
        const int lanes = g->channels - o < VL ? (int)(g->channels - o) : VL;
        const vf bias = g->bias ? v_load_tail(g->bias + o, lanes) : v_zero();
        for (ptrdiff_t t = 0, tiles = first; t * m < g->columns; t += tiles, tiles = STRIP) {
            const ptrdiff_t columns = clamped(g->columns - t * m, 0, tiles * m), whole = clamped(g->count - t, 0, tiles);
            float *y = g->y.data + o * g->y.sc + t * m * g->y.sw;
            for (ptrdiff_t i = 0; i < whole; i++) {
                if (!nhwc) fetch_share(g, y, columns, lanes, i, whole);
                output_tile(stride, m, height, m, g->products + (t + i) * g->ldp + o, g->position, bias, strip_at(strip, 0, i * m));
            }
            if (whole * m < columns) {
                float *last = strip_at(strip, 0, whole * m);
                if (g->last == 2)
                    output_tile(stride, m, height, 2, g->products_last + o, g->position, bias, last);
                else if (m == 6)
                    output_tile(stride, m, height, 4, g->products_last + o, g->position, bias, last);
            }
            finish_args f = {.mr = (int)columns, .n = lanes, .ldt = VL, .ldr = nhwc ? g->r.sw : g->r.sc, .ldc = nhwc ? g->y.sw : g->y.sc,
                             .slopes = g->act.slopes ? g->act.slopes + o : NULL, .p0 = g->act.p0, .p1 = g->act.p1};
            for (ptrdiff_t i = 0; i < g->rows; i++) {
                f.tile = strip_at(strip, (int)i, 0);
                f.c = y + i * g->y.sh;
                f.r = g->r.data ? g->r.data + o * g->r.sc + i * g->r.sh + t * m * g->r.sw : NULL;
                FO_NAME(fo_finish_tile)(&f, g->act.kind, !nhwc);
            }
        }
    }
}

void FO_NAME(fo_winograd_output)(const fo_winograd_output_args *g) {
    WITH_TILE(g->tile, g->height, output_run(1, TILE, SIZE, g));
}

void FO_NAME(fo_winograd_strided_output)(const fo_winograd_output_args *g) {
    WITH_STRIDED_TILE(g->tile, g->height, output_run(2, TILE, SIZE, g));
}
