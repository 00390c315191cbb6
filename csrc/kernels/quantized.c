/* Tensors of int8, and products of bfloat16 and of weights in blocks. Compiled for each set, and again where that has a
 * dot product of int8. */
#define FO_EXACT_FMA /* integers are the same on all sets, whatever the activation */
#include "kernels.h"
#include "../simd/int8.h"

#include "quantized/qepilogue.h"
#include "quantized/convert.h"
#include "quantized/qelementwise.h"
#include "quantized/qgemm_tile.h"
#include "quantized/qblockwise.h"
#ifdef HAS_AMX
#include "quantized/amx.h"
#include "quantized/amx_blocks.h"
#endif
#include "quantized/qdepthwise.h"
#include "quantized/qdepthwise_planes.h"
#include "quantized/transpose.h"
#include "quantized/attention_narrow.h"
