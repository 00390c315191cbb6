/* What layers take in float32 and in 8 bits, and the way between: what a network's quantisation decides by. They
 * depend on shapes and on what the processor has, never on a measurement, and only their ratios count. */
#include "../machine/tune.h"
#include "../pack.h"
#include "bytes.h"

static double nanoseconds(double macs) { return fo_nanoseconds(fo_active(), macs, 0); }

static const fo_byte_prices *prices(void) {
    return fo_has_tiles() ? &fo_prices_of_tiles : fo_has_dot_product() ? &fo_prices_of_dots : &fo_prices_of_words;
}

bool fo_has_dot_product(void) { return fo_active_bytes()->phases == 1; }
bool fo_has_tiles(void) { return fo_active_bytes()->tiles; }

double fo_convert_nanoseconds(ptrdiff_t elements) {
    return nanoseconds(prices()->start + prices()->convert * (double)elements);
}

double fo_linear_nanoseconds(ptrdiff_t m, ptrdiff_t n, ptrdiff_t k) {
    return nanoseconds((double)n * (double)k * (m > fo_float_prices.rows ? (double)m : fo_float_prices.rows));
}

/* Rows of bytes times n columns, of which vectors have some more; a weight takes as long as some rows. */
static double products(ptrdiff_t m, ptrdiff_t n, ptrdiff_t k) {
    const fo_byte_kernels *kn = fo_active_bytes();
    const double columns = (double)round_up(n, kn->vl), steps = (double)round_up(k, 4 * kn->phases);
    const double rows = (double)m * prices()->step;
    return columns * (steps * (rows > prices()->weight ? rows : prices()->weight) + (double)m * prices()->result);
}

double fo_qlinear_nanoseconds(ptrdiff_t m, ptrdiff_t n, ptrdiff_t k) {
    return nanoseconds(prices()->start + products(m, n, k));
}

double fo_qconv2d_nanoseconds(const fo_conv2d_shape *s, const fo_conv2d_size *z) {
    const ptrdiff_t c = fo_byte_channels(s), taps = s->kh * s->kw, pixels = z->n * z->oh * z->ow;
    const bool bands = fo_byte_bands(fo_active_bytes(), FO_S8, s, z->ow);
    /* rows of windows that are copied, a group at a time; bands of an image have none, but what a group takes */
    const ptrdiff_t rows = bands ? s->groups > 1 : taps > 1 || s->sh * s->sw > 1 ? s->kh : 0;
    const double patches = (double)(pixels * s->groups * rows);
    double macs = prices()->patch * patches + (double)s->groups * products(pixels, s->oc / s->groups, c * taps);
    if (fo_byte_depthwise(fo_active_bytes(), s)) {
        const double channels = (double)round_up(s->oc, fo_active_bytes()->vl);
        const double quads = (double)(div_up(s->kh, 4) * s->kw * s->sw);
        const double curve = fo_in_registers(&s->act) ? 0 : prices()->curve;
        macs = (double)pixels * channels * (prices()->depthwise + prices()->quad * quads + curve);
    }
    return nanoseconds(prices()->start + macs);
}
