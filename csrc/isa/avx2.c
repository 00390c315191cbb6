/* The kernels for avx2: the vocabulary, then the algorithms. Compiled with this set's own flags (setup.py). */
#define FO_ISA avx2
#include "../simd/avx2.h"
#include "../kernels/kernels.h"
