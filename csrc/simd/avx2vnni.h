/* AVX2 with AVX-VNNI, of which kernels of int8 alone make use. */
#include "avx2.h"
