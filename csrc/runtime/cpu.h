/* Which instruction sets this processor has, and which one is used. */
#ifndef FO_CPU_H
#define FO_CPU_H

#include "../kernels/table.h"

const fo_kernels *fo_active(void);

/* Those in shorter vectors that multiply as fast: AVX2's where AVX-512 runs at half rate, or the same. */
const fo_kernels *fo_finer(void);

#endif
