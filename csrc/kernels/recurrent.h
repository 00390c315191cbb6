/* One step of a recurrent layer: s = start + x w_x + h w_h on register tiles, then the gate functions and the new state.
 *
 *   columns of w:   unit block 0          unit block 1                 Gates are interleaved by blocks of VL units, so that a tile
 *                   gate 0 gate 1 ...     gate 0 gate 1 ...            ends with every gate of its units.
 *                   VL     VL             VL     VL
 *
 * w_x stands in GEMM panels: the GEMM makes the x part of many steps at once, as `start` of each. w_h stands in groups of eight (of
 * three gates six) vectors, a group's rows one after another: the one stream that a step reads.
 *
 * A sum starts at its bias (or at what the GEMM stored) and runs over x, then over h, in order: a step has the same bits alone,
 * in a batch and in a sequence. sigmoid and tanh: math.h; formulas: fusedops.h.
 */

enum { GATE_VECTORS = 4 }; /* a unit block's part of a row of finished sums: i f g o, or r z nx nh */
enum { STEP_TILE = MR * NV * 4 / 3 * VL }; /* three gates' sums leave a tile as four */

INLINE vf held(const fo_step_args *g, vf x) { return v_clamp(x, -g->clip, g->clip); }

/* h' = activation(s) */
INLINE void rnn_unit(const fo_step_args *g, const fo_act_kind kind, const float *s, ptrdiff_t i, ptrdiff_t u, vm m) {
    vf h = v_act(kind, held(g, v_load(s)), g->act.p0, g->act.p1, v_zero());
    v_store_mask(g->h_out + i * g->ldho + u, h, m);
    if (g->y) v_store_mask(g->y + i * g->ldy + u, h, m);
}

/* c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c'); a peephole adds its share of c to i and f, of c' to o. */
INLINE void lstm_unit(const fo_step_args *g, const float *s, ptrdiff_t i, ptrdiff_t u, vm m) {
    vf c = v_load_mask(g->c + i * g->ldc + u, m);
    vf si = v_load(s), sf = v_load(s + VL), sg = v_load(s + 2 * VL), so = v_load(s + 3 * VL);
    const float *peephole = g->peephole;
    if (peephole) {
        si = v_fma(v_load_mask(peephole + u, m), c, si);
        sf = v_fma(v_load_mask(peephole + g->hidden + u, m), c, sf);
    }
    vf in = v_mul(v_sigmoid(held(g, si)), v_tanh(held(g, sg)));
    c = v_fma(v_sigmoid(held(g, sf)), c, in);
    if (peephole) so = v_fma(v_load_mask(peephole + 2 * g->hidden + u, m), c, so);
    vf h = v_mul(v_sigmoid(held(g, so)), v_tanh(c));
    v_store_mask(g->c_out + i * g->ldco + u, c, m);
    v_store_mask(g->h_out + i * g->ldho + u, h, m);
    if (g->y) v_store_mask(g->y + i * g->ldy + u, h, m);
}

/* n = tanh(nx + sigmoid(r) nh), h' = n + sigmoid(z) (h - n) */
INLINE void gru_unit(const fo_step_args *g, const float *s, ptrdiff_t i, ptrdiff_t u, vm m) {
    vf r = v_sigmoid(held(g, v_load(s))), z = v_sigmoid(held(g, v_load(s + VL)));
    vf n = v_tanh(held(g, v_fma(r, v_load(s + 3 * VL), v_load(s + 2 * VL))));
    vf h = v_fma(z, v_sub(v_load_mask(g->h + i * g->ldh + u, m), n), n);
    v_store_mask(g->h_out + i * g->ldho + u, h, m);
    if (g->y) v_store_mask(g->y + i * g->ldy + u, h, m);
}

/* The gates that a GRU which resets before the product needs first: c_out = sigmoid(z), h_out = sigmoid(r) h */
INLINE void gru_reset_unit(const fo_step_args *g, const float *s, ptrdiff_t i, ptrdiff_t u, vm m) {
    vf r = v_sigmoid(held(g, v_load(s))), z = v_sigmoid(held(g, v_load(s + VL)));
    v_store_mask(g->c_out + i * g->ldco + u, z, m);
    v_store_mask(g->h_out + i * g->ldho + u, v_mul(r, v_load_mask(g->h + i * g->ldh + u, m)), m);
}

/* ... and its second half: n = tanh(s), h' = n + z (h - n), with h in `old` and z in c */
INLINE void gru_new_unit(const fo_step_args *g, const float *s, ptrdiff_t i, ptrdiff_t u, vm m) {
    vf n = v_tanh(held(g, v_load(s)));
    vf h = v_fma(v_load_mask(g->c + i * g->ldc + u, m), v_sub(v_load_mask(g->old + i * g->ldold + u, m), n), n);
    v_store_mask(g->h_out + i * g->ldho + u, h, m);
    if (g->y) v_store_mask(g->y + i * g->ldy + u, h, m);
}

/* The sums of a tile: mr rows from i0 on, `blocks` unit blocks from b on. */
typedef struct {
    const float *sums;
    int mr, blocks;
    ptrdiff_t i0, b;
} step_sums;

/* kind and act are literals at every call. */
INLINE void finish_units(const fo_step_args *g, const fo_stage_kind kind, const fo_act_kind act, const step_sums *t) {
    const int vectors = g->gates == 3 ? GATE_VECTORS : g->gates;
    const float *s = t->sums;
    for (ptrdiff_t i = t->i0; i < t->i0 + t->mr; i++)
        for (ptrdiff_t b = t->b; b < t->b + t->blocks; b++, s += vectors * VL) {
            const ptrdiff_t u = b * VL;
            const vm m = v_range(0, g->hidden - u);
            switch (kind) {
                case FO_STEP_RNN: rnn_unit(g, act, s, i, u, m); break;
                case FO_STEP_LSTM: lstm_unit(g, s, i, u, m); break;
                case FO_STEP_GRU: gru_unit(g, s, i, u, m); break;
                case FO_STEP_GRU_RESET: gru_reset_unit(g, s, i, u, m); break;
                case FO_STEP_GRU_NEW: gru_new_unit(g, s, i, u, m); break;
            }
        }
}

/* The epilogue of a tile. */
static __attribute__((noinline)) void finish_step(const fo_step_args *g, const step_sums *t) {
    switch (g->kind) {
        case FO_STEP_RNN: WITH_ACTIVATION(g->act.kind, finish_units(g, FO_STEP_RNN, KIND, t)); break;
        case FO_STEP_LSTM: finish_units(g, FO_STEP_LSTM, FO_IDENTITY, t); break;
        case FO_STEP_GRU: finish_units(g, FO_STEP_GRU, FO_IDENTITY, t); break;
        case FO_STEP_GRU_RESET: finish_units(g, FO_STEP_GRU_RESET, FO_IDENTITY, t); break;
        case FO_STEP_GRU_NEW: finish_units(g, FO_STEP_GRU_NEW, FO_IDENTITY, t); break;
    }
}

/* acc[mr][nv] += a w over k steps; vector j of w's row p stands at w[p*row + j/NV*panel + j%NV*VL]. mr, nv and ahead are literals.
 * A single row is bound by reading w, which the processor fetches ahead too late from one wide stream: ahead asks for it. */
INLINE void step_product(vf *acc, const int mr, const int nv, const bool ahead, const float *restrict a, ptrdiff_t lda, ptrdiff_t k,
                         const float *restrict w, ptrdiff_t row, ptrdiff_t panel) {
    for (ptrdiff_t p = 0; p < k; p++, w += row) {
        vf av[MR];
        UNROLL for (int i = 0; i < mr; i++) av[i] = v_set1(a[i * lda + p]);
        UNROLL for (int j = 0; j < nv; j++) {
            const float *at = w + j / NV * panel + j % NV * VL;
            if (ahead) __builtin_prefetch(at + 8 * row);
            vf wv = v_load(at);
            UNROLL for (int i = 0; i < mr; i++) acc[i * nv + j] = v_fma(av[i], wv, acc[i * nv + j]);
        }
    }
}

/* One tile: mr rows, nv vectors of columns from vector v0 on. three: the gates are r z n, and n's share of x and of h are kept apart. */
INLINE void step_tile(const fo_step_args *g, const int mr, const int nv, const bool three, ptrdiff_t i0, ptrdiff_t v0) {
    const int width = three ? nv / 3 * GATE_VECTORS : nv, group = three ? 6 : 8;
    float tile[STEP_TILE] __attribute__((aligned(64)));
    vf acc[MR * NV];

    UNROLL for (int i = 0; i < mr; i++)
        UNROLL for (int j = 0; j < nv; j++) acc[i * nv + j] = v_load(g->start + (i0 + i) * g->lds + (v0 + j) * VL);
    step_product(acc, mr, nv, false, g->x + i0 * g->ldx, g->ldx, g->kx, g->wx + v0 / NV * NR * g->kx, NR, NR * g->kx);
    if (three)
        UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 2; j < nv; j += 3) {
            v_store(tile + (i * width + j / 3 * GATE_VECTORS + 2) * VL, acc[i * nv + j]);
            acc[i * nv + j] = v_load(g->bias_n + (v0 / 3 + j / 3) * VL);
        }
    step_product(acc, mr, nv, mr == 1, g->h + i0 * g->ldh, g->ldh, g->kh, g->wh + (v0 / group * g->kh * group + v0 % group) * VL, group * VL, NR);
    UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 0; j < nv; j++) {
        int at = !three ? j : j / 3 * GATE_VECTORS + (j % 3 == 2 ? 3 : j % 3);
        v_store(tile + (i * width + at) * VL, acc[i * nv + j]);
    }
    finish_step(g, &(step_sums){tile, mr, nv / g->gates, i0, v0 / g->gates});
}

#define ROWS_CASE(rows) \
    case rows: \
        if (rows <= MR && rows * nv <= MR * NV) step_tile(g, rows <= MR ? rows : 1, nv, three, i, v); \
        break;

/* All rows of nv vectors from v on, in tiles of nearly equal height. */
INLINE void step_columns(const fo_step_args *g, const int nv, const bool three, ptrdiff_t v) {
    const int most = MR * NV / nv;
    const ptrdiff_t tiles = (g->m + most - 1) / most;
    for (ptrdiff_t t = 0, i = 0; t < tiles; t++) {
        int mr = (int)((g->m - i + tiles - t - 1) / (tiles - t));
        switch (mr) {
            ROWS_CASE(1) ROWS_CASE(2) ROWS_CASE(3) ROWS_CASE(4) ROWS_CASE(5) ROWS_CASE(6)
            ROWS_CASE(7) ROWS_CASE(8) ROWS_CASE(9) ROWS_CASE(10) ROWS_CASE(11) ROWS_CASE(12)
        }
        i += mr;
    }
}
#undef ROWS_CASE

#define COLUMNS(nv, three) \
    static __attribute__((noinline)) void step_##nv##three(const fo_step_args *g, ptrdiff_t v) { step_columns(g, nv, three, v); }
COLUMNS(2, false) COLUMNS(4, false) COLUMNS(6, true) COLUMNS(8, false)
#undef COLUMNS

/* Wide tiles where there is one row, so that enough independent sums hide the multiply-add's latency. */
static void FO_NAME(fo_step)(const fo_step_args *g) {
    const ptrdiff_t to = g->to * g->gates;
    for (ptrdiff_t v = g->from * g->gates; v < to;) {
        if (g->gates == 3) {
            step_6true(g, v);
            v += 6;
        } else if (g->m * 8 <= MR * NV && v % 8 == 0 && to - v >= 8) {
            step_8false(g, v);
            v += 8;
        } else if (g->gates == 4 || (g->m * 4 <= MR * NV && v % 4 == 0 && to - v >= 4)) {
            step_4false(g, v);
            v += 4;
        } else {
            step_2false(g, v);
            v += 2;
        }
    }
}
