/* Copies: a transposition, rows with zeros around them, sums of rows, and weights times a scale. */

/* A block of m rows and n columns, or VL of each where there are more. over: stores may reach beyond m. */
INLINE void transpose_block(const bool whole, const bool over, ptrdiff_t m, ptrdiff_t n, const float *x, ptrdiff_t ldx,
                            float *y, ptrdiff_t ldy) {
    const vm rows = v_range(0, m), columns = v_range(0, n);
    vf t[VL];
    UNROLL_FOR (int l = 0; l < VL; l++, x += ldx) {
        v_launder(x);
        t[l] = whole ? v_load(x) : l < m ? v_load_mask(x, columns) : v_zero();
    }
    v_transpose(t);
    UNROLL_FOR (int l = 0; l < VL; l++, y += ldy) {
        v_launder(y);
        if (whole || over)
            v_store(y, t[l]);
        else if (l < n)
            v_store_first(y, t[l], m, rows);
    }
}

/* Rows i0 .. i1 and columns j0 .. j1, element by element. */
static void transpose_elements(ptrdiff_t i0, ptrdiff_t i1, ptrdiff_t j0, ptrdiff_t j1, const float *x, ptrdiff_t ldx,
                               float *y, ptrdiff_t ldy) {
    for (ptrdiff_t i = i0; i < i1; i++)
        for (ptrdiff_t j = j0; j < j1; j++) y[j * ldy + i] = x[i * ldx + j];
}

/* y[j,i] = x[i,j] for i < m, j < n: VL x VL blocks through the registers, edges masked, or element by element where
 * they are a few lines. Of few rows, that follow each other in y, a vector may reach into the next ones, which are
 * written after it. */
void FO_NAME(fo_transpose)(ptrdiff_t m, ptrdiff_t n, const float *x, ptrdiff_t ldx, float *y, ptrdiff_t ldy) {
    const ptrdiff_t few = VEC_IS_LINE ? FO_TRANSPOSE_ELEMENTS : 0;
    const ptrdiff_t rows = m > VL && m % VL <= few ? m - m % VL : m;
    const ptrdiff_t columns = n > VL && n % VL <= few ? n - n % VL : n;
    transpose_elements(rows, m, 0, n, x, ldx, y, ldy);
    transpose_elements(0, rows, columns, n, x, ldx, y, ldy);
    for (ptrdiff_t i = 0; i < rows; i += VL)
        for (ptrdiff_t j = 0; j < columns; j += VL) {
            const float *from = x + i * ldx + j;
            float *to = y + j * ldy + i;
            if (i + VL <= rows && j + VL <= columns)
                transpose_block(true, false, VL, VL, from, ldx, to, ldy);
            else if (m == ldy && m < VL && (j + VL) * m + VL <= columns * m)
                transpose_block(false, true, m, VL, from, ldx, to, ldy);
            else
                transpose_block(false, false, rows - i, columns - j, from, ldx, to, ldy);
        }
}

/* Every step-th (1, 2, 4) element from `at` on, of a row's `width` at x. */
INLINE vf load_strided(const ptrdiff_t step, const bool whole, const float *x, ptrdiff_t at, ptrdiff_t width) {
    vf v[4];
    UNROLL_FOR (int q = 0; q < step; q++, at += VL)
        v[q] = whole ? v_load(x + at) : v_load_mask(x + at, v_range(-at, width - at));
    if (step == 1) return v[0];
    return step == 2 ? v_uzp_even(v[0], v[1]) : v_uzp_even(v_uzp_even(v[0], v[1]), v_uzp_even(v[2], v[3]));
}

/* fo_pad for steps of 1, 2 and 4; masks where a vector passes an edge. */
INLINE void pad(const ptrdiff_t step, ptrdiff_t m, ptrdiff_t n, const float *x, ptrdiff_t ldx, ptrdiff_t width,
                ptrdiff_t first, float *y, ptrdiff_t ldy) {
    for (ptrdiff_t j = 0, at = first; j < n; j += VL, at += step * VL) {
        const float *from = x;
        float *to = y + j;
        const bool whole = at >= 0 && at + step * VL <= width && j + VL <= n;
        const vm stored = v_range(0, n - j);
        for (ptrdiff_t i = 0; i < m; i++, from += ldx, to += ldy)
            if (whole)
                v_store(to, load_strided(step, true, from, at, width));
            else
                v_store_first(to, load_strided(step, false, from, at, width), n - j, stored);
    }
}

static void pad_elements(ptrdiff_t m, ptrdiff_t n, const float *x, ptrdiff_t ldx, ptrdiff_t width, ptrdiff_t first,
                         ptrdiff_t step, float *y, ptrdiff_t ldy) {
    ptrdiff_t begin = 0, end = n;
    while (begin < n && first + begin * step < 0) begin++;
    while (end > begin && first + (end - 1) * step >= width) end--;
    for (ptrdiff_t i = 0; i < m; i++, x += ldx, y += ldy) {
        for (ptrdiff_t j = 0; j < begin; j++) y[j] = 0;
        for (ptrdiff_t j = begin; j < end; j++) y[j] = x[first + j * step];
        for (ptrdiff_t j = end; j < n; j++) y[j] = 0;
    }
}

/* y[i,j] = x[i, first + j*step] for i < m, j < n, and 0 where that column is not in 0 .. width. */
void FO_NAME(fo_pad)(ptrdiff_t m, ptrdiff_t n, const float *x, ptrdiff_t ldx, ptrdiff_t width, ptrdiff_t first,
                     ptrdiff_t step, float *y, ptrdiff_t ldy) {
    FO_RAN(step == 1 || step == 2 || step == 4 ? "pad vectors" : "pad elements");
    if (step == 1)
        pad(1, m, n, x, ldx, width, first, y, ldy);
    else if (step == 2)
        pad(2, m, n, x, ldx, width, first, y, ldy);
    else if (step == 4)
        pad(4, m, n, x, ldx, width, first, y, ldy);
    else
        pad_elements(m, n, x, ldx, width, first, step, y, ldy);
}

/* y = a + sign * b: m rows of n elements; y may be a or b. */
void FO_NAME(fo_sum)(ptrdiff_t m, ptrdiff_t n, const float *a, ptrdiff_t lda, const float *b, ptrdiff_t ldb, float sign,
                     float *y, ptrdiff_t ldy) {
    const vf s = v_set1(sign);
    for (ptrdiff_t i = 0; i < m; i++, a += lda, b += ldb, y += ldy) {
        ptrdiff_t j = 0;
        for (; j + VL <= n; j += VL) v_store(y + j, v_fma(s, v_load(b + j), v_load(a + j)));
        if (j < n) v_store_tail(y + j, v_fma(s, v_load_tail(b + j, n - j), v_load_tail(a + j, n - j)), n - j);
    }
}

/* Of what is left of a vector, a copy with zeros after it. */
INLINE void widen(const fo_dtype type, ptrdiff_t n, const char *from, float *to) {
    ptrdiff_t i = 0;
    for (; i + VL <= n; i += VL) v_store(to + i, v_load_as(type, from, i));
    float rest[VL] = {0};
    memcpy(rest, from + i * fo_size(type), (size_t)((n - i) * fo_size(type)));
    v_store_tail(to + i, v_load_as(type, rest, 0), n - i);
}

void FO_NAME(fo_widen)(ptrdiff_t n, fo_dtype type, const void *from, float *to) {
#define WIDEN(weight) \
    if (type == FO_##weight) widen(FO_##weight, n, from, to);
    FO_EACH_WEIGHT(WIDEN)
#undef WIDEN
}

/* folded = w * scale, rounded once. In plain C: the compiler makes vectors of doubles of it; folded may be w. */
void FO_NAME(fo_fold)(ptrdiff_t n, const float *w, double scale, float *folded) {
    _Pragma("GCC ivdep") for (ptrdiff_t i = 0; i < n; i++) {
        const float v = (float)(w[i] * scale);
        folded[i] = fabsf(v) < FLT_MIN ? 0 : v; /* denormal weights would slow other code down */
    }
}
