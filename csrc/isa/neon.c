/* The kernels for neon: the vocabulary, then the algorithms. Compiled with this set's own flags (setup.py). */
#define FO_ISA neon
#include "../simd/neon.h"
#include "../kernels/kernels.h"
