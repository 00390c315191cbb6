/* Winograd's convolution F(m x m, 3x3): m x m outputs of a tile from (m+2) x (m+2) inputs d and 3x3 weights g,
 *
 *     y = A^T [ (G g G^T) o (B^T d B) ] A
 *
 * so that a sum over channels is one small product of matrices for each of the (m+2)^2 positions (ops/winograd.c).
 *
 * The matrices come from polynomials that are evaluated at 0, at pairs +-p and at infinity (the order of the rows everywhere here):
 * B^T has the coefficients of the product of (x - q) over the other points q, A^T the powers p^0 .. p^(m-1), and G the powers
 * p^0 .. p^2 over the product of (p - q). Pairs share their even and their odd part. The points were searched for the lowest error
 * in float32; all are short binary fractions, so that every constant below but those of G is exact.
 *
 * The input's transform runs over strips of a row of tiles, VL channels wide, in the first-level cache: first all columns, then all
 * rows, so that a column which two tiles share is transformed once. The output's has nothing to share: a tile stays in registers.
 */
#define F4_A 0.75
#define F4_B 1.5
#define F6_A 0.5
#define F6_B 1.0 /* its powers are left out of the formulas below */
#define F6_C 2.0
#define SQUARE(x) ((x) * (x))

#define FILTER_ROW(p, q) {1 / (q), (p) / (q), (p) * (p) / (q)}
#define FILTER_PAIR(p, q) FILTER_ROW(p, q), FILTER_ROW(-(p), q)
#define F4_DIFFERENCE (SQUARE(F4_A) - SQUARE(F4_B))
#define F6_DIFFERENCES(p, q, r) (2 * SQUARE(p) * (SQUARE(p) - SQUARE(q)) * (SQUARE(p) - SQUARE(r)))
static const double filter_2[4][3] = {FILTER_ROW(0, -1.0), FILTER_PAIR(1, 2.0), {0, 0, 1}};
static const double filter_4[6][3] = {
    FILTER_ROW(0, SQUARE(F4_A) * SQUARE(F4_B)), FILTER_PAIR(F4_A, 2 * SQUARE(F4_A) * F4_DIFFERENCE),
    FILTER_PAIR(F4_B, -2 * SQUARE(F4_B) * F4_DIFFERENCE), {0, 0, 1}};
static const double filter_6[8][3] = {
    FILTER_ROW(0, -SQUARE(F6_A) * SQUARE(F6_B) * SQUARE(F6_C)), FILTER_PAIR(F6_A, F6_DIFFERENCES(F6_A, F6_B, F6_C)),
    FILTER_PAIR(F6_B, F6_DIFFERENCES(F6_B, F6_A, F6_C)), FILTER_PAIR(F6_C, F6_DIFFERENCES(F6_C, F6_A, F6_B)), {0, 0, 1}};

/* ---- weights ------------------------------------------------------------------------------------------------------ */

/* G g G^T for NR output channels side by side: g[9][NR], u[p * position + 0..NR) for position p. In double, rounded once. */
INLINE void weights_panel(const int m, const double filter[][3], const float *restrict g, float *restrict u, ptrdiff_t position) {
    double rows[8][3][NR];
    for (int i = 0; i < m + 2; i++)
        for (int j = 0; j < 3; j++)
            for (int o = 0; o < NR; o++)
                rows[i][j][o] = filter[i][0] * g[j * NR + o] + filter[i][1] * g[(3 + j) * NR + o] + filter[i][2] * g[(6 + j) * NR + o];
    for (int i = 0; i < m + 2; i++)
        for (int j = 0; j < m + 2; j++, u += position)
            for (int o = 0; o < NR; o++)
                u[o] = (float)(filter[j][0] * rows[i][0][o] + filter[j][1] * rows[i][1][o] + filter[j][2] * rows[i][2][o]);
}

static void FO_NAME(fo_winograd_weights)(int tile, const float *g, float *u, ptrdiff_t position) {
    switch (tile) {
        case 2: weights_panel(2, filter_2, g, u, position); break;
        case 4: weights_panel(4, filter_4, g, u, position); break;
        case 6: weights_panel(6, filter_6, g, u, position); break;
    }
}

/* ---- transforms of one row or column -------------------------------------------------------------------------------- */

INLINE vf v_times(double c, vf x) { return v_mul(v_set1((float)c), x); }
INLINE vf v_plus(vf y, double c, vf x) { return v_fma(v_set1((float)c), x, y); }   /* y + c x */
INLINE vf v_minus(vf y, double c, vf x) { return v_fnma(v_set1((float)c), x, y); } /* y - c x */

/* The rows of B^T for the points +-p, from the even and the odd part of the product over the other points. */
INLINE void pair(vf *plus, vf *minus, double p, vf even, vf odd) {
    *plus = p == 1 ? v_add(even, odd) : v_plus(even, p, odd);
    *minus = p == 1 ? v_sub(even, odd) : v_minus(even, p, odd);
}

/* x4 - (p^2 + q^2) x2 + p^2 q^2 x0 */
INLINE vf quartic(double p, double q, vf x4, vf x2, vf x0) {
    return v_plus(v_minus(x4, SQUARE(p) + SQUARE(q), x2), SQUARE(p) * SQUARE(q), x0);
}

/* x6 - e1 x4 + e2 x2 - e3 x0, e the elementary symmetric polynomials of the squared points */
INLINE vf sextic(vf x6, vf x4, vf x2, vf x0) {
    const double a = SQUARE(F6_A), b = SQUARE(F6_B), c = SQUARE(F6_C);
    return v_minus(v_plus(v_minus(x6, a + b + c, x4), a * b + a * c + b * c, x2), a * b * c, x0);
}

/* d = B^T d */
INLINE void input_transform(const int m, vf *d) {
    if (m == 2) {
        const vf d1 = d[1], d2 = d[2];
        d[0] = v_sub(d2, d[0]);
        d[3] = v_sub(d[3], d1);
        pair(&d[1], &d[2], 1, d2, d1);
    } else if (m == 4) {
        const vf d1 = d[1], d2 = d[2], d3 = d[3], d4 = d[4];
        d[0] = quartic(F4_A, F4_B, d4, d2, d[0]);
        d[5] = quartic(F4_A, F4_B, d[5], d3, d1);
        pair(&d[1], &d[2], F4_A, v_minus(d4, SQUARE(F4_B), d2), v_minus(d3, SQUARE(F4_B), d1));
        pair(&d[3], &d[4], F4_B, v_minus(d4, SQUARE(F4_A), d2), v_minus(d3, SQUARE(F4_A), d1));
    } else {
        const vf d1 = d[1], d2 = d[2], d3 = d[3], d4 = d[4], d5 = d[5], d6 = d[6];
        d[0] = sextic(d6, d4, d2, d[0]);
        d[7] = sextic(d[7], d5, d3, d1);
        pair(&d[1], &d[2], F6_A, quartic(F6_B, F6_C, d6, d4, d2), quartic(F6_B, F6_C, d5, d3, d1));
        pair(&d[3], &d[4], F6_B, quartic(F6_A, F6_C, d6, d4, d2), quartic(F6_A, F6_C, d5, d3, d1));
        pair(&d[5], &d[6], F6_C, quartic(F6_A, F6_B, d6, d4, d2), quartic(F6_A, F6_B, d5, d3, d1));
    }
}

/* a p^k + b + c r^k */
INLINE vf powers_6(vf a, vf b, vf c, double p, double r) { return v_plus(v_plus(b, r, c), p, a); }

/* d[0..m) = A^T d */
INLINE void output_transform(const int m, vf *d) {
    if (m == 2) {
        const vf sum = v_add(d[1], d[2]), difference = v_sub(d[1], d[2]);
        d[0] = v_add(d[0], sum);
        d[1] = v_add(difference, d[3]);
    } else if (m == 4) {
        const double a = F4_A, b = F4_B;
        const vf sa = v_add(d[1], d[2]), da = v_sub(d[1], d[2]), sb = v_add(d[3], d[4]), db = v_sub(d[3], d[4]);
        d[0] = v_add(d[0], v_add(sa, sb));
        d[1] = v_plus(v_times(a, da), b, db);
        d[2] = v_plus(v_times(SQUARE(a), sa), SQUARE(b), sb);
        d[3] = v_plus(v_plus(d[5], a * SQUARE(a), da), b * SQUARE(b), db);
    } else {
        const double a = F6_A, c = F6_C, a2 = SQUARE(a), c2 = SQUARE(c);
        const vf sa = v_add(d[1], d[2]), da = v_sub(d[1], d[2]), sb = v_add(d[3], d[4]), db = v_sub(d[3], d[4]);
        const vf sc = v_add(d[5], d[6]), dc = v_sub(d[5], d[6]);
        d[0] = v_add(v_add(d[0], sa), v_add(sb, sc));
        d[1] = powers_6(da, db, dc, a, c);
        d[2] = powers_6(sa, sb, sc, a2, c2);
        d[3] = powers_6(da, db, dc, a2 * a, c2 * c);
        d[4] = powers_6(sa, sb, sc, a2 * a2, c2 * c2);
        d[5] = powers_6(da, v_add(d[7], db), dc, a2 * a2 * a, c2 * c2 * c);
    }
}

/* ---- strips ----------------------------------------------------------------------------------------------------------- */

/* A strip has a row for each row of a tile, of STRIP tiles and the two pixels that reach beyond the last one: with the tiles that it
 * is read from or written to it stays in the first-level cache. */
enum { STRIP = 8, PITCH = (STRIP * 6 + 2) * VL };

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
    float block[8 * VL * VL];
    float strip[8 * PITCH];
} input_state;

INLINE void store_column(const int m, input_state *s, ptrdiff_t q, const vf *d) {
    UNROLL for (int i = 0; i < m + 2; i++) v_store(strip_at(s->strip, i, q), d[i]);
}

/* Columns q .. end-1 of the strip, which lie in the image from column w on. whole: so do all rows, and all lanes are channels. */
INLINE void columns_nhwc(const int m, const bool whole, input_state *s, ptrdiff_t q, ptrdiff_t end, ptrdiff_t w) {
    const fo_image image = s->g->x;
    const vm lanes = v_range(0, s->g->channels - s->c);
    const int lo = s->lo, hi = s->hi;
    const float *x = image.data + s->g->h0 * image.sh + w * image.sw + s->c;
    for (; q < end; q++, x += image.sw) {
        vf d[8];
        UNROLL for (int i = 0; i < m + 2; i++)
            d[i] = whole ? v_load(x + i * image.sh) : i < lo || i >= hi ? v_zero() : v_load_mask(x + i * image.sh, lanes);
        input_transform(m, d);
        store_column(m, s, q, d);
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
        v_transpose(t);
        UNROLL for (int l = 0; l < VL; l++) v_store(s->block + (i * VL + l) * VL, t[l]);
    }
    s->next = w + VL;
}

INLINE void columns_nchw(const int m, input_state *s, ptrdiff_t q, ptrdiff_t end, ptrdiff_t w) {
    const fo_image image = s->g->x;
    while (q < end) {
        if (w >= s->next) load_block(s, w - misalignment(image.data + s->c * image.sc + (s->g->h0 + s->lo) * image.sh + w));
        for (; q < end && w < s->next; q++, w++) {
            const float *column = s->block + (w - s->next + VL) * VL;
            vf d[8];
            UNROLL for (int i = 0; i < m + 2; i++) d[i] = v_load(column + i * VL * VL);
            input_transform(m, d);
            store_column(m, s, q, d);
        }
    }
}

/* Columns q .. end-1 of a strip that begins at column w0 of the image: transformed, or zero. */
INLINE void input_columns(const int m, input_state *s, ptrdiff_t q, ptrdiff_t end, ptrdiff_t w0) {
    const vf zeros[8] = {0};
    const ptrdiff_t inside = clamped(-w0, q, end), outside = clamped(s->g->iw - w0, inside, end);
    for (; q < inside; q++) store_column(m, s, q, zeros);
    if (s->g->x.sc != 1)
        columns_nchw(m, s, inside, outside, w0 + inside);
    else if (s->g->channels - s->c >= VL && s->hi - s->lo == m + 2)
        columns_nhwc(m, true, s, inside, outside, w0 + inside);
    else
        columns_nhwc(m, false, s, inside, outside, w0 + inside);
    for (q = outside; q < end; q++) store_column(m, s, q, zeros);
}

INLINE void input_rows(const int m, input_state *s, ptrdiff_t tiles, float *v) {
    const int n = m + 2;
    const ptrdiff_t ldv = s->g->ldv, position = s->g->position;
    for (int i = 0; i < n; i++, v += n * position) {
        const float *row = strip_at(s->strip, i, 0);
        float *to = v;
        for (ptrdiff_t t = 0; t < tiles; t++, row += m * VL, to += ldv) {
            vf d[8];
            UNROLL for (int j = 0; j < n; j++) d[j] = v_load(row + j * VL);
            input_transform(m, d);
            UNROLL for (int j = 0; j < n; j++) v_store(to + j * position, d[j]);
        }
    }
}

INLINE void input_run(const int m, const fo_winograd_input_args *g) {
    const int n = m + 2;
    input_state s;
    s.g = g, s.lo = (int)clamped(-g->h0, 0, n), s.hi = (int)clamped(g->ih - g->h0, s.lo, n);
    for (int i = 0; i < n; i++) /* rows of a block outside the image stay zero */
        if (i < s.lo || i >= s.hi) memset(s.block + i * VL * VL, 0, VL * VL * sizeof(float));
    for (s.c = 0; s.c < g->channels; s.c += VL) {
        s.next = PTRDIFF_MIN;
        for (ptrdiff_t t = 0, kept = 0; t < g->count; t += STRIP, kept = 2) {
            const ptrdiff_t tiles = g->count - t < STRIP ? g->count - t : STRIP;
            for (int i = 0; i < n && kept; i++) memcpy(strip_at(s.strip, i, 0), strip_at(s.strip, i, STRIP * m), kept * VL * sizeof(float));
            input_columns(m, &s, kept, tiles * m + 2, g->w0 + t * m);
            input_rows(m, &s, tiles, g->v + t * g->ldv + s.c);
        }
    }
}

static void FO_NAME(fo_winograd_input)(const fo_winograd_input_args *g) {
    switch (g->tile) {
        case 2: input_run(2, g); break;
        case 4: input_run(4, g); break;
        case 6: input_run(6, g); break;
    }
}

/* ---- output: y = activation(A^T M A + bias + residual) ---------------------------------------------------------------- */

/* One tile, to its place in the strip. */
INLINE void output_tile(const int m, const float *products, ptrdiff_t position, vf bias, float *strip) {
    const int n = m + 2;
    vf rows[8][8];
    UNROLL for (int i = 0; i < n; i++) {
        UNROLL for (int j = 0; j < n; j++, products += position) rows[i][j] = v_load(products);
        output_transform(m, rows[i]);
    }
    UNROLL for (int j = 0; j < m; j++) {
        vf d[8];
        UNROLL for (int i = 0; i < n; i++) d[i] = rows[i][j];
        output_transform(m, d);
        UNROLL for (int i = 0; i < m; i++) v_store(strip_at(strip, i, j), v_add(d[i], bias));
    }
}

/* Tiles of the first strip: so many that those after it begin at a vector's boundary of y, where it can be had. */
INLINE ptrdiff_t first_strip(const int m, const fo_winograd_output_args *g) {
    ptrdiff_t tiles = STRIP;
    if (g->y.sc != 1)
        while (tiles > 1 && misalignment(g->y.data + tiles * m)) tiles--;
    return tiles > 1 ? tiles : STRIP;
}

INLINE void output_run(const int m, const fo_winograd_output_args *g) {
    const bool nhwc = g->y.sc == 1;
    const ptrdiff_t first = first_strip(m, g);
    float strip[8 * PITCH];
    for (ptrdiff_t o = 0; o < g->channels; o += VL) {
        const int lanes = g->channels - o < VL ? (int)(g->channels - o) : VL;
        const vf bias = g->bias ? v_load_tail(g->bias + o, lanes) : v_zero();
        for (ptrdiff_t t = 0, tiles = first; t < g->count; t += tiles, tiles = STRIP) {
            const ptrdiff_t columns = g->columns - t * m < tiles * m ? g->columns - t * m : tiles * m;
            if (tiles > g->count - t) tiles = g->count - t;
            for (ptrdiff_t i = 0; i < tiles; i++)
                output_tile(m, g->products + (t + i) * g->ldp + o, g->position, bias, strip_at(strip, 0, i * m));
            finish_args f = {.mr = (int)columns, .n = lanes, .ldt = VL, .ldr = nhwc ? g->r.sw : g->r.sc, .ldc = nhwc ? g->y.sw : g->y.sc,
                             .slopes = g->act.slopes ? g->act.slopes + o : NULL, .p0 = g->act.p0, .p1 = g->act.p1};
            for (ptrdiff_t i = 0; i < g->rows; i++) {
                f.tile = strip_at(strip, (int)i, 0);
                f.c = g->y.data + o * g->y.sc + i * g->y.sh + t * m * g->y.sw;
                f.r = g->r.data ? g->r.data + o * g->r.sc + i * g->r.sh + t * m * g->r.sw : NULL;
                finish_tile(&f, g->act.kind, !nhwc);
            }
        }
    }
}

static void FO_NAME(fo_winograd_output)(const fo_winograd_output_args *g) {
    switch (g->tile) {
        case 2: output_run(2, g); break;
        case 4: output_run(4, g); break;
        case 6: output_run(6, g); break;
    }
}
