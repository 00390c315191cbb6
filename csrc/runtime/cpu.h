/* Which instruction sets this processor has, and which one is used. */
#ifndef FO_CPU_H
#define FO_CPU_H

#include "../kernels/table.h"

const fo_kernels *fo_active(void);

#endif
