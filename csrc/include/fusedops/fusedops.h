/* fusedops: the C interface.
 *
 * Arrays are float32. Sizes and strides are in elements. A plan (fo_linear, fo_conv2d, ...) holds folded, packed
 * weights for the instruction set that was active when it was made; it is constant afterwards, so its run function may
 * be called from many threads. Functions that can fail return FO_OK or why they did: FO_NO_MEMORY, or FO_OUTSIDE for an
 * index outside its axis. Nothing has been written to the output then.
 *
 * Names: m n k of a product; n g ic ih iw oc oh ow kh kw sh sw ph pw dh dw of a convolution (dilation 1 is dense);
 * tensors x w bias residual y; gates i f g o and r z n. An input's arrays are only read.
 */
#ifndef FUSEDOPS_H
#define FUSEDOPS_H

#include "layers.h"
#include "network.h"
#include "program.h"
#include "quantized.h"
#include "runtime.h"
#include "sizes.h"
#include "types.h"

#endif
