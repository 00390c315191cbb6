/* What one instruction set offers: its sizes and its kernels. table.c, compiled once for each set, defines a table. */
#ifndef FO_TABLE_H
#define FO_TABLE_H

#include "../include/fusedops/fusedops.h"
#include "int8_args.h"
#include "product.h"

/* A build for tests (FUSEDOPS_TRACE=1) notes the name of each kernel variant that runs; others do nothing. */
#ifdef FO_TRACE
void fo_ran(const char *variant);
#define FO_RAN(variant) fo_ran(variant)
#else
#define FO_RAN(variant) ((void)0)
#endif

/* Products of a row x and weights where they lie (kernels/gemm/gemv_columns.h): for each of `vectors` vectors and lane
 * l < rows <= vl, sums[v*vl + l] = start[v*vl + l] + the sum of w[v*step + l*ldw + p] x[p] over p < k, in order. start
 * may be sums. */
typedef struct {
    ptrdiff_t vectors, rows, k;
    const float *w;
    ptrdiff_t ldw, step;
    const float *x, *start;
    float *sums;
} fo_gemv_args;

/* Winograd's F(tile x tile, 3x3), for tiles side by side in one image: `count` of height x tile outputs, and one of
 * height x last after them, unless last is 0.
 * v[p*position + t*ldv + c] = (B^T d B)[p] for positions p, tiles t and channels c, padded to whole vectors; v_last for
 * the last one. Stride 2: positions have one, two or four phases, `phase` floats apart (kernels/winograd/points.h).
 * By rows of positions: mid[row*mid_row + column*ldv + c] = B^T d, and v is that of one row. */
typedef struct {
    int stride, tile, height, last;
    ptrdiff_t count, channels;
    fo_image x;               /* data: the image's first pixel and the first channel */
    ptrdiff_t ih, iw, h0, w0; /* the tiles' first row and column, which may lie outside the image */
    float *v, *v_last;
    ptrdiff_t ldv, position, phase;
    float *mid;
    ptrdiff_t mid_row;
} fo_winograd_input_args;

/* y = activation(A^T M A + bias + residual), M[p] = products[p*position + t*ldp + c]; rows x columns of it are wanted.
 * By rows of positions: mid[row*mid_row + column*ldp + c] = M A, and products are those of one row. */
typedef struct {
    int stride, tile, height, last;
    ptrdiff_t count, channels;
    const float *products, *products_last;
    ptrdiff_t ldp, position;
    fo_image y, r; /* data: the first output; r.data is NULL where there is no residual */
    ptrdiff_t rows, columns;
    const float *bias;
    fo_activation act;
    float *mid;
    ptrdiff_t mid_row;
} fo_winograd_output_args;

/* The gate functions of one step of a recurrent layer, and how many gates a unit has. */
typedef enum {
    FO_STEP_RNN,       /* 1: h' = activation(s) */
    FO_STEP_LSTM,      /* 4: i f g o */
    FO_STEP_GRU,       /* 3: r z n, h's share of n apart: n = tanh(nx + r nh) */
    FO_STEP_GRU_RESET, /* 2: r z; r h goes to h_out, z to c_out */
    FO_STEP_GRU_NEW    /* 1: n, from h = r h, c = z and old = h */
} fo_stage_kind;

/* m rows of one step, for the unit blocks from .. to-1 of vl units each (see kernels/rnn.h for the order of the
 * columns). s[i,:] = start[i,:] + x[i,:kx] wx + h[i,:kh] wh; lds is 0 where start is the bias of all rows, kx 0 where
 * start has x's part in it. Where the gates are odd, `from` and `to` are even. Steps that alternate between forwards
 * and backwards find the weights that the step before read last still in the cache. of_h: where it is not NULL, h's
 * part, made before, for a product that is not this kernel's; then it and start begin at the columns of block `from`,
 * bias_n is in it, and x, wx, wh and bias_n are not read. */
typedef struct {
    fo_stage_kind kind;
    int gates;
    bool backwards;
    ptrdiff_t m, from, to, hidden;
    const float *x, *h;
    ptrdiff_t ldx, ldh, kx, kh;
    const void *wx, *wh;
    fo_dtype w_type;
    const float *start, *bias_n, *of_h;
    ptrdiff_t lds, ldoh;
    const float *c, *old;
    float *c_out, *h_out, *y; /* y: a second place for h', or NULL */
    ptrdiff_t ldc, ldold, ldco, ldho, ldy;
    const float *peephole;        /* i f o, hidden each, or NULL */
    fo_activation act, gate, out; /* of fo_cell_shape */
    bool usual;                   /* sigmoid and tanh: the kernel's own */
    float clip;                   /* bound of |s|; INFINITY: none */
    float cell_clip;              /* LSTM: bound of |c'| */
} fo_step_args;

/* y = act(f(a, b)) for m rows of n elements; ld*: distance of rows, s*: of a row's elements. */
typedef struct {
    fo_function f;
    ptrdiff_t m, n;
    const float *a, *b;
    float *y;
    ptrdiff_t lda, ldb, ldy, sa, sb, sy;
    fo_activation act;
} fo_elementwise_rows;

/* The same of elements of any type (fo_map): the tensors are y, a, b and c. */
typedef struct {
    fo_map_function f;
    fo_dtype from, to;
    ptrdiff_t m, n, ld[FO_TENSORS], step[FO_TENSORS], size, stride;
    char *at[FO_TENSORS];
} fo_map_rows;

/* What reductions, softmax and norms work on: w fibres of n elements each, of the tensors y, x and scale (and shift):
 * element p of fibre l is at l * lane + p * step. Either axis may be the contiguous one. */
typedef struct {
    ptrdiff_t w, n;
    struct {
        ptrdiff_t lane, step;
    } y, x, scale;
    float *to;
    const float *from;
} fo_fibres;

/* Output rows h0 .. h1 of output channels c0 .. c1 of one image of a depthwise convolution. x, y and r start at the
 * image; r.data is NULL where there is no residual. Lanes are columns, or channels (nhwc), which are neighbors in y
 * and r then. Taps of channel c: w[c*ldw + tap]; nhwc: w[(c/vl * taps + tap) * vl + c%vl]. Input channel of c: c /
 * multiplier. */
typedef struct {
    const fo_conv2d_shape *s;
    const fo_conv2d_size *z;
    fo_image x, y, r;
    /* half_rate: AVX-512 by halves, with 32 KB of first-level cache: bands of columns where pixels crowd into few
     * sets, shuffles within quarters */
    bool nhwc, half_rate;
    const float *w, *bias;
    ptrdiff_t ldw, multiplier, c0, c1, h0, h1;
    fo_activation act;
} fo_depthwise_args;

/* Row of ow > 4 outputs of a depthwise convolution, 3 x 3 of stride 1 or 2 (kernels/depthwise/line.h): `vectors` of
 * channels, their taps and bias. Input rows are iw pixels long, `left` (0 or 1) columns of zeros stand before them and
 * at most one after; NULL: outside the image. */
typedef struct {
    int stride;
    const float *rows[3];
    ptrdiff_t xw, left, iw, ow, vectors;
    const float *w, *bias;
    float *y;
    ptrdiff_t yw;
    fo_activation act; /* none or a clip */
} fo_depthwise_line_args;

/* What queries of an attention have so far: `most` is the largest score, `sum` that of the weights e^(score - most),
 * and rows of `values`, ld floats each, the weighted sum of v. most and sum are whole vectors. */
typedef struct {
    float *most, *sum, *values;
    ptrdiff_t ld;
} fo_attended;

/* The scores of `rows` queries for n keys, whole vectors with lds floats to a row, which become weights. Row r is query
 * (first + r) / group of head (first + r) % group; causal: query i sees the keys up to i + diagonal of these, the last
 * `window` of them unless it is 0. A mask is `added` or `taken`, with these strides of heads, queries and keys. */
typedef struct {
    ptrdiff_t rows, n, first, group, diagonal, window, lds;
    bool causal;
    float softcap;        /* as of fo_attention_args */
    float *scores, *mask; /* mask: scratch for a row of it */
    const float *added;
    const uint8_t *taken;
    ptrdiff_t mh, mt, ms;
    uint16_t *narrow; /* where attention_narrow writes weights: rows of ldn, pairs of vectors */
    ptrdiff_t ldn;
    fo_attended to; /* most and sum are written */
} fo_attention_block;

/* Output rows of a plane that are made at once, the floats from one to the next of what their columns come to, and how
 * many columns of each window count for a mean. */
typedef struct {
    ptrdiff_t rows, width;
    const float *counts;
} fo_pool_strip;

/* Every kernel: its name, of which the set has the function fo_NAME, what that takes, and where it is. EVERYWHERE: each
 * set. MAPS: maybe another set's. DOTS: compiled once more with the processor's dot products, where they are faster.
 * NARROW: by the processor's instruction where there is one. BF16: of sets and processors with products of bfloat16
 * alone. The struct, the declarations (kernels.h) and the tables (table.c) are made of this list. */
/* clang-format off */
#define FO_EACH_KERNEL(X) \
    X(gemm, (const fo_gemm_args *), EVERYWHERE) \
    X(gemv, (const fo_gemv_args *), EVERYWHERE) \
    /* u[p*position + o] = (G g G^T)[p] of nr output channels o, their weights at g[tap*nr + o]; rounded once */ \
    X(winograd_weights, (int stride, int tile, const float *g, float *u, ptrdiff_t position), EVERYWHERE) \
    X(winograd_input, (const fo_winograd_input_args *), EVERYWHERE) \
    X(winograd_output, (const fo_winograd_output_args *), EVERYWHERE) \
    /* The transforms a row of positions at a time, of stride 1: x to mid, a row of mid to V, M to a row of mid, mid \
     * to y */ \
    X(winograd_columns, (const fo_winograd_input_args *), EVERYWHERE) \
    X(winograd_row, (const fo_winograd_input_args *, int row), EVERYWHERE) \
    X(winograd_back_row, (const fo_winograd_output_args *, int row), EVERYWHERE) \
    X(winograd_back_columns, (const fo_winograd_output_args *), EVERYWHERE) \
    X(step, (const fo_step_args *), EVERYWHERE) \
    X(depthwise, (const fo_depthwise_args *), EVERYWHERE) \
    X(depthwise_line, (const fo_depthwise_line_args *), EVERYWHERE) \
    X(pointwise, (const fo_pointwise_args *), EVERYWHERE) \
    X(elementwise, (const fo_elementwise_rows *), EVERYWHERE) \
    X(map, (const fo_map_rows *), MAPS) \
    X(pool_row, (const fo_pool_args *, ptrdiff_t n, ptrdiff_t h), EVERYWHERE) \
    /* The one window of up to vl planes */ \
    X(pool_whole, (const fo_pool_args *, ptrdiff_t first, ptrdiff_t count), EVERYWHERE) \
    X(pool_plane, (const fo_pool_args *, const float *x, float *y, ptrdiff_t first, ptrdiff_t last, \
                   const fo_pool_strip *, float *columns), EVERYWHERE) \
    /* y[l] = the reduction of fibre l, of outer[1] times outer[0] such fibres with strides step[1] and step[0] */ \
    X(reduce, (const fo_fibres *, fo_reduction, const ptrdiff_t outer[2], const ptrdiff_t step[2]), EVERYWHERE) \
    /* y[l] = the index of the first largest (or least) element of fibre l */ \
    X(argmax, (const fo_fibres *, int64_t *y, bool least), EVERYWHERE) \
    X(softmax, (const fo_fibres *, bool log), EVERYWHERE) \
    X(norm, (const fo_fibres *, const fo_norm_args *), EVERYWHERE) \
    X(attention_weights, (const fo_attention_block *), EVERYWHERE) \
    /* The same to bfloat16; the sum is that of rounded weights */ \
    X(attention_narrow, (const fo_attention_block *), BF16) \
    /* y[i] = scale * x[i*step] as bfloat16 for i < n, and a zero after an odd number of them */ \
    X(narrow_scaled, (ptrdiff_t n, const float *x, ptrdiff_t step, float scale, uint16_t *y), BF16) \
    /* B[k,n], element (p, j) at b[p*bk + j*bn], as a panel of bfloat16: `groups` of two steps, whole vectors of \
     * columns, with zeros for what is not there */ \
    X(pack_narrow, (ptrdiff_t k, ptrdiff_t n, const float *b, ptrdiff_t bk, ptrdiff_t bn, ptrdiff_t groups, \
                    ptrdiff_t columns, uint16_t *panel), BF16) \
    /* `to` for `rows` queries and n values each, with what another block of keys gives */ \
    X(attention_merge, (ptrdiff_t rows, ptrdiff_t n, const fo_attended *to, const fo_attended *from), EVERYWHERE) \
    /* scores[i] = k[i*ks + j] q[j], y[j] = weights[i] v[i*vs + j], summed up, for i < n, j < d; of 16 bits */ \
    X(attention_keys, (ptrdiff_t n, ptrdiff_t d, fo_dtype type, const uint16_t *k, ptrdiff_t ks, const float *q, \
                       float *scores), EVERYWHERE) \
    X(attention_values, (ptrdiff_t n, ptrdiff_t d, const float *weights, fo_dtype type, const uint16_t *v, \
                         ptrdiff_t vs, float *y), EVERYWHERE) \
    /* y[i*ldy + j*sy] = values / sum for a query */ \
    X(attention_end, (ptrdiff_t n, const float *values, float sum, float *y, ptrdiff_t sy), EVERYWHERE) \
    X(lrn_row, (const fo_lrn_args *, ptrdiff_t n, ptrdiff_t h), EVERYWHERE) \
    X(resize_row, (const fo_resize_args *, ptrdiff_t n, ptrdiff_t h), EVERYWHERE) \
    X(resize_plane, (const fo_resize_args *, const float *x, float *y, ptrdiff_t first, ptrdiff_t last, float *rows), \
      EVERYWHERE) \
    X(sample, (const fo_sample_args *, ptrdiff_t first, ptrdiff_t last), EVERYWHERE) \
    X(grid_row, (const fo_grid_sample_args *, ptrdiff_t image, ptrdiff_t row), EVERYWHERE) \
    /* y[j*ldy + i] = x[i*ldx + j] for i < m, j < n */ \
    X(transpose, (ptrdiff_t m, ptrdiff_t n, const float *x, ptrdiff_t ldx, float *y, ptrdiff_t ldy), EVERYWHERE) \
    /* y[i,j] = a[i,j] + sign * b[i,j] for i < m, j < n */ \
    X(sum, (ptrdiff_t m, ptrdiff_t n, const float *a, ptrdiff_t lda, const float *b, ptrdiff_t ldb, float sign, \
            float *y, ptrdiff_t ldy), EVERYWHERE) \
    /* y[i*ldy + j] = x[i*ldx + first + j*step] for i < m, j < n; 0 where first + j*step is not in 0 .. width */ \
    X(pad, (ptrdiff_t m, ptrdiff_t n, const float *x, ptrdiff_t ldx, ptrdiff_t width, ptrdiff_t first, \
            ptrdiff_t step, float *y, ptrdiff_t ldy), EVERYWHERE) \
    /* to[i] = from[i], of a type of weights, for i < n */ \
    X(widen, (ptrdiff_t n, fo_dtype type, const void *from, float *to), EVERYWHERE) \
    /* folded[i] = w[i] * scale for i < n, 0 where that is denormal; folded may be w */ \
    X(fold, (ptrdiff_t n, const float *w, double scale, float *folded), EVERYWHERE) \
    /* bfloat16[i] = x[i] rounded for i < n */ \
    X(narrow, (ptrdiff_t n, const float *x, uint16_t *y), NARROW) \
    /* y = round(x / scale) + zero within int8, ^ flip */ \
    X(quantize, (ptrdiff_t n, const float *x, float scale, int32_t zero, uint8_t flip, uint8_t *y), DOTS) \
    /* y = scale * ((x ^ flip) - zero) */ \
    X(dequantize, (ptrdiff_t n, const uint8_t *x, uint8_t flip, int32_t zero, float scale, float *y), DOTS) \
    /* The least and the largest of n floats and 0; NaN where one is */ \
    X(range, (ptrdiff_t n, const float *x, float range[2]), DOTS) \
    X(flip, (ptrdiff_t n, const uint8_t *x, uint8_t flip, uint8_t *y), DOTS) /* y = x ^ flip */ \
    /* Groups of four bytes, or of three and a 0 (four are read), as the operands of two phases */ \
    X(split, (ptrdiff_t groups, ptrdiff_t bytes, const uint8_t *x, uint8_t *y), DOTS) \
    /* Sums of the rows of A, m of them, of int8 */ \
    X(row_sums, (const fo_gemm_args *, int32_t *sums), DOTS) \
    X(patches, (const fo_qpatches *, ptrdiff_t pixel, uint8_t *row), DOTS) \
    X(qdepthwise, (const fo_qdepthwise_args *, ptrdiff_t image, ptrdiff_t h, ptrdiff_t end, ptrdiff_t c0, \
                   ptrdiff_t c1), DOTS) \
    /* Rows of channels, whose images begin at p.x and c, at distances of x_step and c_step elements, with scratch for \
     * `planes` of them; w: `block` bytes a channel, rows of the kernel in whole fours; ep of channels */ \
    X(qdepthwise_planes, (const fo_qdepthwise_args *, ptrdiff_t c, ptrdiff_t count, ptrdiff_t h, ptrdiff_t end, \
                          ptrdiff_t planes, uint8_t *scratch), DOTS) \
    /* y[j*ldy + i] = x[i*ldx + j] of elements of 8 and 16 bits */ \
    X(transpose_8, (ptrdiff_t m, ptrdiff_t n, const uint8_t *x, ptrdiff_t ldx, uint8_t *y, ptrdiff_t ldy), DOTS) \
    X(transpose_16, (ptrdiff_t m, ptrdiff_t n, const uint16_t *x, ptrdiff_t ldx, uint16_t *y, ptrdiff_t ldy), DOTS) \
    X(qpair, (const fo_qpair *), DOTS) \
    X(qmax, (ptrdiff_t n, const uint8_t *x, uint8_t flip, uint8_t *y), DOTS) /* y = the larger of y and x ^ flip */ \
    /* sums += x ^ flip; whole vectors of sums are there */ \
    X(qadd, (ptrdiff_t n, const uint8_t *x, uint8_t flip, int32_t *sums), DOTS) \
    /* y = round((sums - less) * scale) + zero within int8, ^ flip; whole vectors of bytes of sums are there */ \
    X(qmean, (ptrdiff_t n, const int32_t *sums, int32_t less, float scale, int32_t zero, uint8_t flip, uint8_t *y), \
      DOTS)
/* clang-format on */

typedef struct {
    const char *set, *name;  /* name: with the dot products that it has */
    int vl, mr, nr;          /* lanes; rows and columns of the GEMM register tile of floats */
    bool vec_is_line;        /* simd/traits.h; products of shorter vectors take long in relation to memory */
    short group, group_of_3; /* vectors in a row of a group of recurrent weights, and where a unit has three gates */
    short parts;             /* most groups of rows in a vector of a depthwise kernel of int8 */
    bool is_signed;          /* kernels of int8 take int8, else uint8 */
    const fo_product_kernel *products; /* the first one that fits runs; the last one has no `run` */
#define FO_KERNEL_OF_SET(name, arguments, where) void(*name) arguments;
    FO_EACH_KERNEL(FO_KERNEL_OF_SET)
#undef FO_KERNEL_OF_SET
} fo_kernels;

extern const fo_kernels fo_kernels_scalar, fo_kernels_avx2, fo_kernels_avx2vnni, fo_kernels_avx512,
    fo_kernels_avx512vnni, fo_kernels_avx512bf16, fo_kernels_avx512amx, fo_kernels_neon, fo_kernels_neondot,
    fo_kernels_neonbf16;

/* The kernel of products of rows of type `a` (FO_U8: int8 of any sign) by weights of type `b` (FO_U8: in blocks), or
 * NULL. */
static inline const fo_product_kernel *fo_product_of(const fo_kernels *kn, fo_dtype a, fo_dtype b) {
    for (const fo_product_kernel *p = kn->products; p->run; p++)
        if ((p->product.a == a || (fo_size(a) == 1 && fo_size(p->product.a) == 1)) && p->product.b == b) return p;
    return NULL;
}

#endif
