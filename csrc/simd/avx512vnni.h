/* AVX-512 with its VNNI, of which kernels of int8 alone make use. */
#define FO_BASE avx512
#include "avx512.h"
