/* The weights of Strassen's algorithm: of each pair of blocks its operands, computed once. */
#include "strassen_parts.h"

#include <string.h>

static void pack_bias(const fo_conv2d *plan, float *to) {
    memset(to, 0, (size_t)bias_floats(plan) * sizeof *to);
    if (plan->bias) memcpy(to, plan->bias, (size_t)plan->s.oc * sizeof *to);
}

/* A pair is a part, and after all pairs what is left. The rows of a pair's sums stand for a while where the weights
 * will, and a little beyond. */
static void pack_left(const fo_conv2d *plan, const void *context, ptrdiff_t i, float *packed) {
    (void)context;
    const fo_kernels *kn = plan->kn;
    const ptrdiff_t k = plan->k, half = half_of(plan);
    const rows channels = rows_of(kn, plan->s.oc);
    if (i == channels.pairs) {
        pack_bias(plan, packed + left_weights(plan));
        return;
    }
    const pair r = row_pair(&channels, i);
    const ptrdiff_t mr = r.size[0], part = mr * half, room = part + kn->vl;
    const float *w = plan->w + r.at * plan->ldw;
    float *to = packed + left_at(plan, i), *plain = to + FO_STRASSEN_SUMS * part;
    kn->strassen_operands(&(fo_strassen_operands){
        false, false, {mr, r.size[1]}, {half, k - half}, w, plan->ldw, half, plain, half, room});
    for (int t = 0; t < FO_STRASSEN_SUMS; t++) kn->transpose(mr, half, plain + t * room, half, to + t * part, mr);
    if (r.size[1] < mr || k % 2) memset(plain, 0, (size_t)(4 * part) * sizeof *plain);
    kn->transpose(mr + r.size[1], k, w, plan->ldw, plain, 2 * mr);
}

/* The operands of a pair overwrite, row by row, the two panels that they are made of. */
static void pack_right(const fo_conv2d *plan, const void *context, ptrdiff_t i, float *packed) {
    (void)context;
    const fo_kernels *kn = plan->kn;
    const ptrdiff_t nr = kn->nr, rest = rest_of(kn, plan->s.oc), part = right_part(plan), o = i * 2 * nr;
    float *to = packed + right_at(plan, o), *panels = to + (FO_STRASSEN_PRODUCTS - 4) * part;
    if (o == rest) {
        fo_pack(kn, plan->s.oc - rest, plan->k, plan->w + rest * plan->ldw, 1, plan->ldw, to);
        pack_bias(plan, packed + right_weights(plan));
        return;
    }
    for (int right = 0; right < 2; right++)
        fo_pack(kn, nr, plan->k, plan->w + (o + right * nr) * plan->ldw, 1, plan->ldw, panels + right * 2 * part);
    right_operands(plan, true, panels, nr, 2 * part, to, part);
}

const float *fo_strassen_weights(const fo_conv2d *plan) {
    const bool nhwc = plan->s.nhwc;
    const ptrdiff_t pairs = nhwc ? column_pairs(plan->kn, plan->s.oc) : rows_of(plan->kn, plan->s.oc).pairs;
    return fo_conv2d_packed(plan, nhwc ? FO_STRASSEN_RIGHT : FO_STRASSEN_LEFT,
                            fo_strassen_floats(plan) + bias_floats(plan), pairs + 1, nhwc ? pack_right : pack_left,
                            NULL);
}
