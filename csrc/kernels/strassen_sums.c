/* One step of Strassen's algorithm, and two output rows at a time of a 3x3 convolution of stride 2. */
#include "kernels.h"

#include "strassen_sums.h"
#include "stem.h"
