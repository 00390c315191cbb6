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
 * Both transforms run over strips of a row of tiles, VL channels wide, in the first-level cache: first all columns, then all rows,
 * so that a column which two tiles share is transformed once, and no more than m+2 vectors are live at a time.
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

/* ---- input: V[position][tile][channel] = B^T d B --------------------------------------------------------------------- */

/* A strip of m+2 rows: its pixels `width` wide, a vector of channels each; first_column.. are inside the image, as are rows lo..hi. */
typedef struct {
    float data[8 * (FO_WINOGRAD_RUN + 2) * VL];
    ptrdiff_t width, inside, outside; /* columns inside .. outside-1 are in the image */
    int lo, hi;                       /* and so are rows lo .. hi-1 */
} input_strip;

INLINE void store_column(const int m, input_strip *s, ptrdiff_t q, const vf *d) {
    UNROLL for (int i = 0; i < m + 2; i++) v_store(s->data + (i * s->width + q) * VL, d[i]);
}

INLINE void columns_nhwc(const int m, const bool whole, const fo_winograd_input_args *g, input_strip *s, ptrdiff_t c) {
    const vm lanes = v_range(0, g->channels - c);
    const float *x = g->x.data + g->h0 * g->x.sh + (g->w0 + s->inside) * g->x.sw + c;
    for (ptrdiff_t q = s->inside; q < s->outside; q++, x += g->x.sw) {
        vf d[8];
        UNROLL for (int i = 0; i < m + 2; i++)
            d[i] = i < s->lo || i >= s->hi ? v_zero() : whole ? v_load(x + i * g->x.sh) : v_load_mask(x + i * g->x.sh, lanes);
        input_transform(m, d);
        store_column(m, s, q, d);
    }
}

/* VL channels of VL pixels of a row, from column w on, transposed. */
INLINE void load_block(const fo_winograd_input_args *g, ptrdiff_t c, ptrdiff_t h, ptrdiff_t w, float *block) {
    const vm columns = v_range(0, g->iw - w);
    const float *x = g->x.data + c * g->x.sc + h * g->x.sh + w;
    vf t[VL];
    UNROLL for (int l = 0; l < VL; l++) t[l] = c + l < g->channels ? v_load_mask(x + l * g->x.sc, columns) : v_zero();
    v_transpose(t);
    UNROLL for (int l = 0; l < VL; l++) v_store(block + l * VL, t[l]);
}

INLINE void columns_nchw(const int m, const fo_winograd_input_args *g, input_strip *s, ptrdiff_t c) {
    const ptrdiff_t first = g->w0 + s->inside, end = g->w0 + s->outside;
    for (ptrdiff_t w = first / VL * VL; w < end; w += VL) { /* aligned where rows are: planes of 2^n bytes share cache sets */
        float block[8 * VL * VL];
        for (int i = s->lo; i < s->hi; i++) load_block(g, c, g->h0 + i, w, block + i * VL * VL);
        for (ptrdiff_t q = w < first ? first : w; q < w + VL && q < end; q++) {
            vf d[8];
            UNROLL for (int i = 0; i < m + 2; i++) d[i] = i < s->lo || i >= s->hi ? v_zero() : v_load(block + (i * VL + q - w) * VL);
            input_transform(m, d);
            store_column(m, s, q - g->w0, d);
        }
    }
}

INLINE ptrdiff_t clamped(ptrdiff_t i, ptrdiff_t lo, ptrdiff_t hi) { return i < lo ? lo : i > hi ? hi : i; }

INLINE void input_run(const int m, const fo_winograd_input_args *g) {
    const int n = m + 2;
    input_strip s = {.width = g->count * m + 2};
    s.inside = clamped(-g->w0, 0, s.width), s.outside = clamped(g->iw - g->w0, s.inside, s.width);
    s.lo = (int)clamped(-g->h0, 0, n), s.hi = (int)clamped(g->ih - g->h0, s.lo, n);
    for (ptrdiff_t c = 0; c < g->channels; c += VL) {
        const vf zeros[8] = {0};
        for (ptrdiff_t q = 0; q < s.inside; q++) store_column(m, &s, q, zeros);
        for (ptrdiff_t q = s.outside; q < s.width; q++) store_column(m, &s, q, zeros);
        if (g->x.sc != 1)
            columns_nchw(m, g, &s, c);
        else if (g->channels - c >= VL)
            columns_nhwc(m, true, g, &s, c);
        else
            columns_nhwc(m, false, g, &s, c);
        for (int i = 0; i < n; i++)
            for (ptrdiff_t t = 0; t < g->count; t++) {
                vf d[8];
                UNROLL for (int j = 0; j < n; j++) d[j] = v_load(s.data + (i * s.width + t * m + j) * VL);
                input_transform(m, d);
                float *v = g->v + i * n * g->position + t * g->ldv + c;
                UNROLL for (int j = 0; j < n; j++) v_store(v + j * g->position, d[j]);
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

INLINE void output_run(const int m, const fo_winograd_output_args *g) {
    const int n = m + 2;
    const ptrdiff_t width = g->count * m;
    const bool nhwc = g->y.sc == 1;
    float strip[8 * FO_WINOGRAD_RUN * VL];
    for (ptrdiff_t o = 0; o < g->channels; o += VL) {
        const int lanes = g->channels - o < VL ? (int)(g->channels - o) : VL;
        const vf bias = g->bias ? v_load_tail(g->bias + o, lanes) : v_zero();
        for (int i = 0; i < n; i++)
            for (ptrdiff_t t = 0; t < g->count; t++) {
                vf d[8];
                const float *products = g->products + i * n * g->position + t * g->ldp + o;
                UNROLL for (int j = 0; j < n; j++) d[j] = v_load(products + j * g->position);
                output_transform(m, d);
                UNROLL for (int j = 0; j < m; j++) v_store(strip + (i * width + t * m + j) * VL, d[j]);
            }
        for (ptrdiff_t q = 0; q < g->columns; q++) {
            vf d[8];
            UNROLL for (int i = 0; i < n; i++) d[i] = v_load(strip + (i * width + q) * VL);
            output_transform(m, d);
            UNROLL for (int i = 0; i < m; i++) v_store(strip + (i * width + q) * VL, v_add(d[i], bias));
        }
        finish_args f = {.mr = (int)g->columns, .n = lanes, .ldt = VL, .ldr = nhwc ? g->r.sw : g->r.sc, .ldc = nhwc ? g->y.sw : g->y.sc,
                         .slopes = g->act.slopes ? g->act.slopes + o : NULL, .p0 = g->act.p0, .p1 = g->act.p1};
        for (ptrdiff_t i = 0; i < g->rows; i++) {
            f.tile = strip + i * width * VL;
            f.c = g->y.data + o * g->y.sc + i * g->y.sh;
            f.r = g->r.data ? g->r.data + o * g->r.sc + i * g->r.sh : NULL;
            finish_tile(&f, g->act.kind, !nhwc);
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
