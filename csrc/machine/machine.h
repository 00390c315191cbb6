/* What the library knows of the machine that it runs on. One description for kernels, cuts and costs. */
#ifndef FO_MACHINE_H
#define FO_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

enum { LINE_FLOATS = 16 }; /* of a cache line: 64 bytes */

/* Fields: sizes, and what is used of a processor's instructions where it has them. */
#define FO_EACH_MACHINE_SIZE(X) \
    X(l1) X(l2) X(l3) /* bytes of data cache: of a core, of a core, of a core's share */ \
    X(sets)           /* instruction sets, plain C the first; 0: all that there are */ \
    X(processors)     /* that this process may use; 0: as the system tells */
#define FO_EACH_MACHINE_FLAG(X) \
    X(dot_product) /* of int8 */ \
    X(bf16)        /* the dot product of bfloat16 */ \
    X(tiles)       /* of both (AMX) */ \
    X(half_rate)   /* vectors of 64 bytes take two cycles of a unit where those of 32 take one (AVX-512 on Zen 4) */

typedef struct {
#define FO_SIZE_FIELD(name) ptrdiff_t name;
#define FO_FLAG_FIELD(name) bool name;
    FO_EACH_MACHINE_SIZE(FO_SIZE_FIELD)
    FO_EACH_MACHINE_FLAG(FO_FLAG_FIELD)
#undef FO_SIZE_FIELD
#undef FO_FLAG_FIELD
} fo_machine;

/* The same at every call, unless a test is another machine: FUSEDOPS_MACHINE="l2=524288,half_rate=1" is for a process,
 * fo_set_machine for what is made from now on. */
const fo_machine *fo_this_machine(void);
void fo_set_machine(const fo_machine *);

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
