/* Every tuned number of the library, and nothing else: unit, value, what it decides, evidence (what was measured, on
 * which processor). A value that depends on the set is named by a trait (simd/traits.h), one that depends on the
 * processor is a function of fo_machine. What gains less than 5 % on a row of the benchmark has no number: it is
 * always on, or gone.
 */
#ifndef FO_TUNE_H
#define FO_TUNE_H

#include "machine.h"

/* ---- shares of caches, in bytes: what a kernel keeps while something else passes ---- */

enum {
    FO_L1_SHARE = 24 << 10,  /* of the first level (32 or 48 KB): what passes has the rest */
    FO_L2_PIECE = 128 << 10, /* of the second, of what has to be near while several others pass */
    FO_L2_SHARE = 640 << 10, /* of the second (1 MB; with 512 KB the same sizes were as good) */
    FO_L2_ALL = 1 << 20,     /* the second level: what is larger comes from a farther cache */
    FO_L3_PIECE = 4 << 20,   /* of the third level, which threads share: scratch does not grow beyond it */
};

/* ---- products (kernels/gemm, matmul/product.c, matmul/matmul.c) ---- */

enum {
    /* 4 KB: what is at this distance shares a set of the first-level cache and has a page of its own */
    FO_PAGE_FLOATS = 1024,
    FO_SHARED_SETS_FLOATS = 256, /* 1 KB: rows a multiple of it apart are in few sets of the first-level cache */
    /* of a reduction that leave time to fetch lines of C: 512x512x512 1.04, 3x3 128 at 56x56 1.07 (Zen 3) */
    FO_LONG_STEPS = 256,
    /* up to which results are most of what moves: C is written along its rows by vectors of a line, 16 -> 64 at
     * 112x112 0.8 (Xeon, AVX-512); lines of a large one are not fetched: 4096x128x512 0.90 with them, 4096x200x1024
     * 0.95, but 10000x16x100 1.03 */
    FO_FEW_STEPS = 64,
    FO_MIN_PANELS = 16, /* of pixels, for that order, and weights of FO_L2_PIECE */
    /* of pixels, for that order: they stay in the second-level cache while the channels pass */
    FO_NEAR_PIXELS_FLOATS = 80 << 10,
    FO_AHEAD_STEPS = 64, /* by which a panel that one tile reads is fetched ahead */
    /* Steps of a long reduction at a time, and columns of its sums: a panel that is read and the next stay in the
     * cache. 128x3072x768 0.93 (AVX2, 512 KB); 64x4096x1024 0.82 (AVX-512, 1 MB); 2048 -> 512 channels 0.70
     * (AVX-512), 0.79 (AVX2) */
    FO_PIECE_STEPS = 1024,
    FO_PIECE_COLUMNS = 256,
    /* by weights of 4 or 8 bits that each tile unpacks itself; of more the first tile keeps them for others. AVX2, two
     * tiles of 8 rows 0.95 to 1.0 of the time of floats (Zen 4) */
    FO_BLOCKWISE_ROWS = 8,
    FO_MIN_ROWS = 48,         /* of a block, or weights pass too often: 24 on two threads 1.03 (AVX2) */
    FO_FINER_COLUMNS = 256,   /* up to which half an empty vector counts, at half rate: n = 24 0.68 (Zen 4) */
    FO_HALF_WIDTH_STEPS = 48, /* up to which stores of half a line are faster there: 0.91 to 0.97 (Zen 4) */
    FO_TASKS_A_THREAD = 4,    /* of most operations: a slow thread does not hold up all */
};

/* Rows of a tile that unpacks such weights, of mr: their multiply-adds hide it, and registers are left for scales and
 * zero points. AVX-512, time of floats: 8 rows 0.9, 16 and 32 1.0; of 4 rows 1.36, and unpacked before 1.1 (Zen 4). */
#define FO_BLOCKWISE_HIGH(mr) ((mr) - (mr) / 3)

/* Steps from which rows are lanes in a product of n <= 3 columns: one of 16 takes 0.6 to 0.9 of the tiles' time, two of
 * 64 0.7, three of 64 1.0, of 16 1.25 (Zen 4, AVX2). */
#define FO_NARROW_STEPS(n) (48 * (n) - 32)

/* ---- depthwise (kernels/depthwise, conv/algorithms/depthwise.c) ---- */

/* Planes balance threads by many tasks. Pixels lose by them: tasks that are few channels wide read each pixel in
 * pieces (144x56x56 on two threads with 1, 2 and 4: 32, 32 and 43 us; 256x14x14 3.6, 3.7 and 5.1), so that there are
 * two only where rows do not divide evenly. */
enum { FO_DEPTHWISE_WIDE = 384 };
enum { FO_DEPTHWISE_ROWS_AT_ONCE = 2 }; /* of tiles with AVX-512, channels last */

/* Vectors of channels, or of a row, that are many: 64 channels of 4x512 with 1x7 take 52 us by rows instead of 78. */
enum { FO_DEPTHWISE_MANY = 16 };

/* ---- Winograd (kernels/winograd, conv/algorithms) ---- */

/* Winograd's cost in multiply-adds. A weight that few tiles share takes the time of so many of them to arrive; a
 * product starts and ends in the time of so many steps; a channel of a tile is transformed, on the way in and out,
 * in that of so many, by stride and tile. Where dilation has phases, whose rows of tiles are short, each row takes
 * so many ns more. One table for all sets and rates: with one for each, six more limits of size, gains that an
 * algorithm had to show and costs of weights from each cache, 25 numbers more, the choice was as good (bench/tune,
 * Zen 4 and Zen 5, AVX2 and AVX-512: 1.004 to 1.013 of the best times, 1.007 to 1.027 with them). */
enum { FO_WEIGHT_ROWS = 8, FO_WINOGRAD_START = 12, FO_PHASE_ROW_NS = 800 };
static const double fo_transform_in[2][7] = {{[2] = 80, [4] = 220, [6] = 580}, {[2] = 430, [4] = 1400}};
static const double fo_transform_out[2][7] = {{[2] = 80, [4] = 200, [6] = 520}, {[2] = 140, [4] = 450}};

/* Steps of the reduction that take as long as a tile's start and end, and as the sum of two vectors of rows; pixels
 * of a row that a weight must serve, or its way from the third-level cache takes longer. Measured with AVX-512. */
enum { FO_WINOGRAD1D_START = 8, FO_WINOGRAD1D_PIXELS = 10 };
static const double FO_WINOGRAD1D_GAIN = 0.95; /* by which it must win: 3 -> 64 channels at 224x224 1.4 without */

/* Columns of an image that are transformed at a time: they stay in the first-level cache. */
enum { FO_WINOGRAD_STRIP = 48 };

/* Tiles of a block: bytes of its V and M, and numbers of tiles; rounds of blocks from which threads need no equal
 * shares (cut_blocks). */
enum { FO_WINOGRAD_MAX_BYTES = 8160 << 10 /* 8 MB with gaps */ };
enum { FO_WINOGRAD_MIN_TILES = 28, FO_WINOGRAD_MAX_TILES = 96, FO_WINOGRAD_MIN_TILES_OF_A_THREAD = 12 };
enum { FO_WINOGRAD_FEW_TILES = 4, FO_WINOGRAD_MANY_ROUNDS = 8 };

/* of the sums that a unit's rows share, which stay in the first-level cache; four or more register tiles even out */
enum { FO_WINOGRAD1D_TILE_ROWS = 48 };

/* ---- direct convolutions, im2col, rewrites (conv/algorithms, conv/rewrite.c) ---- */

/* pixels that threads do not cut where weights can be: each thread reads its own part of those, once */
enum { FO_DIRECT_SMALL_IMAGE = 7 * 7 };
enum { FO_DIRECT_BUNDLE = 64 }; /* channels, side by side in a pixel */
/* times equal shares: good enough, for a look at all cuts takes 4 us: 15 % of 64 -> 384 channels at 14x14, two
 * threads */
static const double FO_DIRECT_NEARLY = 1.01;

enum { FO_IM2COL_MAX_PIXELS = 64 };            /* of an image, unless many products are left out */
static const double FO_IM2COL_MAX_SHARE = 0.7; /* of products, then */
/* Of a dilated kernel, whose image a direct convolution copies with wide borders: 64 -> 64 channels of 56x56 that are
 * dilated by 24 take 1.7 ms, not 3.9 (Zen 4). */
static const double FO_IM2COL_MAX_SHARE_DILATED = 0.95;
static const double FO_IM2COL_DILATED = 1.15; /* times its multiply-adds, above the usual share */
/* One row, as of a sequence, has none: its bits must not depend on its length, and without patches it takes 0.57 to
 * 0.95 of the time, but for a few pixels of many channels (512 -> 512 of 3 taps, 4 pixels: AVX-512 1.5, AVX2 0.8). */
/* Copies take longer than they gain where patches are short: 3 -> 32 channels at 16x16, stride 2, 1.7 times as long.
 * Windows of int8 and bfloat16 are then read from bands of the image, however narrow. */
enum { FO_IM2COL_MIN_CHANNELS = 8 };

/* pixels of a task that need no more, so that threads share pixels rather than weights */
enum { FO_IM2COL_ENOUGH = 48 };

enum { FO_REWRITE_CHANNELS = 32 }; /* output channels for which it pays to copy windows */

/* ---- blocks (conv/blocks/block.c, conv/blocks/block_layers.c) ---- */

/* Where a line of E is longer, a panel's channels of it stand by themselves: a slice, which the depthwise part reads
 * while it is fresh. Half a panel costs the expansion what the depthwise part gains. 3x3 goes by strips (below);
 * what does not, for its kernel or activation, has the slices of a whole tile, whose rows are a multiple of the
 * depthwise kernel's for 3x3. Time of E in one piece over that of slices, one thread, AVX-512, medians / least: Zen
 * 5 (1 MB of second-level cache, 3x3) 24x56x56 x6 1.07, stride 2 1.05, 32x28x28 x6, whose lines are 21 KB, 0.96;
 * Xeon (2 MB, 5x5) 24x56x56 x6 1.11 / 1.13, stride 2 0.98 / 0.95, 40x28x28 x6 0.94 / 0.95. */
enum { FO_BLOCK_SLICE_ROWS = 4, FO_BLOCK_MIN_ROWS = 4, FO_BLOCK_BANDS_A_THREAD = 3 };

/* Tiles of a band without E that several threads take: of two the faster thread waits for the last. AVX2, two
 * threads, against the layers: 32x112x112 -> 64 from 0.96 to 1.01, -> 16 from 1.01 to 1.07; with E lower tiles cost
 * more than that, 24x56x56 x6 0.9. */
enum { FO_BLOCK_SHARED_TILES = 7 };

/* A strip: some output rows of a tile, for which a panel's channels of E are expanded, so many pixels or more (a
 * product long enough to run as fast as a tile's), into a ring of rows that the first-level cache holds, where the
 * depthwise part reads them. Time of whole tiles over that of strips, one thread, AVX2, medians / least: 16x112x112
 * x6, stride 2 1.12 / 1.07, 24x56x56 x6 1.09 / 1.05. Of slices, AVX-512 (Xeon): 1.03 / 1.03, 1.03 / 1.01, stride 2
 * 1.06 / 1.06; 32x28x28 x6, whose lines are short, 0.99 / 0.98. */
enum { FO_BLOCK_STRIP_PIXELS = 112, FO_BLOCK_MIN_COLS = 8 };

/* Intermediate images up to this size are as fast in memory: pixels stay in a cache near by; planes make longer rows
 * for the products, and gain from the tiles only what the third-level cache is slower (16x112x112 x6: 1.06; 24x56x56
 * x6, 3.6 MB: 0.96 to 1.01). Beside products at half rate memory takes half as long (Zen 4: 32x112x112 -> 16
 * channels last, 1.6 MB, 0.97 to 1.01, 16x112x112 x6 in planes 0.98). */
enum { FO_BLOCK_AT_HALF_RATE = 2 };

/* Nor does an image cost what a long product hides: 128x56x56 -> 128, 1.6 MB, 0.98 to 1.00; 128x112x112 -> 128, 6.4 MB,
 * 1.07. */
enum { FO_BLOCK_BYTES_AN_OUTPUT = 16 << 10 };

/* ---- recurrent layers (rnn/, kernels/rnn.h) ---- */

/* A step of a cell: multiply-adds a lane and ns; bytes of weights a ns from each level; the part of the shorter of
 * both that the longer does not hide; a barrier of a team, and a float that another processor wrote, in ns. */
#define FO_STEP_MACS 8.0
#define FO_L2_RATE 200.0
#define FO_L3_RATE 150.0
#define FO_MEMORY_RATE 30.0
#define FO_STEP_OVERLAP 0.1
#define FO_BARRIER_NS 250.0
#define FO_TRANSFER_NS 0.1

/* What a split must save: an estimate may be wrong, and another process may have the other processor. */
#define FO_SPLIT_GAIN 0.85
/* Work by which a layer follows the one before it: each transfer takes 1000 ns. */
#define FO_LAYER_LAG_NS 3000.0

enum {
    FO_STEP_BLOCK_FLOATS = 4096, /* of weights that tiles of many rows share: half of the first-level cache */
    FO_STEP_SUMS_FLOATS = 3072   /* of sums that are finished together with them */
};

/* ---- passes over memory (ops/, kernels/copy.h, elementwise.h, pool.h, ...) ---- */

enum {
    FO_ACTIVATION_MACS = 8,        /* multiply-adds an activation takes as long as, for the number of threads */
    FO_LIBM_MACS = 200,            /* the same of a function of libm, lane by lane */
    FO_COPY_BYTES = 64 << 10,      /* of a strided copy that is a task */
    FO_ACTIVATED_FLOATS = 1 << 10, /* of a row that are activated in a second pass: they stay in the first level */
    FO_SOFTMAX_FLOATS = 8 << 10,   /* of a row that is kept between its passes, else it is read again */
    /* Rows or columns beyond whole blocks, up to which they go by element where a vector is a line: of 49 pixels three
     * blocks take 210 cycles, a fourth for the last pixel 70. So many rows of 8 or 16 bits are interleaved in plain C:
     * three of 224 take 25 ns (Zen 4). */
    FO_TRANSPOSE_ELEMENTS = 4
};

/* ---- attention (matmul/attention.c) ---- */

/* With AVX-512 and AVX2 (Zen 4), 512 to 1024 tokens of 64 elements: blocks of 128 keys take 1.04 of the time, of 512
 * 0.99; 24 and 96 rows 1.00. A thread's scratch is 450 KB. */
static const struct {
    ptrdiff_t keys, least_keys; /* of a block */
    ptrdiff_t block_floats;     /* of a block's keys and values: a quarter of the second-level cache */
    ptrdiff_t height;           /* rows of a block of scores */
    ptrdiff_t rows, row_floats; /* of a task, and of its queries and results */
    ptrdiff_t least_rows;       /* of a task that is cut for threads: packing takes a tenth of its time */
    ptrdiff_t tasks;            /* of a thread */
    ptrdiff_t partial_floats;   /* of results of single blocks, a thread */
} fo_attention_cut = {256, 32, 64 << 10, 48, 512, 64 << 10, 96, 4, 64 << 10};

/* AMX: bytes of panels of B that stay in the second-level cache while pairs of rows pass. Reading A where it lies, all
 * of k at once, a prototype took 0.56 to 0.67 of the time of tiles of A that are copied, nine steps at a time (Xeon,
 * 128 x 768 x 768 to 128 x 3072 x 768 of bfloat16). */
enum { FO_AMX_B_BYTES = 512 << 10 };

/* Nanoseconds to copy a float to packed weights, and to fold a scale into one, which is in a farther cache. */
#define FO_PACK_NS 0.1
#define FO_FOLD_NS 0.3

/* ---- int8 or float32 (conv/layer_cost.c) ---- */

/* Times in multiply-adds of float32 at the speed that costs of convolutions count with. Measured on 37 shapes in one
 * run (Zen 5: AVX-512 and AVX2 with dot products of int8, AVX2 without): a product in int8 3.1 to 4.1 times as fast
 * with dot products and 0.9 to 1.3 without; a row of a patch 3 to 10 ns; a depthwise result 0.1 to 0.3 ns.
 *
 * Of AMX those of bfloat16 are fitted to prototypes on a Xeon (Sapphire Rapids, 2026-11-29, one thread). Predicted over
 * measured time: 0.97 to 1.6 of 1x1 convolutions at 56x56 to 14x14 (0.72 of 32 -> 64 at 112x112), 1.05 of 3x3 64 -> 64
 * at 56x56, 0.8 to 1.1 of 128 rows of 768 to 3072 columns, 0.83 of the 7x7 first layer and 0.6 of the 3x3 one. A tile
 * of int8 has twice the steps in the same bytes and cycles; its results take more instructions and half the bytes. */
typedef struct fo_product_costs {
    double start;           /* a call */
    double convert;         /* an element, between float32 and bytes */
    double step, weight;    /* a product (of tiles, whole ones); the least for a weight, which comes from a cache */
    double result, patch;   /* a result's rounding and bytes; a row of a window, which is copied */
    double depthwise, quad; /* a depthwise result; four taps of a column of its window */
    double curve;           /* of a depthwise result, an activation that is no clip, beyond what it takes in float32 */
} fo_product_costs;
static const fo_product_costs fo_costs_of_amx = {10000, 8, 0.06, 1.2, 6, 800, 2.3, 3.1, 150},
                              fo_costs_of_vnni = {10000, 8, 0.25, 1.2, 6, 800, 2.3, 3.1, 150};
#ifdef __aarch64__
/* Counted, not timed: vector instructions of the inner loops, for a multiply-add of float32 one. NEON's dot products
 * take as many as AVX2's: 0.25, and 1.3 instructions for each instead of 2; two rows of a 3x3 depthwise kernel 50
 * instead of 55. Without, products of 16 bytes take 9, those of 32 with AVX2 4.5. */
static const fo_product_costs fo_costs_of_multiply_add = {10000, 8, 2.2, 2.2, 16, 800, 0.2, 9, 75};
#else
static const fo_product_costs fo_costs_of_multiply_add = {10000, 8, 0.66, 1.4, 16, 800, 0.2, 5.2, 75};
#endif
/* Products of bfloat16, the first five alone: with AVX512_BF16 two steps take as long as one of float32 (Zen 4: linear
 * 1.95, 1x1 1.7, 3x3 0.53 of Winograd's speed), and with BFMMLA, as counted, 54 instructions instead of 96. */
static const fo_product_costs fo_costs_of_bf16_amx = {5000, 6, 0.12, 2, 6, 800, 0, 0, 0},
                              fo_costs_of_bf16 = {5000, 6, 0.5, 2, 4, 800, 0, 0, 0};
/* In float32: the rows that a weight takes as long as; of a depthwise convolution an element of the image and a tap. */
static const struct {
    double rows, input, tap;
} fo_float_costs = {4, 2.6, 1.2};

/* ---- threads and memory (runtime/) ---- */

enum {
    FO_TEAM_NS = 4000,        /* from which a job is worth a team; one that is awake shares a loop in some hundred ns */
    FO_SHARING_NS = 1500,     /* from which a loop of a team that is kept together is worth sharing */
    FO_SPINS = 10000,         /* looks at what another does before the processor is offered to others */
    FO_AWAKE_NS = 4000000,    /* for which a thread without work then stays awake */
    FO_LATE_NS = 1000,        /* by which a thread is late at its last task, at least: others take a part of it */
    FO_MANY_TASKS = 16,       /* of a thread, which are even enough undivided */
    FO_TASK_PARTS = 4,        /* of a task that is divided */
    FO_KEEP_BYTES = 64 << 20, /* of scratch that a thread keeps from call to call */
    FO_SPARES = 4,            /* blocks of plans kept for the next; page faults of 270 KB took 140 us */
    FO_MIN_SPARE = 64 << 10,  /* bytes of such a block */
    /* bytes by which a result is placed after the input in its page: 512x14x14 0.5 (Zen 4) */
    FO_ALIAS_OFFSET = 2560
};

#endif
