/* AVX2 with AVX-VNNI, of which kernels of bytes alone make use. */
#include "avx2.h"
