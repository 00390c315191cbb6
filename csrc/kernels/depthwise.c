/* Depthwise convolutions. */
#include "kernels.h"

#include "depthwise/depthwise.h"
#include "depthwise/line.h"
