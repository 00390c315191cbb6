/* A network as an array of prepared calls: a run copies each one's arguments, puts in its own addresses and makes it.
 */
#define _POSIX_C_SOURCE 199309L
#include <string.h>
#include <time.h>

#include "../include/fusedops/program.h"
#include "../runtime/parallel.h"

void fo_bind(fo_step *step, void *pointer, int slot, ptrdiff_t offset, ptrdiff_t stride_bytes) {
    const ptrdiff_t at = (char *)pointer - (char *)step;
    memcpy(pointer, &offset, sizeof offset);
    step->binding[step->bindings].at = at;
    step->binding[step->bindings].stride_bytes = stride_bytes;
    step->binding[step->bindings++].slot = slot;
}

/* Whether a pointer inside a step is bound, or final and not NULL. */
static bool is_given(const fo_step *step, float *const *pointer) {
    const ptrdiff_t at = (const char *)pointer - (const char *)step;
    bool given = *pointer != NULL;
    for (int b = 0; b < step->bindings; b++) given |= step->binding[b].at == at;
    return given;
}

void fo_program_prepare(fo_step *step) {
    if (step->kind == FO_STEP_CONV2D) {
        fo_conv2d_args *a = &step->conv2d;
        fo_conv2d_prepare(a->calls, a->plan, a->types, &a->size, &a->x,
                          is_given(step, &a->residual.data) ? &a->residual : NULL, &a->y);
    } else if (step->kind == FO_STEP_SEPARABLE) {
        fo_separable_args *a = &step->separable;
        fo_separable_prepare(a->calls, &a->block, &a->size, &a->x,
                             is_given(step, &a->residual.data) ? &a->residual : NULL, &a->y);
    }
}

void fo_program_release(fo_step *steps, ptrdiff_t count) {
    for (fo_step *s = steps; s < steps + count; s++)
        for (int i = 0; i < 2; i++) {
            if (s->kind == FO_STEP_CONV2D) fo_conv2d_release(s->conv2d.calls[i]);
            if (s->kind == FO_STEP_SEPARABLE) fo_separable_release(s->separable.calls[i]);
        }
}

static const fo_image *given(const fo_image *image) { return image->data ? image : NULL; }

static fo_status run_conv2d(const fo_conv2d_args *a) {
    return fo_conv2d_run_prepared(a->calls, a->plan, a->types, &a->size, &a->x, given(&a->residual), &a->y);
}

static fo_status run_separable(const fo_separable_args *a) {
    return fo_separable_run_prepared(a->calls, &a->block, &a->size, &a->x, given(&a->residual), &a->y);
}

static fo_status run_conv_transpose(const fo_conv_transpose_args *a) {
    return fo_conv_transpose_run(a->plan, &a->size, &a->x, given(&a->residual), &a->y);
}

static fo_status run_linear(const fo_linear_args *a) {
    return fo_linear_run(a->plan, a->types, a->m, a->x, a->ldx, a->residual, a->ldr, a->y, a->ldy);
}

static fo_status run_pointwise(const fo_pointwise_args *a) {
    fo_pointwise(a);
    return FO_OK;
}

static fo_status run_convert(const fo_convert_args *a) {
    fo_convert(a);
    return FO_OK;
}

#define RUN_CASE(kind, name, type, run) \
    case FO_STEP_##kind: return run(&s->name);
static fo_status run_step(const fo_step *s) {
    switch (s->kind) { FO_EACH_STEP(RUN_CASE) }
    return FO_OK;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct {
    const fo_step *steps;
    ptrdiff_t next, count, repetition, failed;
    char *const *slots;
    double *seconds;
    bool alone; /* until a step has needed the team: the others keep it together */
    fo_status status;
} program;

static void run_steps(void *context) {
    program *p = context;
    for (bool led = false; p->next < p->count && p->status == FO_OK && !(led && p->alone); p->next++) {
        fo_step step = p->steps[p->next];
        for (int b = 0; b < step.bindings; b++) {
            ptrdiff_t offset;
            char *const place = (char *)&step + step.binding[b].at;
            memcpy(&offset, place, sizeof offset);
            char *const at = p->slots[step.binding[b].slot] + offset + p->repetition * step.binding[b].stride_bytes;
            memcpy(place, &at, sizeof at);
        }
        const double start = p->seconds ? now() : 0;
        p->status = run_step(&step);
        p->failed = p->next;
        if (p->seconds) p->seconds[p->next] += now() - start;
        led = p->alone && fo_led_team();
        if (step.repeats > 1 && ++p->repetition < step.repeats)
            p->next -= step.back + 1;
        else if (step.repeats > 1)
            p->repetition = 0;
    }
}

fo_status fo_program_run(const fo_step *steps, ptrdiff_t count, char *const *slots, double *seconds,
                         ptrdiff_t *failed) {
    if (seconds) memset(seconds, 0, (size_t)count * sizeof *seconds);
    program p = {.steps = steps, .count = count, .slots = slots, .seconds = seconds, .alone = true};
    fo_led_team();
    run_steps(&p);
    p.alone = false;
    if (p.next < count) fo_parallel_region(run_steps, &p);
    *failed = p.failed;
    return p.status;
}
