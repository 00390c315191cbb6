/* What each unit of kernels begins with: the vocabulary of the set that it is compiled for (-DFO_ISA=avx2), the
 * epilogue, and the kernels. */
#ifndef FO_KERNELS_H
#define FO_KERNELS_H

#define FO_STRING_(s) #s
#define FO_STRING(s) FO_STRING_(s)
#define FO_VOCABULARY FO_STRING(../simd/FO_ISA.h)
#include FO_VOCABULARY
#include "../simd/traits.h"
#include "../machine/tune.h"

#include "table.h"
#include "epilogue.h"

enum { GROUP = MANY_REGS ? 8 : 2, GROUP_OF_3 = MANY_REGS ? 6 : 3 }; /* vectors of a group: rnn.h */

/* A kernel has the type of its place in the table. */
#define FO_KERNEL(f, place) extern __typeof__(*((fo_kernels *)0)->place) FO_NAME(f)
FO_KERNEL(fo_gemm, gemm);
FO_KERNEL(fo_gemv, gemv);
FO_KERNEL(fo_stem, stem);
FO_KERNEL(fo_stem_rows, stem_rows);
FO_KERNEL(fo_strassen_operands, strassen_operands);
FO_KERNEL(fo_strassen, strassen);
FO_KERNEL(fo_winograd_weights, winograd_weights);
FO_KERNEL(fo_winograd_input, winograd_input);
FO_KERNEL(fo_winograd_output, winograd_output);
FO_KERNEL(fo_winograd_columns, winograd_rows.columns);
FO_KERNEL(fo_winograd_row, winograd_rows.row);
FO_KERNEL(fo_winograd_back_row, winograd_rows.back_row);
FO_KERNEL(fo_winograd_back_columns, winograd_rows.back_columns);
FO_KERNEL(fo_step, step);
FO_KERNEL(fo_depthwise, depthwise);
FO_KERNEL(fo_depthwise_line, depthwise_line);
FO_KERNEL(fo_pointwise, pointwise);
FO_KERNEL(fo_elementwise, elementwise);
FO_KERNEL(fo_argmax, argmax);
FO_KERNEL(fo_pool_row, pool_row);
FO_KERNEL(fo_pool_plane, pool_plane);
FO_KERNEL(fo_pool_whole, pool_whole);
FO_KERNEL(fo_reduce, reduce);
FO_KERNEL(fo_softmax, softmax);
FO_KERNEL(fo_norm, norm);
FO_KERNEL(fo_attention_weights, attention_weights);
FO_KERNEL(fo_attention_merge, attention_merge);
FO_KERNEL(fo_attention_end, attention_end);
FO_KERNEL(fo_lrn_row, lrn_row);
FO_KERNEL(fo_resize_row, resize_row);
FO_KERNEL(fo_resize_plane, resize_plane);
FO_KERNEL(fo_sample, sample);
FO_KERNEL(fo_grid_row, grid_row);
FO_KERNEL(fo_transpose, transpose);
FO_KERNEL(fo_sum, sum);
FO_KERNEL(fo_pad, pad);
FO_KERNEL(fo_widen, widen);
FO_KERNEL(fo_unpack, unpack);
FO_KERNEL(fo_fold, fold);

/* FO_MAPS: the set whose maps serve this one too. */
#ifdef FO_MAPS
#define FO_MAP FO_JOIN(fo_map, FO_MAPS)
#else
#define FO_MAP FO_NAME(fo_map)
#endif
extern __typeof__(*((fo_kernels *)0)->map) FO_MAP;

#endif
