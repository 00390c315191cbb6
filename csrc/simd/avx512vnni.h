/* AVX-512 with its VNNI, of which kernels of bytes alone make use. */
#include "avx512.h"
