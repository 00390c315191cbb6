/* Integers and bytes on Advanced SIMD with its dot product (FEAT_DotProd). Contract: bytes.h. */
#define FO_SDOT
#include "neon_bytes.h"
