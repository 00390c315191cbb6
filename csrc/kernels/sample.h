/* Rows of y as sums of rows of x at computed places, each with a weight. */
#ifndef FO_SAMPLE_H
#define FO_SAMPLE_H

/* Vectors of channels, whose sums stay in registers over the taps. */
INLINE void sample_channels(const fo_sample_args *a, ptrdiff_t point, ptrdiff_t c, const int vectors, ptrdiff_t last) {
    vf acc[NV];
    UNROLL_FOR (int v = 0; v < vectors; v++) acc[v] = v_zero();
    for (ptrdiff_t t = 0; t < a->taps; t++) {
        const float *const x = a->x + a->at[t * a->points + point] * a->c + c;
        const vf w = v_set1(a->w[t * a->points + point]);
        UNROLL_FOR (int v = 0; v < vectors; v++)
            acc[v] = v_fma(w, v < vectors - 1 ? v_load(x + v * VL) : v_load_tail(x + v * VL, last), acc[v]);
    }
    float *const y = a->y + point * a->c + c;
    UNROLL_FOR (int v = 0; v < vectors - 1; v++) v_store(y + v * VL, acc[v]);
    v_store_tail(y + (vectors - 1) * VL, acc[vectors - 1], last);
}

void FO_NAME(fo_sample)(const fo_sample_args *a, ptrdiff_t first, ptrdiff_t last) {
    FO_RAN("sample");
    for (ptrdiff_t point = first; point < last; point++) {
        ptrdiff_t c = 0;
        for (; c + NR <= a->c; c += NR) sample_channels(a, point, c, NV, VL);
        for (; c < a->c; c += VL) sample_channels(a, point, c, 1, a->c - c < VL ? a->c - c : VL);
    }
}

#endif
