/* Every tuned number of the library, and nothing else: unit, value, what it decides, evidence (what was measured, on which processor).
 * A value that depends on the set is named by a trait (simd/traits.h), one that depends on the processor is a function of fo_machine.
 * What gains less than 5 % on a row of the benchmark has no number: it is always on, or gone.
 */
#ifndef FO_TUNE_H
#define FO_TUNE_H

/* ---- products (kernels/gemm, net/linear.c, net/matmul.c) ---- */

/* ---- depthwise (kernels/depthwise, conv/depthwise.c) ---- */

/* ---- Winograd and Strassen (kernels/winograd, kernels/strassen.h, conv/winograd.c, conv/winograd1d.c, conv/strassen.c) ---- */

/* ---- direct convolutions, im2col, rewrites (conv/direct.c, conv/im2col.c, conv/rewrite.c) ---- */

/* ---- blocks (conv/block.c) ---- */

/* ---- recurrent layers (rnn/) ---- */

/* ---- threads and memory (runtime/) ---- */

#endif
