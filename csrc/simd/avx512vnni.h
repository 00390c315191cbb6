/* AVX-512 beside its VNNI, of which kernels of bytes alone make use. */
#include "avx512.h"
