/* A network as an array of prepared calls: a run copies each one's arguments, puts in its own addresses and makes it.
 */
#define _POSIX_C_SOURCE 199309L
#include <string.h>
#include <time.h>

#include "../pack.h"

void fo_bind(fo_call *step, void *pointer, int slot, ptrdiff_t offset, ptrdiff_t advance) {
    const ptrdiff_t at = (char *)pointer - (char *)step;
    memcpy(pointer, &offset, sizeof offset);
    step->binding[step->bindings].at = at;
    step->binding[step->bindings].advance = advance;
    step->binding[step->bindings++].slot = slot;
}

/* Whether a pointer inside a step is bound, or final and not NULL. */
static bool is_given(const fo_call *step, float *const *pointer) {
    const ptrdiff_t at = (const char *)pointer - (const char *)step;
    bool given = *pointer != NULL;
    for (int b = 0; b < step->bindings; b++) given |= step->binding[b].at == at;
    return given;
}

void fo_program_prepare(fo_call *step) {
    if (step->kind == FO_CALL_CONV2D) {
        fo_conv2d_args *a = &step->conv2d;
        fo_conv2d_prepare(a->calls, a->plan, a->types, &a->size, &a->x,
                          is_given(step, &a->residual.data) ? &a->residual : NULL, &a->y);
    } else if (step->kind == FO_CALL_SEPARABLE) {
        fo_separable_args *a = &step->separable;
        fo_separable_prepare(a->calls, &a->block, &a->size, &a->x,
                             is_given(step, &a->residual.data) ? &a->residual : NULL, &a->y);
    }
}

void fo_program_release(fo_call *steps, ptrdiff_t count) {
    for (fo_call *s = steps; s < steps + count; s++)
        for (int i = 0; i < 2; i++) {
            if (s->kind == FO_CALL_CONV2D) fo_conv2d_release(s->conv2d.calls[i]);
            if (s->kind == FO_CALL_SEPARABLE) fo_separable_release(s->separable.calls[i]);
        }
}

/* What has weights: a layer with a plan of its own. */
static fo_status run_layer(const fo_call *s) {
    if (s->kind == FO_CALL_CONV2D) {
        const fo_conv2d_args *a = &s->conv2d;
        return fo_conv2d_run_prepared(a->calls, a->plan, a->types, &a->size, &a->x,
                                      a->residual.data ? &a->residual : NULL, &a->y);
    }
    if (s->kind == FO_CALL_SEPARABLE) {
        const fo_separable_args *a = &s->separable;
        return fo_separable_run_prepared(a->calls, &a->block, &a->size, &a->x, a->residual.data ? &a->residual : NULL,
                                         &a->y);
    }
    if (s->kind == FO_CALL_CONV_TRANSPOSE) {
        const fo_conv_transpose_args *a = &s->conv_transpose;
        return fo_conv_transpose_run(a->plan, &a->size, &a->x, a->residual.data ? &a->residual : NULL, &a->y);
    }
    if (s->kind == FO_CALL_QLINEAR) {
        const fo_qlinear_args *a = &s->qlinear;
        return fo_qlinear_run(a->plan, a->types, a->m, a->x, a->ldx, a->residual, a->ldr, a->y, a->ldy);
    }
    const fo_linear_args *a = &s->linear;
    return fo_linear_run(a->plan, a->m, a->x, a->ldx, a->residual, a->ldr, a->y, a->ldy);
}

static fo_status run_step(const fo_call *s) {
    switch (s->kind) {
        case FO_CALL_CONV2D:
        case FO_CALL_SEPARABLE:
        case FO_CALL_CONV_TRANSPOSE:
        case FO_CALL_LINEAR:
        case FO_CALL_QLINEAR: return run_layer(s);
        case FO_CALL_SEQUENCE: return fo_sequence_run(&s->sequence);
        case FO_CALL_POINTWISE: fo_pointwise(&s->pointwise); return FO_OK;
        case FO_CALL_ELEMENTWISE: return fo_elementwise(&s->elementwise);
        case FO_CALL_COPY: return fo_strided_copy(&s->copy);
        case FO_CALL_FILL: return fo_fill(&s->fill);
        case FO_CALL_MAP: return fo_map(&s->map);
        case FO_CALL_ARGMAX: return fo_argmax(&s->argmax);
        case FO_CALL_TOP_K: return fo_top_k(&s->top_k);
        case FO_CALL_CUMSUM: return fo_cumsum(&s->cumsum);
        case FO_CALL_POOL: return fo_pool(&s->pool);
        case FO_CALL_REDUCE: return fo_reduce(&s->reduce);
        case FO_CALL_SOFTMAX: return fo_softmax(&s->softmax);
        case FO_CALL_NORM: return fo_norm(&s->norm);
        case FO_CALL_LRN: return fo_lrn(&s->lrn);
        case FO_CALL_RESIZE: return fo_resize(&s->resize);
        case FO_CALL_MATMUL: return fo_matmul(&s->matmul);
        case FO_CALL_ATTENTION: return fo_attention(&s->attention);
        case FO_CALL_CONVERT: fo_convert(&s->convert); return FO_OK;
        case FO_CALL_REQUANTIZE: return fo_requantize(&s->requantize);
        case FO_CALL_LOOKUP: return fo_lookup(&s->lookup);
        case FO_CALL_BYTE_BINARY: return fo_byte_binary(&s->byte_binary);
        case FO_CALL_BYTE_POOL: return fo_byte_pool(&s->byte_pool);
        case FO_CALL_NEAREST: return fo_nearest(&s->resize);
        case FO_CALL_ROTATE: return fo_rotate(&s->rotate);
    }
    return FO_OK;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct {
    const fo_call *steps;
    ptrdiff_t next, count, round;
    char *const *slots;
    double *seconds;
    bool alone; /* until a step has needed the team: the others keep it together */
    fo_status status;
} program;

static void run_steps(void *context) {
    program *p = context;
    for (bool led = false; p->next < p->count && p->status == FO_OK && !(led && p->alone); p->next++) {
        fo_call step = p->steps[p->next];
        for (int b = 0; b < step.bindings; b++) {
            ptrdiff_t offset;
            char *const place = (char *)&step + step.binding[b].at;
            memcpy(&offset, place, sizeof offset);
            char *const at = p->slots[step.binding[b].slot] + offset + p->round * step.binding[b].advance;
            memcpy(place, &at, sizeof at);
        }
        const double start = p->seconds ? now() : 0;
        p->status = run_step(&step);
        if (p->seconds) p->seconds[p->next] += now() - start;
        led = p->alone && fo_led_team();
        if (step.rounds > 1 && ++p->round < step.rounds)
            p->next -= step.back + 1;
        else if (step.rounds > 1)
            p->round = 0;
    }
}

fo_status fo_program_run(const fo_call *steps, ptrdiff_t count, char *const *slots, double *seconds) {
    if (seconds) memset(seconds, 0, (size_t)count * sizeof *seconds);
    program p = {.steps = steps, .count = count, .slots = slots, .seconds = seconds, .alone = true};
    fo_led_team();
    run_steps(&p);
    p.alone = false;
    if (p.next < count) fo_parallel_region(run_steps, &p);
    return p.status;
}
