/* Elements of any type, by plain C loops that the compiler makes vectors of. */
#include "kernels.h"

#ifndef FO_MAPS /* of another set */
#include "../simd/lanes.h"
#include "map.h"
#endif
