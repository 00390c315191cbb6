/* Passes over memory, a row at a time: what the fused kernels do in registers, and what stands between a network's layers. */

INLINE void pointwise_rows(const fo_act_kind kind, const fo_pointwise_args *g) {
    const bool rows = g->channel_rows > 0;
    for (ptrdiff_t i = 0; i < g->m; i++) {
        const ptrdiff_t c = rows ? i % g->channel_rows : 0;
        vf scale = v_set1(rows && g->scale ? g->scale[c] : 1), shift = v_set1(rows && g->shift ? g->shift[c] : 0);
        vf slope = v_set1(rows && kind == FO_PRELU ? g->act.slopes[c] : 0);
        for (ptrdiff_t j = 0; j < g->n; j += VL) {
            vm m = v_range(0, g->n - j);
            vf v = v_load_mask(g->x + i * g->ldx + j, m);
            if (!rows && g->scale) scale = v_load_mask(g->scale + j, m);
            if (!rows && g->shift) shift = v_load_mask(g->shift + j, m);
            if (!rows && kind == FO_PRELU) slope = v_load_mask(g->act.slopes + j, m);
            if (g->scale)
                v = v_fma(v, scale, shift);
            else if (g->shift)
                v = v_add(v, shift);
            if (g->residual) v = v_add(v, v_load_mask(g->residual + i * g->ldr + j, m));
            v_store_mask(g->y + i * g->ldy + j, v_act(kind, v, g->act.p0, g->act.p1, slope), m);
        }
    }
}

static void FO_NAME(fo_pointwise)(const fo_pointwise_args *g) { WITH_ACTIVATION(g->act.kind, pointwise_rows(KIND, g)); }
