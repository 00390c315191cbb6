/* The kernels for scalar: the vocabulary, then the algorithms. Compiled with this set's own flags (setup.py). */
#define FO_ISA scalar
#include "../simd/scalar.h"
#include "../kernels/kernels.h"
