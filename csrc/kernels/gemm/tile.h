/* clang-format off */
/* The register tile: mr rows and nv vectors of C = epilogue(A B).
 *
 *            nv * VL columns        Each step p of the reduction loads nv vectors of B, broadcasts mr elements of A and
 *           +--------------+        does mr * nv multiply-adds. A is read in place; B in panels of NR columns:
 *   k of A  |  panel of B  | k
 *  +------+ +--------------+          panel 0: b[0][0..NR) b[1][0..NR) ... b[k-1][0..NR)   panel 1: ...
 *  |      | |              |
 * mr rows | |  C in registers       Sums start at the bias and run over p in order, whatever the tile: a row has the
 *  +------+ +--------------+        bit-identical alone and in a batch. They may start at a tile of sums instead.
 *
 * A row may have half a vector more, acc[i][nv] for rows i and i + 1: 24 columns of AVX-512 take three quarters of the
 * multiply-adds.
 */
/* clang-format on */

#include "../../simd/lanes.h"

/* What a tile is: literals at every call. */
typedef struct {
    int mr, nv;
    bool half;
    fo_form form;  /* FO_ROWS, FO_A_TABLE, FO_B_TABLE, FO_BLOCKWISE, FO_UNPACKING */
    fo_dtype type; /* of B */
} tile_shape;

/* How its reduction goes: literals, too. */
typedef struct {
    int straight; /* steps in straight code */
    /* the distance of rows of A, in floats, and a step's elements are looked up from the first one's place; or 0 */
    int near;
} tile_loop;

/* Rows of A that a pointer reaches. A multiply-add reads memory itself where one register is the address. */
enum { REACH = FMA_FROM_MEM ? 2 : 1, POINTERS = (MR + REACH - 1) / REACH };

/* Whether the multiply-adds of row i read their element of A themselves: where a pointer is at it, and two loads a
 * cycle suffice. */
INLINE bool tile_reads(const tile_shape s, const int i) {
    return FMA_FROM_MEM && !s.half && i % REACH == 0 && s.nv + s.mr + (s.mr + 1) / 2 * (s.nv - 1) <= s.mr * s.nv + 1;
}

/* The multiply-adds of a step: a row of B, and the elements of A at `rows` + u. */
INLINE void tile_multiply(const tile_shape s, vf acc[MR][EP_VECTORS], const vf *bv, const float *const *rows,
                          const ptrdiff_t lda, const int near, const bool straight, const ptrdiff_t u) {
    vf before = v_zero();
    UNROLL_FOR (int i = 0; i < s.mr; i++) {
        const float *at = near ? rows[0] + i * near : rows[i / REACH] + i % REACH * lda + u;
        if (straight && tile_reads(s, i)) {
            UNROLL_FOR (int j = 0; j < s.nv; j++) v_fma_at(acc[i][j], at, bv[j]);
            continue;
        }
        const vf av = v_set1(*at);
        UNROLL_FOR (int j = 0; j < s.nv; j++) {
            if (straight)
                v_fma_to(acc[i][j], av, bv[j]);
            else
                acc[i][j] = v_fma(av, bv[j], acc[i][j]);
        }
        if (s.half && (i % 2 || i + 1 == s.mr)) {
            acc[i / 2 * 2][s.nv] = v_fma(v_halves(i % 2 ? before : av, av), bv[s.nv], acc[i / 2 * 2][s.nv]);
        }
        before = av;
    }
}

/* One step, whose row of B is in memory. The processor fetches panels of 16 bits too late: one row by 4096 x 4096 of
 * float16 took 0.59 (AVX2: 0.70) of float32's time, now 0.54. */
INLINE void tile_step(const tile_shape s, vf acc[MR][EP_VECTORS], const float *const *rows, const ptrdiff_t lda,
                      const int near, const bool straight, const ptrdiff_t u, const float *row, const ptrdiff_t panel) {
    const bool fetches = fo_size(s.type) == 2 && s.nv > NV;
    vf bv[EP_VECTORS];
    UNROLL_FOR (int j = 0; j < s.nv; j++) {
        if (fetches && j % NV == 0) __builtin_prefetch(row + j / NV * panel + FO_PAGE_FLOATS);
        bv[j] = v_load_as(s.type, row + j / NV * panel, j % NV * VL);
    }
    if (s.half) bv[s.nv] = v_load_halves(row + s.nv * VL, row + s.nv * VL);
    tile_multiply(s, acc, bv, rows, lda, near, straight, u);
    v_barrier(); /* or loads of the next steps come first, and sums are spilled */
}

/* Steps in straight code or in a loop that the compiler unrolls. Where multiply-adds read A, pointers move along its
 * rows, which takes the first; else the second leaves each sum in one register. */
enum { STRAIGHT = FMA_FROM_MEM ? 4 : 1, UNROLLED = FMA_FROM_MEM || IS_SCALAR ? 1 : 4 };

/* What a reduction has read. */
typedef struct {
    const float *rows[POINTERS], *b; /* A's rows; B or the next row of it */
    ptrdiff_t p, at;                 /* where rows point to in A: a step, or a table's last entry */
} tile_place;

/* Steps from `place` on to end, as many as are whole groups. */
INLINE void tile_reduce(const fo_gemm_args *g, const tile_shape s, const tile_loop l, vf acc[MR][EP_VECTORS],
                        tile_place *place, const ptrdiff_t end) {
    /* pointers to rows of A, else an index */
    const bool moves = l.straight > 1 && !l.near, by_table = s.form == FO_A_TABLE;
    const ptrdiff_t panel = g->panel, ldb = g->ldb, *table = g->table;
    const float *b = place->b;
    ptrdiff_t lda = g->lda, p = place->p;
    _Pragma("GCC unroll UNROLLED") for (; p + l.straight <= end; p += l.straight) {
        if (moves && by_table) {
            UNROLL_FOR (int i = 0; i < s.mr; i += REACH) place->rows[i / REACH] += table[p] - place->at;
            place->at = table[p];
        }
        UNROLL_FOR (int u = 0; u < l.straight; u++) {
            const float *row = s.form == FO_B_TABLE ? b + table[p + u] : b + u * ldb,
                        *first = l.near ? place->rows[0] + table[p + u] : NULL;
            if (l.near) v_launder(first);
            if (moves) v_launder(lda); /* or a register for each u has the sum */
            const ptrdiff_t step = (by_table ? table[p + u] : p + u) - (STRAIGHT > 1 && !l.near ? place->at : 0);
            tile_step(s, acc, l.near ? &first : place->rows, lda, l.near, l.straight > 1, moves ? u : step, row, panel);
        }
        if (s.form != FO_B_TABLE) b += l.straight * ldb;
        if (moves && !by_table)
            UNROLL_FOR (int i = 0; i < s.mr; i += REACH) {
                place->rows[i / REACH] += l.straight;
                v_launder(place->rows[i / REACH]); /* or all have one index */
            }
    }
    place->p = p, place->b = b;
    if (moves && !by_table) place->at = p;
}

/* What the hardware does not foresee, fetched meanwhile: `floats` from `next` on at every `steps` steps. */
typedef struct {
    const float *next;
    ptrdiff_t floats, steps;
} tile_ahead;

/* All steps. Those that a table scatters are looked up one by one, but where pixels are one or two floats apart. */
INLINE void tile_steps(const fo_gemm_args *g, const tile_shape s, vf acc[MR][EP_VECTORS], tile_place *place,
                       tile_ahead *ahead) {
    const ptrdiff_t k = g->k;
    const bool scattered = FMA_FROM_MEM && s.form == FO_A_TABLE && !g->run;
    const bool close = scattered && k > 1 && g->table[1] - g->table[0] < FO_PAGE_FLOATS;
    for (ptrdiff_t end; place->p < k;) {
        end = k - place->p > ahead->steps ? place->p + ahead->steps : k;
        for (const float *last = ahead->next + ahead->floats; ahead->next < last; ahead->next += LINE_FLOATS)
            __builtin_prefetch(ahead->next);
        if (!scattered)
            tile_reduce(g, s, (tile_loop){STRAIGHT, 0}, acc, place, end);
        else if (close && g->lda == 1)
            tile_reduce(g, s, (tile_loop){STRAIGHT, 1}, acc, place, end);
        else if (close && g->lda == 2)
            tile_reduce(g, s, (tile_loop){STRAIGHT, 2}, acc, place, end);
        if (scattered || (STRAIGHT > 1 && end == k)) tile_reduce(g, s, (tile_loop){1, 0}, acc, place, end);
    }
}
