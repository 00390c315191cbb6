/* Every tuned number of the library, and nothing else: unit, value, what it decides, evidence (what was measured, on which processor).
 * A value that depends on the set is named by a trait (simd/traits.h), one that depends on the processor is a function of fo_machine.
 * What gains less than 5 % on a row of the benchmark has no number: it is always on, or gone.
 */
#ifndef FO_TUNE_H
#define FO_TUNE_H

/* ---- products (kernels/gemm, net/linear.c, net/matmul.c) ---- */

enum {
    FO_PAGE_FLOATS = 1024,        /* 4 KB: what lies so far apart shares a set of the first-level cache and has a page of its own */
    FO_SHARED_SETS_FLOATS = 256,  /* 1 KB: rows a multiple of it apart are in few sets of the first-level cache */
    FO_LONG_STEPS = 256,          /* of a reduction that leave time to fetch lines of C: 512x512x512 1.04, 3x3 128 at 56x56 1.07 (Zen 3) */
    FO_FEW_STEPS = 64,            /* up to which C is written along its rows by vectors of a line: 16 -> 64 at 112x112 0.8 (Xeon, AVX-512) */
    FO_LEAST_PANELS = 16,         /* of pixels, for that order */
    FO_NEAR_B_FLOATS = 32 << 10,  /* of weights, for that order: they stay beside C's lines */
    FO_NEAR_PIXELS_FLOATS = 80 << 10, /* of pixels, for that order: they stay in the second-level cache while the channels pass */
    FO_AHEAD_STEPS = 64,          /* by which a panel that one tile reads is fetched ahead */
};

/* Steps from which rows are lanes in a product of n <= 3 columns: one of 16 takes 0.6 to 0.9 of the tiles' time, two of 64 0.7, three of 64 1.0,
 * of 16 1.25 (Zen 4, AVX2). */
#define FO_NARROW_STEPS(n) (48 * (n) - 32)

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
