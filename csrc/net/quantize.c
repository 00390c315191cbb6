/* Floats to 8 bits and back, on all threads: pieces of rows. */
#include "../kernels/bytes.h"
#include "../pack.h"

typedef struct {
    const fo_byte_kernels *kn;
    ptrdiff_t n, piece, pieces; /* elements of a row and of a piece; pieces of a row */
    const void *x;
    void *y;
    const float *scale;
    const int32_t *zero_point;
    fo_type type; /* of the bytes */
    bool floats;  /* y is of floats */
} conversion;

static void convert_piece(void *context, ptrdiff_t task, int thread) {
    const conversion *c = context;
    const ptrdiff_t row = task / c->pieces, first = task % c->pieces * c->piece, at = row * c->n + first,
                    n = min_(c->piece, c->n - first);
    const uint8_t flip = c->type == FO_INT8 ? 0x80 : 0;
    const int32_t zero = c->zero_point[row] + flip; /* of a uint8 */
    (void)thread;
    if (c->floats)
        c->kn->dequantize(n, (const uint8_t *)c->x + at, flip, zero, c->scale[row], (float *)c->y + at);
    else
        c->kn->quantize(n, (const float *)c->x + at, c->scale[row], zero, flip, (uint8_t *)c->y + at);
}

static void convert(ptrdiff_t rows, conversion c) {
    if (!rows || !c.n) return;
    c.kn = fo_active_bytes();
    c.piece = min_(c.n, FO_COPY_BYTES / (ptrdiff_t)sizeof(float)), c.pieces = div_up(c.n, c.piece);
    fo_parallel_for(rows * c.pieces, fo_threads_for(0.1 * (double)(rows * c.n)), convert_piece, &c);
}

void fo_quantize(ptrdiff_t rows, ptrdiff_t n, const float *x, const float *scale, const int32_t *zero_point,
                 fo_type type, void *y) {
    convert(rows, (conversion){.n = n, .x = x, .y = y, .scale = scale, .zero_point = zero_point, .type = type});
}

void fo_dequantize(ptrdiff_t rows, ptrdiff_t n, const void *x, const float *scale, const int32_t *zero_point,
                   fo_type type, float *y) {
    convert(rows, (conversion){
                      .floats = true, .n = n, .x = x, .y = y, .scale = scale, .zero_point = zero_point, .type = type});
}

void fo_convert(const fo_convert_args *a) {
    if (a->to == FO_FLOAT32)
        fo_dequantize(1, a->n, a->x, &a->q.scale, &a->q.zero_point, a->from, a->y);
    else
        fo_quantize(1, a->n, a->x, &a->q.scale, &a->q.zero_point, a->to, a->y);
}
