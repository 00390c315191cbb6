/* The transforms of Winograd's algorithm. */
#include "kernels.h"

#include "winograd/winograd.h"
#include "winograd/rows.h"
