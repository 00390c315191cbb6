/* fusedops: programs, a whole network in one call.
 *
 * The binding's declarations of what is here, and of the arguments of steps in the other headers, are made of the C
 * text when it is built (setup.py, step_declarations). */
#ifndef FO_PROGRAM_H
#define FO_PROGRAM_H

#include "layers.h"
#include "network.h"
#include "quantized.h"

typedef struct {
    const fo_conv2d *plan;
    fo_types types;
    fo_conv2d_size size;
    fo_image x, residual, y;      /* residual.data may be NULL */
    fo_prepared_conv2d *calls[2]; /* fo_program_prepare */
} fo_conv2d_args;
typedef struct {
    fo_separable block;
    fo_conv2d_size size;
    fo_image x, residual, y;
    fo_prepared_separable *calls[2];
} fo_separable_args;
typedef struct {
    const fo_conv_transpose *plan;
    fo_conv2d_size size;
    fo_image x, residual, y;
} fo_conv_transpose_args;
typedef struct {
    const fo_linear *plan;
    fo_types types;
    ptrdiff_t m, ldx, ldr, ldy;
    const void *x, *residual;
    void *y;
} fo_linear_args;

/* Every kind of step: its arguments' name in fo_step and type, and what runs it (program/program.c). */
#define FO_EACH_STEP(X) \
    X(CONV2D, conv2d, fo_conv2d_args, run_conv2d) \
    X(SEPARABLE, separable, fo_separable_args, run_separable) \
    X(CONV_TRANSPOSE, conv_transpose, fo_conv_transpose_args, run_conv_transpose) \
    X(LINEAR, linear, fo_linear_args, run_linear) \
    X(SEQUENCE, sequence, fo_sequence, fo_sequence_run) \
    X(POINTWISE, pointwise, fo_pointwise_args, run_pointwise) \
    X(ELEMENTWISE, elementwise, fo_elementwise_args, fo_elementwise) \
    X(COPY, copy, fo_copy_args, fo_strided_copy) \
    X(FILL, fill, fo_fill_args, fo_fill) \
    X(MAP, map, fo_map_args, fo_map) \
    X(ARGMAX, argmax, fo_argmax_args, fo_argmax) \
    X(TOP_K, top_k, fo_top_k_args, fo_top_k) \
    X(CUMSUM, cumsum, fo_cumsum_args, fo_cumsum) \
    X(POOL, pool, fo_pool_args, fo_pool) \
    X(REDUCE, reduce, fo_reduce_args, fo_reduce) \
    X(SOFTMAX, softmax, fo_softmax_args, fo_softmax) \
    X(NORM, norm, fo_norm_args, fo_norm) \
    X(LRN, lrn, fo_lrn_args, fo_lrn) \
    X(RESIZE, resize, fo_resize_args, fo_resize) \
    X(MATMUL, matmul, fo_matmul_args, fo_matmul) \
    X(GROUPED_MATMUL, grouped_matmul, fo_grouped_matmul_args, fo_grouped_matmul) \
    X(ATTENTION, attention, fo_attention_args, fo_attention) \
    X(CONVERT, convert, fo_convert_args, run_convert) \
    X(REQUANTIZE, requantize, fo_requantize_args, fo_requantize) \
    X(LOOKUP, lookup, fo_lookup_args, fo_lookup) \
    X(QBINARY, qbinary, fo_qbinary_args, fo_qbinary) \
    X(QPOOL, qpool, fo_qpool_args, fo_qpool) \
    X(NEAREST, nearest, fo_resize_args, fo_nearest) \
    X(ROTATE, rotate, fo_rotate_args, fo_rotate) \
    X(GRID_SAMPLE, grid_sample, fo_grid_sample_args, fo_grid_sample) \
    X(ROI_ALIGN, roi_align, fo_roi_align_args, fo_roi_align) \
    X(SCATTER, scatter, fo_scatter_args, fo_scatter) \
    X(APPEND, append, fo_append_args, fo_append)
#define FO_STEP_KIND(kind, ...) FO_STEP_##kind,
#define FO_STEP_ARGUMENTS(kind, name, type, ...) type name;
typedef enum { FO_EACH_STEP(FO_STEP_KIND) } fo_step_kind;

enum { FO_BINDINGS = 8 }; /* most tensors of a step */

/* One prepared call. A pointer of its arguments that is bound to a slot holds an offset in bytes from that slot's
 * memory, which each run chooses; the other pointers are final. Steps in a row may run several times as a section, on
 * one part of their memory after the other: the last of them knows how often and how far back the first is. */
typedef struct {
    fo_step_kind kind;
    ptrdiff_t repeats, back;
    int bindings;
    struct {
        ptrdiff_t at;           /* of the pointer, in bytes from the step's start */
        ptrdiff_t stride_bytes; /* from one repetition to the next */
        int slot;
    } binding[FO_BINDINGS];
    union {
        FO_EACH_STEP(FO_STEP_ARGUMENTS)
    };
} fo_step;

/* Binds the pointer at `pointer` inside step to a slot. */
void fo_bind(fo_step *step, void *pointer, int slot, ptrdiff_t offset, ptrdiff_t stride_bytes);
/* Prepares the call of a step whose arguments are bound, so that no run chooses anything; frees what steps have
 * prepared. */
void fo_program_prepare(fo_step *step);
void fo_program_release(fo_step *steps, ptrdiff_t count);
/* Runs the steps in order on this run's memory; seconds, if given, gets the time of each. Where a step fails, the run
 * ends and *failed is its number. */
fo_status fo_program_run(const fo_step *steps, ptrdiff_t count, char *const *slots, double *seconds, ptrdiff_t *failed);

#endif
