/* fusedops: the steps of a network between its layers.
 * Programs of them: program.h; what follows from the sizes of a network: sizes.h. */
#ifndef FO_NETWORK_H
#define FO_NETWORK_H

#include "types.h"

/* ---- between a network's layers ---------------------------------------------------------------------------------- */

/* The axes that up to four tensors share, outermost first; stride 0 repeats an element. The first tensor is the
 * output. fo_fold orders the axes by the output's strides and merges those that lie as one in every tensor: nd becomes
 * as small as it can be, and at least 1. */
enum { FO_AXES = 8, FO_TENSORS = 4 };
typedef struct {
    int nd;
    ptrdiff_t size[FO_AXES], stride[FO_TENSORS][FO_AXES];
} fo_axes;
void fo_fold(fo_axes *axes);

/* y = x and y = value; axes: y, x. Elements have `size` bytes, 1, 2, 4 or 8; 0: they are floats. A value is filled in
 * as a float or, of size 1, as an integer. */
typedef struct {
    fo_axes axes;
    void *y;
    const void *x;
    ptrdiff_t size;
} fo_copy_args;
fo_status fo_strided_copy(const fo_copy_args *args);
typedef struct {
    fo_axes axes;
    void *y;
    float value;
    ptrdiff_t size; /* 1, 2, of which `half` has the bits, or 4 */
    uint16_t half;
} fo_fill_args;
fo_status fo_fill(const fo_fill_args *args);

/* y = activation(f(a, b)), element by element; axes: y, a, b. Functions of one argument leave b alone. */
#define FO_EACH_FUNCTION(X) \
    X(SAME, "identity") \
    X(SQRT, "sqrt") \
    X(EXP, "exp") \
    X(LOG, "log") \
    X(ERF, "erf") \
    X(RECIPROCAL, "reciprocal") \
    X(NEG, "neg") \
    X(ABS, "abs") \
    X(ADD, "add") /* from here on of two arguments */ \
    X(SUB, "sub") \
    X(MUL, "mul") \
    X(DIV, "div") \
    X(POW, "pow") \
    X(MAX, "max") \
    X(MIN, "min") \
    X(SLOPE, "prelu") /* a > 0 ? a : b a */
typedef enum { FO_EACH_FUNCTION(FO_MEMBER) FO_FUNCTIONS } fo_function;
typedef struct {
    fo_axes axes;
    fo_function f;
    float *y;
    const float *a, *b;
    fo_activation act;
} fo_elementwise_args;
fo_status fo_elementwise(const fo_elementwise_args *args);

/* y = f(a, b, c), element by element, of any type but floats of 16 bits; axes: y, a, b, c. A cast goes from one type
 * to another; what is tested or computed with is of type `from`, what comes out of type `to`. Where: a is bool, b and
 * c are of type `to`. Gather: y = a[b * stride], b integers of 64 bits in -size..size-1, negative ones from the end; a
 * has stride 0 along the axis that is indexed. */
#define FO_EACH_MAP(X) \
    X(MAP_CAST, "cast") \
    X(MAP_EQUAL, "equal") /* to bool */ \
    X(MAP_LESS, "less") \
    X(MAP_AT_MOST, "at_most") \
    X(MAP_AND, "and") /* of bool */ \
    X(MAP_OR, "or") \
    X(MAP_XOR, "xor") \
    X(MAP_NOT, "not") \
    X(MAP_ADD, "add") /* of integers of 64 and 32 bits; the sign of floats, too */ \
    X(MAP_SUB, "sub") \
    X(MAP_MUL, "mul") \
    X(MAP_DIV, "div") \
    X(MAP_MOD, "mod") \
    X(MAP_MAX, "max") \
    X(MAP_MIN, "min") \
    X(MAP_NEG, "neg") \
    X(MAP_ABS, "abs") \
    X(MAP_SIGN, "sign") \
    X(MAP_FLOOR, "floor") /* of floats */ \
    X(MAP_CEIL, "ceil") \
    X(MAP_ROUND, "round") \
    X(MAP_FLOAT16, "float16") /* floats, rounded to these */ \
    X(MAP_BFLOAT16, "bfloat16") \
    X(MAP_WHERE, "where") \
    X(MAP_GATHER, "gather")
typedef enum { FO_EACH_MAP(FO_MEMBER) } fo_map_function;
typedef struct {
    fo_axes axes;
    fo_map_function f;
    fo_dtype from, to;
    void *y;
    const void *a, *b, *c;
    ptrdiff_t size, stride;
} fo_map_args;
fo_status fo_map(const fo_map_args *args);

/* y = the first place along n elements, sx from each other, of the largest x, or of the least one; a NaN is either. For
 * each point of kept: y, x, y again. */
typedef struct {
    fo_axes kept;
    ptrdiff_t n, sx;
    bool least;
    int64_t *y;
    const float *x;
} fo_argmax_args;
fo_status fo_argmax(const fo_argmax_args *args);

/* Row p of y (points, c), `ldy` apart, = the sum over t of w[t,p] times row at[t,p] of x, `ldx` apart. */
typedef struct {
    ptrdiff_t points, taps, c, ldx, ldy;
    const float *x, *w;
    const int64_t *at;
    float *y;
} fo_sample_args;
void fo_sample(const fo_sample_args *args);

/* y[n,:,i,j] = x[n] (c,h,w) between its pixels, at row and column (places(n,i,j) + before) * scale + shift of either
 * axis: the nearest pixel, or the sum over 2 or 4 pixels along each axis. What lies beyond the image is 0, its nearest
 * pixel, or reflected at low and high. A place that is NaN is beyond. Channels are neighbors in x and y. FO_OUTSIDE:
 * there are no pixels. */
#define FO_EACH_BEYOND(X) X(BEYOND_ZEROS, "zeros") X(BEYOND_BORDER, "border") X(BEYOND_REFLECTION, "reflection")
typedef enum { FO_EACH_BEYOND(FO_MEMBER) } fo_beyond;
#define FO_EACH_INTERPOLATION(X) X(BY_NEAREST, "nearest") X(BY_LINEAR, "linear") X(BY_CUBIC, "cubic")
typedef enum { FO_EACH_INTERPOLATION(FO_MEMBER) } fo_interpolation;
typedef struct {
    const float *places;
    float before, scale, shift, low, high;
} fo_grid_axis;
typedef struct {
    ptrdiff_t n, c, h, w, oh, ow;
    fo_image x, y;
    fo_grid_axis rows, columns;
    ptrdiff_t pn, ph, pw; /* strides of places */
    fo_interpolation mode;
    fo_beyond beyond;
} fo_grid_sample_args;
fo_status fo_grid_sample(const fo_grid_sample_args *args);

/* y[r,:,i,j] = the mean of x[batch[r]] (c,h,w), read between its pixels, at `samples` points along each axis of bin
 * (i, j) of oh x ow that box r is cut into; 0 samples: one for each pixel of a bin. Boxes (count, 4), `ldb` apart, are
 * (left, top, right, bottom) * scale + shift, at least 1 long where they are not `centred`. Points farther than a pixel
 * beyond the image count as 0. Channels are neighbors in x and y. FO_OUTSIDE for a batch that is none, or a box that
 * is not finite. */
typedef struct {
    ptrdiff_t count, n, c, h, w, oh, ow, samples, ldb, batch_step;
    fo_image x, y;
    const float *boxes;
    const int64_t *batch;
    float scale, shift;
    bool centred;
} fo_roi_align_args;
fo_status fo_roi_align(const fo_roi_align_args *args);

/* y = the k largest of n < 2^32 elements x, or the least ones, in order, and places = where they are; steps sy, sp and
 * sx. Of equal ones the first comes first, a NaN is the largest. For each point of kept: y, x, places. */
typedef struct {
    fo_axes kept;
    ptrdiff_t n, k, sx, sy, sp;
    bool least;
    float *y;
    int64_t *places;
    const float *x;
} fo_top_k_args;
fo_status fo_top_k(const fo_top_k_args *args);

/* The places of boxes (batch, boxes, 4), of each class the best first, that none kept before overlaps more than
 * `overlap` (intersection over union); score (batch, classes, boxes), above `least` where that is `limited`, of equal
 * ones the first, NaN last; at most `most` of a class. boxes < 2^32; a box is two corners (y, x), or centred: (x, y,
 * width, height). fo_suppress fills counts (batch, classes) and kept (batch, classes, min(most, boxes)); fo_suppressed
 * makes rows (found, 3) of these: batch, class, box. */
typedef struct {
    ptrdiff_t batch, classes, boxes, most;
    const float *box, *score;
    bool centred, limited;
    float overlap, least;
    ptrdiff_t *counts;
    uint32_t *kept;
} fo_suppress_args;
fo_status fo_suppress(const fo_suppress_args *args, ptrdiff_t *found);
void fo_suppressed(const fo_suppress_args *args, int64_t *rows);

/* y[p] = x[0] + ... + x[p], p < n, or up to x[p-1] where it is exclusive, added in this order, steps sy and sx; of 0
 * elements 0. type: float32, int32 or int64. For each point of kept: y, x. */
typedef struct {
    fo_axes kept;
    ptrdiff_t n, sy, sx;
    fo_dtype type;
    bool exclusive, reverse; /* from the last element on */
    void *y;
    const void *x;
} fo_cumsum_args;
fo_status fo_cumsum(const fo_cumsum_args *args);

/* y = x, with updates in place of elements, or their sum, product, maximum or minimum with what is there. For each
 * point, in order (y, updates, indices): an element of y, from where the point's `named.nd` indices lead to along the
 * axes of y `named`; they are integers in -size..size-1, `component` from each other. Reductions: of floats and of
 * integers of 32 and 64 bits. y may be x. */
#define FO_EACH_SCATTER(X) \
    X(SCATTER_SET, "none") X(SCATTER_ADD, "add") X(SCATTER_MUL, "mul") X(SCATTER_MAX, "max") X(SCATTER_MIN, "min")
typedef enum { FO_EACH_SCATTER(FO_MEMBER) } fo_scatter_kind;
typedef struct {
    fo_axes whole, points, named; /* whole: y, x */
    ptrdiff_t component;
    fo_scatter_kind kind;
    fo_dtype type;
    void *y;
    const void *x, *updates;
    const int64_t *indices;
} fo_scatter_args;
fo_status fo_scatter(const fo_scatter_args *args);

/* For each point of rows (y, x, c, s): y = x, d elements with steps sy and sx, of which the first are pairs (u, v),
 * made (u c - v s, u s + v c) with the c and s of each pair. v stands `half` elements after u, or next to it. */
typedef struct {
    fo_axes rows;
    ptrdiff_t half, d, sy, sx;
    bool interleaved;
    float *y;
    const float *x, *c, *s;
} fo_rotate_args;
fo_status fo_rotate(const fo_rotate_args *args);

/* y[n,c,h,w] = the maximum or the mean of x[n, c, h*sh + i*dh - top, w*sw + j*dw - left], i < kh, j < kw, inside the
 * image; the mean's divisor is the number of the window's points with rows in h_lo..h_hi-1 and columns in w_lo..w_hi-1.
 */
typedef enum { FO_POOL_MAX, FO_POOL_AVERAGE } fo_pool_kind;
typedef struct {
    fo_pool_kind kind;
    ptrdiff_t n, c, ih, iw, oh, ow, kh, kw, sh, sw, dh, dw, top, left, h_lo, h_hi, w_lo, w_hi;
    fo_image x, y;
} fo_pool_args;
fo_status fo_pool(const fo_pool_args *args);

/* y = the mean, sum, maximum, minimum or product of x over the axes `over` (x's strides stand first there); kept: y,
 * x. over.nd <= 3. */
#define FO_EACH_REDUCTION(X) X(MEAN, "mean") X(SUM, "sum") X(LARGEST, "max") X(LEAST, "min") X(PRODUCT, "prod")
typedef enum { FO_EACH_REDUCTION(FO_MEMBER) } fo_reduction;
typedef struct {
    fo_axes kept, over;
    fo_reduction kind;
    float *y;
    const float *x;
} fo_reduce_args;
fo_status fo_reduce(const fo_reduce_args *args);

/* Along n elements whose strides are sy and sx, for each point of kept (y, x): softmax(x) or its logarithm. */
typedef struct {
    fo_axes kept;
    ptrdiff_t n, sy, sx;
    bool log;
    float *y;
    const float *x;
} fo_softmax_args;
fo_status fo_softmax(const fo_softmax_args *args);

/* y = (x - mean) / sqrt(variance + eps) * scale + shift, mean and variance over n elements with strides sy, sx and ss,
 * for each point of kept (y, x, scale and shift alike, which may be NULL). Where ss is 1, `span` elements in a row
 * share a scale (0: one). x is x + residual where that is given, of x's layout. rms: the mean counts as 0. y may
 * be x. */
typedef struct {
    fo_axes kept;
    ptrdiff_t n, sy, sx, ss;
    float eps;
    float *y;
    const float *x, *scale, *shift, *residual;
    ptrdiff_t span;
    bool rms;
} fo_norm_args;
fo_status fo_norm(const fo_norm_args *args);

/* y[n,c,h,w] = x[n,c,h,w] / (bias + alpha/size * sum of x[n,d,h,w]^2 over the size channels d around c)^beta. */
typedef struct {
    ptrdiff_t n, c, h, w, size;
    float alpha, beta, bias;
    fo_image x, y;
} fo_lrn_args;
fo_status fo_lrn(const fo_lrn_args *args);

/* y[n,c,h,w] = x interpolated between rows h0[h] and h1[h] at th[h], and columns w0[w] and w1[w] at tw[w];
 * without h1 and w1: x[n, c, h0[h], w0[w]]. */
typedef struct {
    ptrdiff_t n, c, oh, ow;
    fo_image x, y;
    const int64_t *h0, *h1, *w0, *w1;
    const float *th, *tw;
} fo_resize_args;
fo_status fo_resize(const fo_resize_args *args);

/* y[m,n] = activation(scale a[m,k] b[k,n]) for each point of batch (y, a, b); row and column strides of each. */
typedef struct {
    fo_axes batch;
    ptrdiff_t m, n, k, ym, yn, am, ak, bk, bn;
    float *y;
    const float *a, *b;
    float scale;
    fo_activation act;
} fo_matmul_args;
fo_status fo_matmul(const fo_matmul_args *args);

/* y[i,:] = x[i,:] w[g] for the rows i of group g, which end before ends[g]; rows after all groups are 0. `each` has
 * the sizes and strides of one product of all m rows by the first matrix, wg is from one matrix to the next. FO_OUTSIDE
 * where ends are not 0 <= ends[0] <= ends[1] ... <= m. */
typedef struct {
    fo_matmul_args each;
    ptrdiff_t groups, wg;
    const int64_t *ends;
} fo_grouped_matmul_args;
fo_status fo_grouped_matmul(const fo_grouped_matmul_args *args);

/* y[h,i,:] = sum over j of w[h,i,j] v[g,j,:], w[h,i,:] = softmax over j of (scale q[h,i,:] . k[g,j,:] + mask[h,i,j]),
 * g = h / (heads / kv_heads), for each point of rows (y, q, mask) and keys (no tensor, k, v), of the same sizes. heads
 * is a multiple of kv_heads. A mask is `added`, or a key takes part where `taken` is not 0; one or both are NULL.
 * causal: query i sees the keys j <= i + diagonal, of these the last `window` alone unless it is 0; where `diagonals`
 * is given, it has the diagonal of each point of rows. softcap: scores x are softcap tanh(x / softcap) before the mask
 * is added, unless it is 0. sinks: e^sinks[h] is one more term of the softmax's sum, of a key whose value is zeros. A
 * query that sees none, or whose scores are all -infinity, gives zeros. A row's bits depend on its query and on the
 * keys that it sees, and with keys of 16 bits on whether it is the only one that reads them; other keys may be read,
 * and values whose weight is 0 must be finite. Nothing of t x s elements is in memory. a, FO_F32 or FO_BF16: the
 * operands of both products, scale q and k, w before it is divided by its sum and v, are rounded to it; sums and
 * softmax are float32. Where the processor multiplies bfloat16, w is divided by the sum of rounded weights. */
typedef struct {
    fo_axes rows, keys;
    ptrdiff_t heads, kv_heads, t, s, d, dv; /* queries, keys; elements of a key, of a value */
    ptrdiff_t yh, yt, yd, qh, qt, qd, kh, ks, kd, vh, vs, vd, mh, mt, ms;
    float *y;
    const float *q, *added, *sinks; /* sinks: (heads) or NULL */
    const void *k, *v;
    fo_dtype kv_type; /* of k and v: float32, or of 16 bits, which are widened as they are read */
    const uint8_t *taken;
    float scale;
    fo_dtype a;
    bool causal;
    ptrdiff_t diagonal, window;
    const int64_t *diagonals;
    float softcap;
} fo_attention_args;
fo_status fo_attention(const fo_attention_args *args);

/* ---- the same on bytes (quantized.h) ----------------------------------------------------------------------------- */

/* n floats as bytes of `type`, or bytes as floats, as fo_quantize and fo_dequantize. */
typedef struct {
    ptrdiff_t n;
    const void *x;
    void *y;
    fo_dtype from, to; /* one of them FO_F32 */
    fo_quantization q;
} fo_convert_args;
void fo_convert(const fo_convert_args *args);

/* y = floats of the uint8 that x becomes by q, or, of scale 0, by the quantization that fits its least and largest
 * element: what a layer that quantizes its input as it comes computes with. y may be x. */
typedef struct {
    ptrdiff_t n;
    const float *x;
    float *y;
    fo_quantization q;
} fo_requantize_args;
fo_status fo_requantize(const fo_requantize_args *args);

/* y = table[x]; axes: y, x. */
typedef struct {
    fo_axes axes;
    uint8_t *y;
    const uint8_t *x, *table;
} fo_lookup_args;
fo_status fo_lookup(const fo_lookup_args *args);

/* y = clip(a + b), or of a - b or a * b; axes: y, a, b, of which the last has stride 1, or 0 for b. */
typedef struct {
    fo_axes axes;
    fo_function f; /* FO_ADD, FO_SUB, FO_MUL */
    fo_dtype ty, ta, tb;
    fo_quantization qy, qa, qb;
    fo_activation act; /* none, or a clip */
    void *y;
    const void *a, *b;
} fo_qbinary_args;
fo_status fo_qbinary(const fo_qbinary_args *args);

/* As fo_pool, of images whose channels are neighbors, their data of bytes; a maximum has x's quantization. */
typedef struct {
    fo_pool_args pool;
    fo_dtype tx, ty;
    fo_quantization qx, qy;
} fo_qpool_args;
fo_status fo_qpool(const fo_qpool_args *args);

/* y[n,c,h,w] = x[n, c, h0[h], w0[w]] of images of int8 whose channels are neighbors. */
fo_status fo_nearest(const fo_resize_args *args);

/* y[n,h,p,:] = past[n,h,p,:] for p < begins[n], x[n,h,p - begins[n],:] for the t rows after them, 0 for all others of
 * `room`; past (of `kept` rows) may be y. Rows are d contiguous elements. FO_OUTSIDE where rows do not fit. */
typedef struct {
    ptrdiff_t n, heads, kept, t, room, d;
    ptrdiff_t pn, ph, pt, xn, xh, xt, yn, yh, yt;
    const void *past, *x;
    void *y;
    ptrdiff_t size; /* of an element, in bytes */
    const int64_t *begins;
} fo_append_args;
fo_status fo_append(const fo_append_args *args);

#endif
