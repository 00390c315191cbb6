/* What the library knows of the machine that it runs on. One description for kernels, cuts and costs. */
#ifndef FO_MACHINE_H
#define FO_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

enum { LINE_FLOATS = 16 }; /* of a cache line: 64 bytes */

typedef struct {
    ptrdiff_t l1, l2, l3; /* bytes of data cache: of a core, of a core, of a core's share */
    ptrdiff_t line;       /* bytes of a cache line */
    bool dot_product;     /* of bytes: used where there is one */
    bool tiles;           /* of bytes, likewise */
    /* vectors of 64 bytes take two cycles of a unit where those of 32 take one (AVX-512 on Zen 4) */
    bool half_rate;
} fo_machine;

/* The same at every call, unless a test changes it: fo_set_half_rate; FUSEDOPS_MACHINE="l2=524288,half_rate=1".
 * fo_set_dot_product, fo_set_amx likewise. */
const fo_machine *fo_this_machine(void);

/* Whether the processor widens float16 (F16C). */
bool fo_has_f16c(void);

/* Whether the processor has an int8 dot product in AVX2's form (AVX-VNNI). */
bool fo_has_avx_vnni(void);

/* Whether the processor has a dot product of bfloat16 (AVX512_BF16). */
bool fo_has_avx512_bf16(void);

/* Whether the processor has tiles of int8 and bfloat16 (AMX), and the system keeps them for this process, which asks
 * for them here. */
bool fo_has_amx(void);

#endif
