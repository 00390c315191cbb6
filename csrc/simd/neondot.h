/* Advanced SIMD with the dot product, of which kernels of bytes alone make use. */
#include "neon.h"
