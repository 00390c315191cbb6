/* y[j,i] = x[i,j]: VL x VL blocks through the registers, edges masked. */
static void FO_NAME(fo_transpose)(ptrdiff_t m, ptrdiff_t n, const float *x, ptrdiff_t ldx, float *y, ptrdiff_t ldy) {
    for (ptrdiff_t i = 0; i < m; i += VL)
        for (ptrdiff_t j = 0; j < n; j += VL) {
            vm rows = v_range(0, m - i), columns = v_range(0, n - j);
            vf t[VL];
            UNROLL for (int l = 0; l < VL; l++) t[l] = i + l < m ? v_load_mask(x + (i + l) * ldx + j, columns) : v_zero();
            v_transpose(t);
            UNROLL for (int l = 0; l < VL; l++) if (j + l < n) v_store_mask(y + (j + l) * ldy + i, t[l], rows);
        }
}
