/* Which instruction sets this processor has, and which one is used. */
#ifndef FO_ISA_H
#define FO_ISA_H

#include "../kernels/table.h"

const fo_kernels *fo_active(void);

/* Whether multiply-adds of these kernels take twice as long as of those with shorter vectors. */
bool fo_at_half_rate(const fo_kernels *kn);

/* The active kernels, or in shorter vectors those that multiply as fast: AVX2's where AVX-512 runs at half rate. */
const fo_kernels *fo_half_width_kernels(void);

#endif
