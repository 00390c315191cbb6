/* The table of one instruction set. */
#include "kernels.h"

/* Kernels for SHORT vectors were measured with AVX2; longer ones have none. */
#define FO_ENTRY_EVERYWHERE(f) f
#define FO_ENTRY_MAPS(f) f
#define FO_ENTRY_SHORT(f) VEC_IS_LINE ? NULL : f
#define FO_ENTRY(name, arguments, where) .name = FO_ENTRY_##where(FO_KERNEL_##where(name)),

const fo_kernels FO_NAME(fo_kernels) = {.name = FO_STRING(FO_ISA),
                                        .vl = VL,
                                        .mr = MR,
                                        .nr = NR,
                                        .vec_is_line = VEC_IS_LINE,
                                        .group = GROUP,
                                        .group_of_3 = GROUP_OF_3,
                                        FO_EACH_KERNEL(FO_ENTRY)};
