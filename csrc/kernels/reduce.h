/* Mean, sum, maximum, minimum or product of fibres. Where fibres lie side by side, a vector holds one element of each;
 * where a fibre is contiguous, a vector holds some of its elements and the lanes are put together at the end. Sums run
 * in blocks that are added up, those of more than SUM_CHAIN elements with what the additions before have lost: they are
 * right to 1e-6 of the sum of magnitudes, however long. The order depends on the shapes alone. */

enum {
    SUM_BLOCK = 128,             /* vectors of one fibre, of four chains */
    SUM_ROWS = 2 * FO_SUM_BLOCK, /* vectors of many fibres, of one chain */
    SUM_CHAIN = 1024,
    REDUCE_VECTORS = 4
};

INLINE vf reduce_identity(const fo_reduction kind) {
    return v_set1(kind == FO_LARGEST ? -INFINITY : kind == FO_LEAST ? INFINITY : kind == FO_PRODUCT ? 1 : 0);
}
INLINE vf reduce_two(const fo_reduction kind, vf a, vf b) {
    switch (kind) {
        case FO_LARGEST: return v_largest(a, b);
        case FO_LEAST: return v_least(a, b);
        case FO_PRODUCT: return v_mul(a, b);
        default: return v_add(a, b);
    }
}

/* all and a part of it; longer: `lost` is what the additions before have lost. */
INLINE void reduce_part(const fo_reduction kind, bool longer, vf *all, vf *lost, vf part) {
    if (longer && (kind == FO_SUM || kind == FO_MEAN))
        v_add_keeping(all, lost, part);
    else
        *all = reduce_two(kind, *all, part);
}

/* All lanes as one, in every lane. */
INLINE vf reduce_of_vector(const fo_reduction kind, vf v) {
    UNROLL_FOR (int half = VL / 2; half; half /= 2) v = reduce_two(kind, v, v_concat(v, v, half));
    return v;
}

/* acc[v] with element 0..n-1 of the fibres in vector v; nv is a literal. */
INLINE void reduce_of_lanes(const fo_reduction kind, const int nv, bool longer, const float *x, ptrdiff_t lane,
                            ptrdiff_t step, ptrdiff_t n, ptrdiff_t w, vf *acc, vf *lost) {
    const ptrdiff_t rows = kind == FO_PRODUCT ? SUM_BLOCK : SUM_ROWS;
    for (ptrdiff_t p0 = 0; p0 < n; p0 += rows) {
        const ptrdiff_t end = p0 + rows < n ? p0 + rows : n;
        vf part[REDUCE_VECTORS];
        UNROLL_FOR (int v = 0; v < nv; v++) part[v] = reduce_identity(kind);
        for (ptrdiff_t p = p0; p < end; p++)
            UNROLL_FOR (int v = 0; v < nv; v++) {
                const float *at = x + p * step + v * VL * lane;
                part[v] = reduce_two(kind, part[v], nv == 1 ? v_load_strided(at, lane, w) : v_load(at));
            }
        UNROLL_FOR (int v = 0; v < nv; v++) reduce_part(kind, longer, acc + v, lost + v, part[v]);
    }
}

/* The reduction of one contiguous fibre, but for its lanes. */
INLINE vf reduce_to_lanes(const fo_reduction kind, bool longer, const float *x, ptrdiff_t n) {
    vf all = reduce_identity(kind), lost = v_zero();
    for (ptrdiff_t p = 0; p < n;) {
        const ptrdiff_t end = p + SUM_BLOCK * VL < n ? p + SUM_BLOCK * VL : n;
        vf part[REDUCE_VECTORS];
        UNROLL_FOR (int v = 0; v < REDUCE_VECTORS; v++) part[v] = reduce_identity(kind);
        for (; p + REDUCE_VECTORS * VL <= end; p += REDUCE_VECTORS * VL)
            UNROLL_FOR (int v = 0; v < REDUCE_VECTORS; v++) part[v] = reduce_two(kind, part[v], v_load(x + p + v * VL));
        for (; p < end; p += VL) {
            const vm inside = v_range(0, end - p);
            part[0] = reduce_two(kind, part[0], v_select(inside, v_load_mask(x + p, inside), reduce_identity(kind)));
        }
        UNROLL_FOR (int v = 0; v < REDUCE_VECTORS; v++) reduce_part(kind, longer, &all, &lost, part[v]);
    }
    return all;
}

/* The reduction of one contiguous fibre, in every lane. */
INLINE vf reduce_contiguous(const fo_reduction kind, bool longer, const float *x, ptrdiff_t n) {
    return reduce_of_vector(kind, reduce_to_lanes(kind, longer, x, n));
}

/* The same of VL contiguous fibres from l on, whose lanes are put together at once, in the same order. */
INLINE void reduce_side_by_side(const fo_reduction kind, bool longer, const fo_fibres *f, ptrdiff_t l) {
    vf row[VL];
    for (int i = 0; i < VL; i++) row[i] = reduce_to_lanes(kind, longer, f->from + (l + i) * f->x.lane, f->n);
    v_transpose(row);
    UNROLL_FOR (int half = VL / 2; half; half /= 2)
        UNROLL_FOR (int i = 0; i < half; i++) row[i] = reduce_two(kind, row[i], row[i + half]);
    if (kind == FO_MEAN) row[0] = v_div(row[0], v_set1((float)f->n));
    v_store_strided(f->to + l * f->y.lane, f->y.lane, row[0], VL);
}

INLINE void reduce_lanes(const fo_reduction kind, const int nv, const fo_fibres *f, const ptrdiff_t outer[2],
                         const ptrdiff_t step[2], ptrdiff_t l) {
    const bool longer = outer[0] * outer[1] * f->n > SUM_CHAIN;
    vf acc[REDUCE_VECTORS], lost[REDUCE_VECTORS];
    UNROLL_FOR (int v = 0; v < nv; v++) acc[v] = reduce_identity(kind), lost[v] = v_zero();
    for (ptrdiff_t i = 0; i < outer[1]; i++)
        for (ptrdiff_t j = 0; j < outer[0]; j++) {
            const float *x = f->from + i * step[1] + j * step[0] + l * f->x.lane;
            reduce_of_lanes(kind, nv, longer, x, f->x.lane, f->x.step, f->n, f->w - l, acc, lost);
        }
    const vf count = v_set1((float)(outer[0] * outer[1] * f->n));
    UNROLL_FOR (int v = 0; v < nv; v++) {
        if (kind == FO_MEAN) acc[v] = v_div(acc[v], count);
        v_store_strided(f->to + (l + v * VL) * f->y.lane, f->y.lane, acc[v], f->w - l - v * VL);
    }
}

INLINE void reduce_fibres(const fo_reduction kind, const fo_fibres *f, const ptrdiff_t outer[2],
                          const ptrdiff_t step[2]) {
    ptrdiff_t l = 0;
    if (f->x.step == 1 && f->x.lane != 1) {
        FO_RAN("reduce contiguous");
        const bool longer = outer[0] * outer[1] * f->n > SUM_CHAIN;
        for (; outer[0] * outer[1] == 1 && l + VL <= f->w; l += VL) reduce_side_by_side(kind, longer, f, l);
        for (; l < f->w; l++) {
            vf acc = reduce_identity(kind), lost = v_zero();
            for (ptrdiff_t i = 0; i < outer[1]; i++)
                for (ptrdiff_t j = 0; j < outer[0]; j++) {
                    const float *x = f->from + i * step[1] + j * step[0] + l * f->x.lane;
                    reduce_part(kind, longer, &acc, &lost, reduce_contiguous(kind, longer, x, f->n));
                }
            if (kind == FO_MEAN) acc = v_div(acc, v_set1((float)(outer[0] * outer[1] * f->n)));
            v_store_tail(f->to + l * f->y.lane, acc, 1);
        }
        return;
    }
    FO_RAN("reduce lanes");
    if (f->x.lane == 1)
        for (; l + REDUCE_VECTORS * VL <= f->w; l += REDUCE_VECTORS * VL)
            reduce_lanes(kind, REDUCE_VECTORS, f, outer, step, l);
    for (; l < f->w; l += VL) reduce_lanes(kind, 1, f, outer, step, l);
}

void FO_NAME(fo_reduce)(const fo_fibres *f, fo_reduction kind, const ptrdiff_t outer[2], const ptrdiff_t step[2]) {
    switch (kind) {
        case FO_MEAN: reduce_fibres(FO_MEAN, f, outer, step); break;
        case FO_SUM: reduce_fibres(FO_SUM, f, outer, step); break;
        case FO_LARGEST: reduce_fibres(FO_LARGEST, f, outer, step); break;
        case FO_LEAST: reduce_fibres(FO_LEAST, f, outer, step); break;
        case FO_PRODUCT: reduce_fibres(FO_PRODUCT, f, outer, step); break;
    }
}
