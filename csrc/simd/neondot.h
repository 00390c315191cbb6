/* Advanced SIMD with the dot product, of which kernels of int8 alone make use. */
#define FO_BASE neon
#include "neon.h"
