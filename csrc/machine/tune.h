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
    FO_STEP_SUMS_FLOATS = 3072   /* of sums that are finished together, beside them */
};

/* ---- passes over memory (net/, kernels/copy.h, elementwise.h, pool.h, ...) ---- */

enum {
    FO_ACTIVATION_MACS = 8,    /* multiply-adds an activation takes as long as, for the number of threads */
    FO_LIBM_MACS = 200,        /* the same of a function of libm, lane by lane */
    FO_COPY_BYTES = 64 << 10,  /* of a strided copy that is a task */
    FO_ACTIVATED_FLOATS = 1 << 10, /* of a row that are activated in a second pass: they stay in the first level */
    FO_POOL_FLOATS = 4 << 10,  /* of what columns come to, for windows that overlap: half of the first level */
    /* Rows or columns beyond whole blocks, up to which they go by element where a vector is a line: of 49 pixels three
     * blocks take 210 cycles, a fourth for the last pixel 70. */
    FO_TRANSPOSE_ELEMENTS = 4
};

/* ---- threads and memory (runtime/) ---- */

enum {
    FO_TEAM_NS = 4000,        /* from which a job is worth a team; one that is awake shares a loop in some hundred ns */
    FO_SHARING_NS = 1500,     /* from which a loop of a team that is kept together is worth sharing */
    FO_SPINS = 10000,         /* looks at what another does before the processor is offered to others */
    FO_AWAKE_NS = 4000000,    /* for which a thread without work then stays awake */
    FO_LATE_NS = 1000,        /* by which a thread is late at its last task, at least: others take a part of it */
    FO_MANY_TASKS = 16,       /* of a thread, which are even enough undivided */
    FO_KEEP_BYTES = 64 << 20, /* of scratch that a thread keeps from call to call */
    FO_SPARES = 4,            /* blocks of plans kept for the next; page faults of 270 KB took 140 us */
    FO_LEAST_SPARE = 64 << 10 /* bytes of such a block */
};

#endif
