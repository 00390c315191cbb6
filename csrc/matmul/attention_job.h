/* What the parts of attention (attention.c) have in common, and those that are of bfloat16 (attention_bf16.c). */
#ifndef FO_NET_ATTENTION_JOB_H
#define FO_NET_ATTENTION_JOB_H

#include "../ops/axes.h"
#include "product.h"

typedef struct {
    const fo_attention_args *a;
    const fo_kernels *kn;
    ptrdiff_t group, rows, height, chunk, chunks; /* of a head of keys, a step, a task; tasks of that head */
    ptrdiff_t keys, blocks, lds, ldv;
    ptrdiff_t each, partial; /* floats of a thread, of a block's results where blocks are tasks */
    bool in_place;
    const fo_product_kernel *rounded; /* of products of bfloat16; NULL: of float32 */
    float *scratch, *partials;
} attention_job;

/* A thread's. Of bfloat16: rows, rounded, where the processor multiplies them, else a row before it is rounded. wide_k,
 * wide_v: keys and values of 16 bits as floats. */
typedef struct {
    float *k, *v, *scores, *mask, *q, *row, *rows, *wide_k, *wide_v;
    fo_attended all, block;
} attention_scratch;

/* Where a task's part of the tensors begins. */
typedef struct {
    const float *q, *added, *sinks; /* sinks: of the heads that share keys */
    const char *k, *v;
    const uint8_t *taken;
    float *y;
    ptrdiff_t diagonal;
} attention_place;

/* n rows of d elements; `row` and `element`: distances in floats. */
typedef struct {
    const float *at;
    ptrdiff_t n, d, row, element;
} float_rows;

/* Keys of a block, of which the first `packed` are packed with their values. */
typedef struct {
    ptrdiff_t at, packed;
} key_block;

/* Of bfloat16, where the processor multiplies it: whether it does; floats of a thread's rows; a block's keys
 * and values as panels; scores, and values of weights, of `rows` rows for n keys of the block. */
static inline bool fo_attention_is_narrow(const attention_job *j) { return j->rounded && j->rounded->reads == FO_BF16; }
ptrdiff_t fo_attention_rows_room(const attention_job *j);
void fo_attention_pack_narrow(const attention_job *j, const float_rows *k, const float_rows *v,
                              const attention_scratch *x);
void fo_attention_narrow_scores(const attention_job *j, const attention_scratch *x, const float *q, ptrdiff_t rows,
                                ptrdiff_t n, const key_block *keys);
void fo_attention_narrow_weights(const attention_job *j, const attention_scratch *x, fo_attention_block *b);
void fo_attention_narrow_values(const attention_job *j, const attention_scratch *x, const fo_attention_block *b,
                                const key_block *keys);

#endif
