/* AVX2 with AVX-VNNI, of which kernels of int8 alone make use. */
#define FO_BASE avx2
#include "avx2.h"
