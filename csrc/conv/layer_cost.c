/* What layers take in float32, in bfloat16 and in int8, and the way between: what a network's quantization decides
 * by. They depend on shapes and on what the processor has, never on a measurement, and only their ratios count. */
#include "../dispatch/estimate.h"
#include "../machine/tune.h"
#include "../matmul/product.h"
#include "int8/windows.h"

#include <math.h>

static double nanoseconds(double macs) { return fo_nanoseconds(fo_active(), macs, 0); }

/* The kernel of products of int8 or bfloat16. */
static const fo_product_kernel *kernel_of(fo_dtype type) {
    return type == FO_BF16 ? fo_product_of(fo_active(), FO_BF16, FO_BF16) : fo_product_of(fo_active(), FO_U8, FO_S8);
}
/* Without a dot product of bfloat16 nothing asks for more than what a conversion takes. */
static const fo_product_costs *costs_of(fo_dtype type) {
    const fo_product_costs *costs = kernel_of(type)->costs;
    return costs ? costs : &fo_costs_of_bf16;
}

bool fo_has_dot_product(void) { return kernel_of(FO_S8)->phases == 1; }
bool fo_multiplies_by_amx(void) { return kernel_of(FO_S8)->tiles; }

double fo_convert_nanoseconds(fo_dtype type, ptrdiff_t elements) {
    const fo_product_costs *p = costs_of(type);
    return nanoseconds((type == FO_BF16 ? 0 : p->start) + p->convert * (double)elements);
}

/* Rows of some segments of k elements times n columns, of which vectors and tiles have some more; a weight takes as
 * long as some rows. */
static double products(fo_dtype type, ptrdiff_t m, ptrdiff_t n, ptrdiff_t segments, ptrdiff_t k) {
    const fo_product_kernel *kernel = kernel_of(type);
    const fo_product_costs *p = costs_of(type);
    const ptrdiff_t groups = kernel->tiles ? FO_TILE_GROUPS : kernel->phases;
    const double columns = (double)round_up(n, fo_active()->vl),
                 steps = (double)(segments * round_up(k, kernel->product.group * groups));
    const double rows = (double)m * p->step;
    return columns * (steps * (rows > p->weight ? rows : p->weight) + (double)m * p->result);
}

double fo_linear_nanoseconds(fo_dtype type, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k) {
    if (type == FO_F32) return nanoseconds((double)n * (double)k * fmax((double)m, fo_float_costs.rows));
    if (type == FO_BF16 && !fo_has_bf16()) return INFINITY;
    return nanoseconds(costs_of(type)->start + products(type, m, n, 1, k));
}

static double dense_nanoseconds(fo_dtype type, const fo_conv2d_shape *s, const fo_conv2d_size *z) {
    const ptrdiff_t line = fo_qline(kernel_of(type), s), taps = s->kh * s->kw, pixels = z->n * z->oh * z->ow;
    const bool bands = fo_qbands(kernel_of(type), s, z->ow);
    const fo_product_costs *p = costs_of(type);
    /* rows of windows that are copied, a group at a time; bands of an image have none, but what a group takes */
    const ptrdiff_t rows = bands ? s->groups > 1 : taps > 1 || s->sh * s->sw > 1 ? s->kh : 0;
    const double patches = (double)(pixels * s->groups * rows);
    const double macs =
        (double)s->groups * products(type, pixels, s->oc / s->groups, bands ? s->kh : 1, bands ? line : s->kh * line);
    return nanoseconds(p->start + p->patch * patches + macs);
}

static double depthwise_nanoseconds(const fo_conv2d_shape *s, const fo_conv2d_size *z) {
    const fo_product_costs *p = costs_of(FO_S8);
    const double results = (double)(z->n * z->oh * z->ow * round_up(s->oc, fo_active()->vl));
    const double quads = (double)(div_up(s->kh, 4) * s->kw * s->sw);
    const double curve = fo_in_registers(&s->act) ? 0 : p->curve;
    return nanoseconds(p->start + results * (p->depthwise + p->quad * quads + curve));
}

double fo_conv2d_nanoseconds_as(fo_dtype type, const fo_conv2d_shape *s, const fo_conv2d_size *z) {
    if (type == FO_S8) return fo_qdepthwise(s) ? depthwise_nanoseconds(s, z) : dense_nanoseconds(type, s, z);
    return fo_has_bf16() && s->ic > s->groups ? dense_nanoseconds(type, s, z) : INFINITY;
}
