/* Which instruction sets this processor has, which one is used, and the cache that scratch memory is for. */
#ifndef FO_CPU_H
#define FO_CPU_H

#include "../kernels/table.h"

const fo_kernels *fo_active(void);

/* Bytes of a core's second-level cache, at most 1 MB, for which blocks are made; they decide cuts and scratch, never bits. */
ptrdiff_t fo_near_bytes(void);

#endif
