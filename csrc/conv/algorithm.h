/* What an algorithm is to the chooser, and a call that is prepared: every decision of it is taken. */
#ifndef FO_ALGORITHM_H
#define FO_ALGORITHM_H

#include <stdlib.h>

#include "cost.h"

typedef struct fo_algorithm fo_algorithm;

/* What a call is prepared for: sizes, strides and types. Nothing lies between them, so that they can be compared as
 * bytes. */
typedef struct {
    fo_conv2d_size z;
    fo_image x, r, y; /* without data; r's strides are 0 where there is no residual */
    fo_types types;
    int32_t adds; /* whether there is one */
} fo_layout;

enum { FO_CALL_ROOM = 736 }; /* bytes; a whole call is of a size that malloc has at hand */

struct fo_prepared_conv2d {
    const fo_conv2d *plan;
    fo_layout layout;
    fo_team team;
    const fo_algorithm *algorithm;
    const char *kernel; /* as Conv2d.kernel() names it */
    double work;        /* nanoseconds on one thread, an estimate that decides threads */
    int threads;
    ptrdiff_t scratch;            /* bytes that a run takes, of all threads */
    void *state;                  /* of the algorithm; constant when it is prepared, for calls may run at once */
    fo_prepared_conv2d *inner[2]; /* what a rewrite runs: on most of the output, and on the rest */
    _Alignas(16) char room[FO_CALL_ROOM]; /* of a small state */
};

struct fo_algorithm {
    const char *name; /* with which its kernels' names begin */
    unsigned types;   /* of weights: bits FO_OF */
    unsigned named;   /* values of fo_conv2d_shape.algorithm that admit it: bits FO_BY */
    bool (*applies)(const fo_conv2d *, const fo_conv2d_size *); /* form and error bound, not speed */
    double (*nanoseconds)(const fo_costing *);                  /* of one image on one thread */
    /* what the call of the plan's `wide` is prepared for, which is made before; NULL: there is none */
    fo_layout (*inner)(const fo_conv2d *, const fo_layout *);
    /* kernel, threads, scratch, state; not the weights, which the first run packs */
    fo_status (*prepare)(fo_prepared_conv2d *);
    fo_status (*run)(const fo_prepared_conv2d *, const fo_image *x, const fo_image *residual, const fo_image *y);
};

#define FO_BY(name) (1u << (name))
enum { FO_BY_ANY = ~0u >> 1 };

/* A state of so many bytes for a call, and the threads for its work. */
static inline void *fo_call_prepare(fo_prepared_conv2d *call, size_t bytes, double work) {
    call->work = work;
    call->threads = fo_threads_of(call->team, work);
    return call->state = bytes <= sizeof call->room ? call->room : malloc(bytes);
}

static inline fo_status fo_call_run(const fo_prepared_conv2d *call, const fo_image *x, const fo_image *residual,
                                    const fo_image *y) {
    return call->algorithm->run(call, x, residual, y);
}

/* The images of a run, their strides those of the layout; r.data is NULL where there is no residual. */
static inline void fo_call_images(const fo_image *x, const fo_image *residual, const fo_image *y, fo_image *to_x,
                                  fo_image *to_r, fo_image *to_y) {
    to_x->data = x->data, to_y->data = y->data;
    to_r->data = residual ? residual->data : NULL;
}

/* ---- the algorithms ---------------------------------------------------------------------------------------------- */

#define FO_ALGORITHM(name) \
    bool fo_##name##_applies(const fo_conv2d *plan, const fo_conv2d_size *z); \
    fo_status fo_##name##_prepare(fo_prepared_conv2d *call); \
    fo_status fo_##name##_run(const fo_prepared_conv2d *call, const fo_image *x, const fo_image *r, const fo_image *y)

FO_ALGORITHM(direct);
FO_ALGORITHM(im2col);
FO_ALGORITHM(winograd1d);
FO_ALGORITHM(winograd);
FO_ALGORITHM(depthwise);
FO_ALGORITHM(qdepthwise);
FO_ALGORITHM(qgemm);
FO_ALGORITHM(qim2col);
FO_ALGORITHM(rounded);
fo_layout fo_rounded_inner(const fo_conv2d *plan, const fo_layout *layout);

#endif
