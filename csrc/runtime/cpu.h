/* Which instruction sets this processor has, and which one is used. */
#ifndef FO_CPU_H
#define FO_CPU_H

#include "../kernels/table.h"

const fo_kernels *fo_active(void);

/* Whether vectors of 512 bits take twice as long as shorter ones, as on AMD's Zen 4: one multiply-add a cycle, not two. */
bool fo_half_rate(void);

#endif
