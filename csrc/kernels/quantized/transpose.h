/* Transpositions of elements of 8 and 16 bits. Those of 32 are in copy.h. */

/* Few rows, whose columns follow one another: the compiler makes vectors of it. */
#define INTERLEAVE(bits) \
    INLINE void interleave_##bits(const int m, ptrdiff_t n, const uint##bits##_t *restrict x, ptrdiff_t ldx, \
                                  uint##bits##_t *restrict y) { \
        for (ptrdiff_t j = 0; j < n; j++) UNROLL_FOR (int i = 0; i < m; i++) y[j * m + i] = x[i * ldx + j]; \
    } \
    static bool interleaves_##bits(ptrdiff_t m, ptrdiff_t n, const uint##bits##_t *x, ptrdiff_t ldx, \
                                   uint##bits##_t *y, ptrdiff_t ldy) { \
        if (m != ldy || m < 2 || m > FO_TRANSPOSE_ELEMENTS) return false; \
        if (m == 2) \
            interleave_##bits(2, n, x, ldx, y); \
        else if (m == 3) \
            interleave_##bits(3, n, x, ldx, y); \
        else \
            interleave_##bits(4, n, x, ldx, y); \
        return true; \
    }
INTERLEAVE(8)
INTERLEAVE(16)

/* Bytes of n columns and m rows of x as m columns of n rows: y[j*ldy + i] = x[i*ldx + j], by blocks of 4*VL. */
INLINE void transpose_block(ptrdiff_t m, ptrdiff_t n, const uint8_t *x, ptrdiff_t ldx, uint8_t *y, ptrdiff_t ldy) {
    vi quads[4][VL];
    for (int g = 0; g < VL; g++) {
        vi r[4], q[4];
        UNROLL_FOR (int i = 0; i < 4; i++)
            r[i] = 4 * g + i >= m ? v_iset1(0)
                   : n >= QUADS   ? v_iload(x + (4 * g + i) * ldx)
                                  : v_load_quads_tail(x + (4 * g + i) * ldx, n);
        v_quads(r, q);
        UNROLL_FOR (int i = 0; i < 4; i++) quads[i][g] = q[i];
    }
    for (int i = 0; i < 4; i++) {
        vf t[VL];
        UNROLL_FOR (int g = 0; g < VL; g++) t[g] = v_as_float(quads[i][g]);
        v_transpose(t);
        UNROLL_FOR (int l = 0; l < VL; l++) {
            const ptrdiff_t j = fo_quad_channel(i, l, VL);
            if (j >= n) continue;
            if (m >= QUADS)
                v_istore(y + j * ldy, v_as_int(t[l]));
            else
                v_store_quads_tail(y + j * ldy, v_as_int(t[l]), m);
        }
    }
}

void FO_NAME(fo_transpose_8)(ptrdiff_t m, ptrdiff_t n, const uint8_t *x, ptrdiff_t ldx, uint8_t *y, ptrdiff_t ldy) {
    if (interleaves_8(m, n, x, ldx, y, ldy)) return;
    for (ptrdiff_t i = 0; i < m; i += QUADS)
        for (ptrdiff_t j = 0; j < n; j += QUADS)
            transpose_block(m - i, n - j, x + i * ldx + j, ldx, y + j * ldy + i, ldy);
}

/* The same of elements of 16 bits, by blocks of 2*VL: those of two rows form words, which are transposed. */
INLINE void transpose_block_16(const bool whole, ptrdiff_t m, ptrdiff_t n, const uint16_t *x, ptrdiff_t ldx,
                               uint16_t *y, ptrdiff_t ldy) {
    vf t[2][VL];
    UNROLL_FOR (int l = 0; l < VL; l++) {
        vi r[2];
        UNROLL_FOR (int i = 0; i < 2; i++, x += ldx) {
            v_launder(x);
            r[i] = whole ? v_iload(x) : 2 * l + i < m ? v_load_quads_tail(x, n < 2 * VL ? 2 * n : QUADS) : v_iset1(0);
        }
        UNROLL_FOR (int u = 0; u < 2; u++) t[u][l] = v_as_float(v_zip_shorts(r[0], r[1], u));
    }
    v_transpose(t[0]), v_transpose(t[1]);
    UNROLL_FOR (int l = 0; l < VL; l++)
        UNROLL_FOR (int u = 0; u < 2; u++, y += ldy) {
            v_launder(y);
            if (whole)
                v_istore(y, v_as_int(t[u][l]));
            else if (2 * l + u < n)
                v_store_quads_tail(y, v_as_int(t[u][l]), m < 2 * VL ? 2 * m : QUADS);
        }
}

void FO_NAME(fo_transpose_16)(ptrdiff_t m, ptrdiff_t n, const uint16_t *x, ptrdiff_t ldx, uint16_t *y, ptrdiff_t ldy) {
    if (interleaves_16(m, n, x, ldx, y, ldy)) return;
    FO_RAN("transpose 16");
    for (ptrdiff_t i = 0; i < m; i += 2 * VL)
        for (ptrdiff_t j = 0; j < n; j += 2 * VL) {
            const uint16_t *from = x + i * ldx + j;
            uint16_t *to = y + j * ldy + i;
            if (i + 2 * VL <= m && j + 2 * VL <= n)
                transpose_block_16(true, 2 * VL, 2 * VL, from, ldx, to, ldy);
            else
                transpose_block_16(false, m - i, n - j, from, ldx, to, ldy);
        }
}
