/* A step of a recurrent layer. */
#include "kernels.h"

#include "../simd/lanes.h"
#include "rnn.h"
