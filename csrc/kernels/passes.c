/* Passes over memory: copies, elementwise operations, reductions, pools, norms. */
#include "kernels.h"

#include "copy.h"
#include "pointwise.h"
#include "../simd/lanes.h"
#include "elementwise.h"
#include "pool.h"
#include "reduce.h"
#include "softmax.h"
#include "attention.h"
#include "norm.h"
#include "resize.h"
