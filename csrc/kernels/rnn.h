/* One step of a recurrent layer: s = start + x w_x + h w_h in register tiles, then the gates and the new state.
 *
 *   columns of w:   unit block 0          unit block 1         Gates are interleaved by blocks of VL units, so that a
 *                   gate 0 gate 1 ...     gate 0 gate 1 ...    tile ends with every gate of its units.
 *                   VL     VL             VL     VL
 *
 * w_x stands in GEMM panels: the GEMM makes the x part of many steps at once, as `start` of each. w_h stands in groups
 * of GROUP (of three gates GROUP_OF_3) vectors, a group's rows one after another. A step of one row reads it as one
 * stream or as four, equally fast; what tiles share of it must be whole lines of the first-level cache.
 *
 * A sum starts at its bias (or at what the GEMM stored) and runs over x, then over h, in order: a step has the same
 * bits alone, in a batch and in a sequence. sigmoid and tanh: math.h; formulas: fusedops.h.
 */

enum { GATE_VECTORS = 4 }; /* a unit block's part of a row of finished sums: i f g o, or r z nx nh */

/* What the units of a call have in common: in registers, for the compiler must take any store for one to *g. usual, a
 * literal, is that of g. */
typedef struct {
    fo_step_args g;
    bool usual;
    vf clip, sigmoid, tanh; /* bounds of an activation's argument, of a sigmoid's and of a tanh's */
    vf cell_clip;
} unit_args;

/* An activation that is no literal, by way of memory. */
INLINE vf any_function(const fo_activation *act, vf x) {
    float lanes[VL];
    v_store(lanes, x);
    FO_NAME(fo_finish_tile)(
        &(finish_args){.tile = lanes, .mr = 1, .n = VL, .ldt = VL, .c = lanes, .ldc = VL, .p0 = act->p0, .p1 = act->p1},
        act->kind, false);
    return v_load(lanes);
}

INLINE vf clipped(const unit_args *a, vf x) { return v_min(a->clip, v_max(v_sub(v_zero(), a->clip), x)); }
INLINE vf one_plus_exp(const unit_args *a, vf x) { return v_one_plus_exp(x, a->sigmoid); }
INLINE vf tanh_over(const unit_args *a, vf den, vf x) { return v_tanh_over(den, x, a->tanh); }

/* What is a sigmoid of all gates but g and n, and a tanh of these. */
INLINE vf gate_of(const unit_args *a, vf x) {
    return a->usual ? v_div(v_set1(1), one_plus_exp(a, x)) : any_function(&a->g.gate, clipped(a, x));
}
INLINE vf new_of(const unit_args *a, vf x) {
    return a->usual ? tanh_over(a, v_set1(1), x) : any_function(&a->g.act, clipped(a, x));
}

INLINE void store_h(const fo_step_args *g, ptrdiff_t i, ptrdiff_t u, vf h, vm m) {
    v_store_mask(g->h_out + i * g->ldho + u, h, m);
    if (g->y) v_store_mask(g->y + i * g->ldy + u, h, m);
}

/* h' = activation(s) */
INLINE void rnn_unit(const unit_args *a, const fo_act_kind kind, const float *s, ptrdiff_t i, ptrdiff_t u, vm m) {
    store_h(&a->g, i, u, v_act(kind, clipped(a, v_load(s)), a->g.act.p0, a->g.act.p1, v_zero()), m);
}

/* c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c'); a peephole adds its share of c to i and f, of c' to
 * o. A product of sigmoid and tanh takes one division. The first pass makes c' and leaves 1 / sigmoid(o) in s, of other
 * functions that of o. */
INLINE void lstm_state(const unit_args *a, float *s, ptrdiff_t i, ptrdiff_t u, vm m) {
    const fo_step_args *g = &a->g;
    const float *peephole = g->peephole;
    vf c = v_load_mask(g->c + i * g->ldc + u, m);
    vf si = v_load(s), sf = v_load(s + VL), sg = v_load(s + 2 * VL), so = v_load(s + 3 * VL);
    if (peephole) {
        si = v_fma(v_load_mask(peephole + u, m), c, si);
        sf = v_fma(v_load_mask(peephole + g->hidden + u, m), c, sf);
    }
    const vf added = a->usual ? tanh_over(a, one_plus_exp(a, si), sg) : v_mul(gate_of(a, si), new_of(a, sg));
    c = v_fma(gate_of(a, sf), c, added);
    c = v_min(a->cell_clip, v_max(v_sub(v_zero(), a->cell_clip), c));
    if (peephole) so = v_fma(v_load_mask(peephole + 2 * g->hidden + u, m), c, so);
    v_store_mask(g->c_out + i * g->ldco + u, c, m);
    v_store(s, a->usual ? one_plus_exp(a, so) : gate_of(a, so));
}

INLINE void lstm_output(const unit_args *a, const float *s, ptrdiff_t i, ptrdiff_t u, vm m) {
    const vf c = v_load_mask(a->g.c_out + i * a->g.ldco + u, m), o = v_load(s);
    store_h(&a->g, i, u, a->usual ? v_tanh_over(o, c, v_set1(9.02f)) : v_mul(o, any_function(&a->g.out, c)), m);
}

/* n = tanh(nx + sigmoid(r) nh), h' = n + sigmoid(z) (h - n). The first pass leaves sigmoid(z) and n's argument in s. */
INLINE void gru_gates(const unit_args *a, float *s) {
    v_store(s + 2 * VL, v_fma(gate_of(a, v_load(s)), v_load(s + 3 * VL), v_load(s + 2 * VL)));
    v_store(s + VL, gate_of(a, v_load(s + VL)));
}

INLINE void gru_output(const unit_args *a, const float *s, ptrdiff_t i, ptrdiff_t u, vm m) {
    vf n = new_of(a, v_load(s + 2 * VL)), h = v_load_mask(a->g.h + i * a->g.ldh + u, m);
    store_h(&a->g, i, u, v_fma(v_load(s + VL), v_sub(h, n), n), m);
}

/* The gates that a GRU which resets before the product needs first: c_out = sigmoid(z), h_out = sigmoid(r) h */
INLINE void gru_reset_unit(const unit_args *a, const float *s, ptrdiff_t i, ptrdiff_t u, vm m) {
    const fo_step_args *g = &a->g;
    v_store_mask(g->c_out + i * g->ldco + u, gate_of(a, v_load(s + VL)), m);
    v_store_mask(g->h_out + i * g->ldho + u, v_mul(gate_of(a, v_load(s)), v_load_mask(g->h + i * g->ldh + u, m)), m);
}

/* ... and its second half: n = tanh(s), h' = n + z (h - n), with h in `old` and z in c */
INLINE void gru_new_unit(const unit_args *a, const float *s, ptrdiff_t i, ptrdiff_t u, vm m) {
    const fo_step_args *g = &a->g;
    vf n = new_of(a, v_load(s)), h = v_load_mask(g->old + i * g->ldold + u, m);
    store_h(g, i, u, v_fma(v_load_mask(g->c + i * g->ldc + u, m), v_sub(h, n), n), m);
}

/* Finished sums of `rows` rows from i0 on, `blocks` unit blocks from b on. */
typedef struct {
    float *sums;
    ptrdiff_t rows, i0, b;
    int blocks;
} step_sums;

/* Two passes where a unit has two functions in a row: the processor overlaps units, but sees only so many instructions
 * ahead. kind, act and pass are literals at every call. */
INLINE void finish_pass(const unit_args *a, const fo_stage_kind kind, const fo_act_kind act, const int pass,
                        const step_sums *t) {
    const ptrdiff_t width = (a->g.gates == 3 ? GATE_VECTORS : a->g.gates) * VL, ld = t->blocks * width;
    const ptrdiff_t end = t->i0 + t->rows;
    for (int b = 0; b < t->blocks; b++) {
        const ptrdiff_t u = (t->b + b) * VL;
        const vm m = v_range(0, a->g.hidden - u);
        float *s = t->sums + b * width;
        for (ptrdiff_t i = t->i0; i < end; i++, s += ld) switch (kind) {
                case FO_STEP_RNN: rnn_unit(a, act, s, i, u, m); break;
                case FO_STEP_LSTM: pass == 0 ? lstm_state(a, s, i, u, m) : lstm_output(a, s, i, u, m); break;
                case FO_STEP_GRU: pass == 0 ? gru_gates(a, s) : gru_output(a, s, i, u, m); break;
                case FO_STEP_GRU_RESET: gru_reset_unit(a, s, i, u, m); break;
                case FO_STEP_GRU_NEW: gru_new_unit(a, s, i, u, m); break;
            }
    }
}

INLINE void finish_units(const fo_step_args *g, const fo_stage_kind kind, const fo_act_kind act, const bool usual,
                         const step_sums *t) {
    const unit_args a = {*g,
                         usual,
                         v_set1(g->clip),
                         v_min(v_set1(g->clip), v_set1(88)),
                         v_min(v_set1(g->clip), v_set1(9.02f)),
                         v_set1(g->cell_clip)};
    finish_pass(&a, kind, act, 0, t);
    if (kind == FO_STEP_LSTM || kind == FO_STEP_GRU) finish_pass(&a, kind, act, 1, t);
}

INLINE void finish_gates(const fo_step_args *g, const bool usual, const step_sums *t) {
    switch (g->kind) {
        case FO_STEP_RNN: break;
        case FO_STEP_LSTM: finish_units(g, FO_STEP_LSTM, FO_IDENTITY, usual, t); break;
        case FO_STEP_GRU: finish_units(g, FO_STEP_GRU, FO_IDENTITY, usual, t); break;
        case FO_STEP_GRU_RESET: finish_units(g, FO_STEP_GRU_RESET, FO_IDENTITY, usual, t); break;
        case FO_STEP_GRU_NEW: finish_units(g, FO_STEP_GRU_NEW, FO_IDENTITY, usual, t); break;
    }
}

static __attribute__((noinline)) void finish_step(const fo_step_args *g, const step_sums *t) {
    if (g->kind == FO_STEP_RNN) {
        WITH_ACTIVATION(g->act.kind, finish_units(g, FO_STEP_RNN, KIND, false, t));
    } else if (g->usual) {
        finish_gates(g, true, t);
    } else {
        FO_RAN("rnn other gates");
        finish_gates(g, false, t);
    }
}

/* Weights, `at` elements after w. */
INLINE const void *step_at(const fo_dtype type, const void *w, const ptrdiff_t at) {
    return fo_size(type) == 2 ? (const void *)((const uint16_t *)w + at) : (const float *)w + at;
}

/* Where a product finds its weights: vector first + j of row p is at w[p*group*VL + j/group*panel + j%group*VL].
 * All but w and panel are literals. */
typedef struct {
    fo_dtype type;
    const void *w;
    int first, group;
    ptrdiff_t panel;
} step_weights;

/* Vector j of row p. */
INLINE const void *step_vector(const step_weights b, const ptrdiff_t p, const int j) {
    const int v = b.first + j;
    return step_at(b.type, b.w, p * b.group * VL + v / b.group * b.panel + v % b.group * VL);
}

/* acc[mr][nv] += a w over `steps` steps in straight code, as step_product, for tiles of several rows. */
INLINE void step_group(vf *acc, const int mr, const int nv, const int steps, const float *restrict a, ptrdiff_t lda,
                       const step_weights b) {
    UNROLL_FOR (int u = 0; u < steps; u++) {
        vf wv[NV + 1];
        UNROLL_FOR (int j = 0; j < nv; j++) wv[j] = v_load_as(b.type, step_vector(b, u, j), 0);
        UNROLL_FOR (int i = 0; i < mr; i++) {
            vf av = v_set1(a[i * lda + u]);
            UNROLL_FOR (int j = 0; j < nv; j++) v_fma_to(acc[i * nv + j], av, wv[j]);
        }
        v_barrier(); /* or loads of the next steps come first, and sums are spilled */
    }
}

/* acc[mr][nv] += a w over k steps. mr, nv and ahead are literals. The processor fetches panels ahead by itself, but one
 * wide stream too late, and 16 bits: ahead asks for it. steps: in straight code, for with 12 multiply-adds counts what
 * a loop adds; of tiles three vectors wide the compiler makes a worse loop by it. */
INLINE void step_product(vf *acc, const int mr, const int nv, const bool ahead, const float *restrict a, ptrdiff_t lda,
                         ptrdiff_t k, step_weights b, const int steps) {
    const int row = b.group * VL;
    if (!MANY_REGS && nv < mr) {
        ptrdiff_t p = 0;
        for (; steps > 1 && p + steps <= k; p += steps, b.w = step_at(b.type, b.w, steps * row))
            step_group(acc, mr, nv, steps, a + p, lda, b);
        _Pragma("GCC unroll 1") for (; p < k; p++, b.w = step_at(b.type, b.w, row))
            step_group(acc, mr, nv, 1, a + p, lda, b);
        return;
    }
    for (ptrdiff_t p = 0; p < k; p++, b.w = step_at(b.type, b.w, row)) {
        vf av[MR];
        UNROLL_FOR (int i = 0; i < mr; i++) av[i] = v_set1(a[i * lda + p]);
        UNROLL_FOR (int j = 0; j < nv; j++) {
            const void *at = step_vector(b, 0, j);
            if (fo_size(b.type) == 2 && j % 2 == 0) __builtin_prefetch((const float *)at + FO_PAGE_FLOATS);
            if (ahead && fo_size(b.type) != 2) __builtin_prefetch((const float *)at + 8 * row);
            vf wv = v_load_as(b.type, at, 0);
            UNROLL_FOR (int i = 0; i < mr; i++) acc[i * nv + j] = v_fma(av[i], wv, acc[i * nv + j]);
        }
    }
}

/* Where vector j of a row waits among its sums. */
INLINE int sum_at(const bool three, int j) { return !three ? j : j / 3 * GATE_VECTORS + (j % 3 == 2 ? 3 : j % 3); }

/* What the tiles of a call have in common: vectors first .. first+nv-1 of columns that begin at v. All but v and width,
 * the vectors of a row of sums, are literals. three: the gates are r z n, and n's share of x and of h are kept
 * apart. */
typedef struct {
    fo_dtype type;
    int nv, first;
    bool three;
    ptrdiff_t width, v;
} step_tile_shape;

/* Steps p .. p+k-1 of h's part of a tile of mr rows; the first ones begin with start and x. */
INLINE void step_tile(const fo_step_args *g, const int mr, const step_tile_shape s, ptrdiff_t i0, ptrdiff_t p,
                      ptrdiff_t k, float *sums) {
    const int nv = s.nv, first = s.first, group = s.three ? GROUP_OF_3 : GROUP;
    const ptrdiff_t v = s.v + first, width = s.width, panel = NR * g->kx;
    const step_weights wx = {s.type, step_at(s.type, g->wx, s.v / NV * panel + first / NV * panel), first % NV, NV,
                             panel};
    const step_weights wh = {s.type, step_at(s.type, g->wh, ((v / group * g->kh + p) * group + v % group) * VL), 0,
                             group, group * VL * g->kh};
    vf acc[MR * NV];
    UNROLL_FOR (int i = 0; i < mr; i++)
        UNROLL_FOR (int j = 0; j < nv; j++) {
            const float *start = g->start + (i0 + i) * g->lds + (v + j) * VL;
            acc[i * nv + j] = v_load(p ? sums + (i * width + sum_at(s.three, first + j)) * VL : start);
        }
    if (!p) {
        step_product(acc, mr, nv, false, g->x + i0 * g->ldx, g->ldx, g->kx, wx, 1);
        if (s.three)
            UNROLL_FOR (int i = 0; i < mr; i++)
                UNROLL_FOR (int j = 2; j < nv; j += 3) {
                    v_store(sums + (i * width + sum_at(true, first + j) - 1) * VL, acc[i * nv + j]);
                    acc[i * nv + j] = v_load(g->bias_n + ((v + j) / 3) * VL);
                }
    }
    step_product(acc, mr, nv, MANY_REGS, g->h + i0 * g->ldh + p, g->ldh, k, wh, nv == 2 ? 4 : 1);
    UNROLL_FOR (int i = 0; i < mr; i++)
        UNROLL_FOR (int j = 0; j < nv; j++)
            v_store(sums + (i * width + sum_at(s.three, first + j)) * VL, acc[i * nv + j]);
}

#define ROWS_CASE(rows) \
    case rows: \
        if (rows <= MR && rows * s.nv <= MR * NV) \
            step_tile(g, rows <= MR ? rows : 1, s, i0 + i, p, k, sums + i * s.width * VL); \
        break;

/* Steps p .. p+k-1 of all tiles of some rows; they are nearly equal in height. */
INLINE void step_tiles(const fo_step_args *g, const step_tile_shape s, ptrdiff_t i0, ptrdiff_t rows, ptrdiff_t p,
                       ptrdiff_t k, float *sums) {
    const int most = MR * NV / s.nv;
    const ptrdiff_t tiles = (rows + most - 1) / most;
    for (ptrdiff_t t = 0, i = 0; t < tiles; t++) {
        const int mr = (int)((rows - i + tiles - t - 1) / (tiles - t));
        switch (mr) {
            ROWS_CASE(1)
            ROWS_CASE(2)
            ROWS_CASE(3)
            ROWS_CASE(4)
            ROWS_CASE(5)
            ROWS_CASE(6)
            ROWS_CASE(7)
            ROWS_CASE(8)
            ROWS_CASE(9)
            ROWS_CASE(10)
            ROWS_CASE(11)
            ROWS_CASE(12)
        }
        i += mr;
    }
}
#undef ROWS_CASE

/* All rows of `columns` vectors from v on, in tiles of nv. Tiles that share a part of w go through it in blocks which
 * stay in the first-level cache. */
INLINE void step_columns(const fo_step_args *g, const fo_dtype type, const int nv, const bool three, ptrdiff_t v,
                         ptrdiff_t columns) {
    const int period = three ? 6 : nv;
    const ptrdiff_t width = three ? columns / 3 * GATE_VECTORS : columns, fit = FO_STEP_SUMS_FLOATS / width / VL;
    float sums[FO_STEP_SUMS_FLOATS] __attribute__((aligned(64)));
    for (ptrdiff_t i = 0, rows; i < g->m; i += rows) {
        rows = g->m - i < fit ? g->m - i : fit;
        const ptrdiff_t block = rows * nv <= MR * NV ? g->kh : FO_STEP_BLOCK_FLOATS / nv / VL;
        for (ptrdiff_t c = 0; c < columns; c += period) {
            const ptrdiff_t at = g->backwards && nv > NV + 1 ? columns - period - c : c;
            float *to = sums + (three ? at / 3 * GATE_VECTORS : at) * VL;
            UNROLL_FOR (int first = 0; first < period; first += nv) {
                ptrdiff_t p = 0, k;
                do {
                    k = g->kh - p < block ? g->kh - p : block;
                    step_tiles(g, (step_tile_shape){type, nv, first, three, width, v + at}, i, rows, p, k, to);
                } while ((p += k) < g->kh);
            }
        }
        finish_step(g, &(step_sums){sums, rows, i, v / g->gates, columns / g->gates});
    }
}

#define COLUMNS_OF(type, nv, three) \
    static __attribute__((noinline)) void step_##type##_##nv(const fo_step_args *g, ptrdiff_t v, ptrdiff_t columns) { \
        FO_RAN("rnn step_" #type "_" #nv " vectors"); \
        step_columns(g, FO_##type, nv, three, v, !MANY_REGS ? columns : nv); \
    }
#define COLUMNS(nv, three) \
    COLUMNS_OF(F32, nv, three) \
    COLUMNS_OF(F16, nv, three) \
    static inline void step_##nv(const fo_step_args *g, ptrdiff_t v, ptrdiff_t columns) { \
        g->w_type == FO_F16 ? step_F16_##nv(g, v, columns) : step_F32_##nv(g, v, columns); \
    }
COLUMNS(2, false)
COLUMNS(3, true)
COLUMNS(4, false)
COLUMNS(6, true)
COLUMNS(8, false)
#undef COLUMNS
#undef COLUMNS_OF

/* Vectors v .. end-1 of columns. Wide tiles where there are few rows, so that enough independent sums hide the
 * multiply-add's latency. */
INLINE void step_part(const fo_step_args *g, ptrdiff_t v, ptrdiff_t end) {
    for (ptrdiff_t columns; v < end; v += columns) {
        const ptrdiff_t left = end - v, limit = MR * NV;
        if (g->gates == 3) {
            columns = !MANY_REGS ? left : 6;
            !MANY_REGS && g->m * 6 > limit ? step_3(g, v, columns) : step_6(g, v, columns);
        } else if (g->m * 8 <= limit && (!MANY_REGS || v % 8 == 0) && left >= 8) {
            columns = !MANY_REGS ? left / 8 * 8 : 8;
            step_8(g, v, columns);
        } else if (!MANY_REGS ? g->m * 4 <= limit && left >= 4
                              : g->gates == 4 || (g->m * 4 <= limit && v % 4 == 0 && left >= 4)) {
            columns = !MANY_REGS ? left / 4 * 4 : 4;
            step_4(g, v, columns);
        } else {
            columns = !MANY_REGS ? left : 2;
            step_2(g, v, columns);
        }
    }
}

/* Vectors of columns that are finished together: of few rows so many that their units overlap, of many so few that the
 * sums of all fit. */
INLINE ptrdiff_t step_width(const fo_step_args *g) {
    const ptrdiff_t pair = g->gates == 3 ? 6 : 8;
    if (MANY_REGS) return pair;
    return g->m <= 8 ? 8 / g->m * pair : g->gates == 3 || g->m <= 32 ? pair : 4;
}

/* Sums of a unit block: those of x and of h together, but of three gates n's two shares. */
INLINE void step_add(const bool three, const int gates, const float *x, const float *h, float *sums) {
    for (int j = 0; j < gates; j++) {
        const vf vx = v_load(x + j * VL), vh = v_load(h + j * VL);
        if (three && j == 2) {
            v_store(sums + 2 * VL, vx);
            v_store(sums + 3 * VL, vh);
        } else {
            v_store(sums + j * VL, v_add(vx, vh));
        }
    }
}

/* The gates of sums that were made before. */
INLINE void step_of_sums(const fo_step_args *g) {
    FO_RAN("rnn sums");
    const bool three = g->gates == 3;
    const ptrdiff_t width = (three ? GATE_VECTORS : g->gates) * VL, all = g->to - g->from;
    const ptrdiff_t fit = FO_STEP_SUMS_FLOATS / width, most = g->m < fit ? g->m : fit;
    float sums[FO_STEP_SUMS_FLOATS] __attribute__((aligned(64)));
    for (ptrdiff_t b = 0, blocks; b < all; b += blocks) {
        blocks = all - b < fit / most ? all - b : fit / most;
        for (ptrdiff_t i = 0, rows; i < g->m; i += rows) {
            rows = g->m - i < most ? g->m - i : most;
            for (ptrdiff_t r = 0; r < rows * blocks; r++) {
                const ptrdiff_t row = i + r / blocks, j = (b + r % blocks) * g->gates * VL;
                step_add(three, g->gates, g->start + row * g->lds + j, g->of_h + row * g->ldoh + j, sums + r * width);
            }
            finish_step(g, &(step_sums){sums, rows, i, g->from + b, (int)blocks});
        }
    }
}

void FO_NAME(fo_step)(const fo_step_args *g) {
    if (g->of_h) {
        step_of_sums(g);
        return;
    }
    const ptrdiff_t first = g->from * g->gates, last = g->to * g->gates, part = step_width(g);
    const ptrdiff_t parts = (last - first + part - 1) / part;
    for (ptrdiff_t i = 0; i < parts; i++) {
        const ptrdiff_t v = first + (g->backwards ? parts - 1 - i : i) * part;
        step_part(g, v, v + part < last ? v + part : last);
    }
}
