/* The transforms of Winograd's algorithm. */
#include "kernels.h"

#include <stdalign.h>

#include "winograd/points.h"
#include "winograd/transform.h"
#include "winograd/input.h"
#include "winograd/output.h"
