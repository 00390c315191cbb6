/* AVX-512 with its VNNI, of which kernels of int8 alone make use. */
#include "avx512.h"
