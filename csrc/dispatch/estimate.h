/* Estimates of what a job takes, for threads and forms. */
#ifndef FO_ESTIMATE_H
#define FO_ESTIMATE_H

#include "../machine/tune.h"
#include "../runtime/parallel.h"
#include "isa.h"

/* Whether to fetch lines of a result of so many floats before they are written: third levels that others use, too, keep
 * less. Before activations that take longer than the lines it costs more than it gains (3136x96x384 with GELU 1.02). */
static inline bool fo_is_large(ptrdiff_t floats, fo_act_kind kind) {
    return fo_in_registers(&(fo_activation){.kind = kind}) && 4 * floats > FO_L3_PIECE;
}

/* Multiply-adds that an activation takes as long as. */
static inline double fo_act_cost(const fo_activation *act) { return act->kind <= FO_PRELU ? 0 : FO_ACTIVATION_MACS; }

/* Estimated nanoseconds of a job of so many multiply-adds of floats and bytes on one thread, for fo_threads_for. */
static inline double fo_nanoseconds(const fo_kernels *kn, double multiply_adds, double bytes) {
    double compute = multiply_adds / ((fo_at_half_rate(kn) ? 2.0 : 4.0) * kn->vl), memory = bytes / 60;
    return compute > memory ? compute : memory;
}

/* Threads to write so many floats of packed weights; each reads what the other wrote, later. */
static inline int fo_pack_threads(ptrdiff_t floats) { return fo_threads_for(FO_PACK_NS * (double)floats); }

#endif
