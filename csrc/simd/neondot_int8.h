/* Integers and bytes on Advanced SIMD with its dot product (FEAT_DotProd). Contract: int8.h. */
#define FO_SDOT
#include "neon_int8.h"
