/* Every tuned number of the library, and nothing else: unit, value, what it decides, evidence (what was measured, on which processor).
 * A value that depends on the set is named by a trait (simd/traits.h), one that depends on the processor is a function of fo_machine.
 * What gains less than 5 % on a row of the benchmark has no number: it is always on, or gone.
 */
#ifndef FO_TUNE_H
#define FO_TUNE_H

/* ---- products (kernels/gemm, net/linear.c, net/matmul.c) ---- */

/* ---- depthwise (kernels/depthwise, conv/depthwise.c) ---- */

/* ---- Winograd and Strassen (kernels/winograd, kernels/strassen.h, conv/winograd.c, conv/winograd1d.c, conv/strassen.c) ---- */

/* Pixels of an image whose products pass all weights: the least for Strassen's algorithm, fewer have another cut (conv/strassen.c). */
enum { FO_STRASSEN_PIXELS = 128 };

/* Weights of a 3x3 kernel that the second-level cache keeps, 512 KB. */
enum { FO_CACHED_WEIGHTS = (512 << 10) / 4 };

/* ---- direct convolutions, im2col, rewrites (conv/direct.c, conv/im2col.c, conv/rewrite.c) ---- */

/* Floats of im2col's patches, of which a kernel row's half stays in a second-level cache of 512 KB: 512 channels at 14x14, stride 2. */
enum { FO_IM2COL_FLOATS = (704 << 10) / 4 };

/* ---- blocks (conv/block.c) ---- */

/* ---- recurrent layers (rnn/) ---- */

/* ---- threads and memory (runtime/) ---- */

#endif
