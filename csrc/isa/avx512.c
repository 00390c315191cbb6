/* The kernels for avx512: the vocabulary, then the algorithms. Compiled with this set's own flags (setup.py). */
#define FO_ISA avx512
#include "../simd/avx512.h"
#include "../kernels/kernels.h"
