/* Passes over memory, a row at a time: what the fused kernels do in registers, and what stands between a network's
 * layers. */

INLINE vf load_lanes(const float *p, const bool all, vm m) { return all ? v_load(p) : v_load_mask(p, m); }

/* One vector at column j of the row g. scale, shift and slope are the row's where channels are rows, else they are
 * loaded here. */
INLINE void pointwise_vector(const fo_act_kind kind, const fo_pointwise_args *g, ptrdiff_t j, const bool all, vm m,
                             vf scale, vf shift, vf slope) {
    const bool columns = !g->channel_rows;
    vf v = load_lanes(g->x + j, all, m);
    if (columns && g->scale) scale = load_lanes(g->scale + j, all, m);
    if (columns && g->shift) shift = load_lanes(g->shift + j, all, m);
    if (columns && kind == FO_PRELU) slope = load_lanes(g->act.slopes + j, all, m);
    if (g->factor) v = v_mul(v, load_lanes(g->factor + j, all, m));
    if (g->scale)
        v = v_fma(v, scale, shift);
    else if (g->shift)
        v = v_add(v, shift);
    const finish_args f = {.p0 = g->act.p0, .p1 = g->act.p1};
    finish_vector(kind, all, &f, v, g->residual ? g->residual + j : NULL, g->y + j, (int)(g->n - j), m, slope);
}

INLINE void pointwise_rows(const fo_act_kind kind, const fo_pointwise_args *args) {
    fo_pointwise_args g = *args; /* in registers: a store through y could change what args points to */
    const bool rows = g.channel_rows > 0;
    const vm everything = v_range(0, VL);
    for (ptrdiff_t i = 0; i < g.m; i++) {
        const ptrdiff_t c = rows ? i % g.channel_rows : 0;
        const vf scale = v_set1(rows && g.scale ? g.scale[c] : 1), shift = v_set1(rows && g.shift ? g.shift[c] : 0);
        const vf slope = v_set1(rows && kind == FO_PRELU ? g.act.slopes[c] : 0);
        ptrdiff_t j = 0;
        for (; j + VL <= g.n; j += VL) pointwise_vector(kind, &g, j, true, everything, scale, shift, slope);
        if (j < g.n) pointwise_vector(kind, &g, j, false, v_range(0, g.n - j), scale, shift, slope);
        g.x += g.ldx;
        g.y += g.ldy;
        if (g.factor) g.factor += g.ldf;
        if (g.residual) g.residual += g.ldr;
    }
}

void FO_NAME(fo_pointwise)(const fo_pointwise_args *g) { WITH_ACTIVATION(g->act.kind, pointwise_rows(KIND, g)); }
