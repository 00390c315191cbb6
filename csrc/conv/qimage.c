#include <string.h>

#include "../machine/tune.h"
#include "../runtime/arena.h"
#include "../runtime/parallel.h"
#include "qimage.h"

bool fo_quniform(const fo_image *x, fo_qextent e, ptrdiff_t *ld) {
    *ld = e.n > 1 ? x->sn : e.c;
    if (e.h > 1) *ld = x->sh;
    if (e.w > 1) *ld = x->sw;
    return (e.c == 1 || x->sc == 1) && (e.h == 1 || x->sh == e.w * *ld) && (e.n == 1 || x->sn == e.h * e.w * *ld);
}

bool fo_qlines(const fo_image *x, fo_qextent e, ptrdiff_t *ld, ptrdiff_t *line) {
    *ld = e.w > 1 ? x->sw : e.c, *line = e.h > 1 ? x->sh : x->sn;
    return *line && (e.c == 1 || x->sc == 1) && (e.n == 1 || x->sn == e.h * *line);
}

static void transpose(const fo_kernels *kn, ptrdiff_t size, ptrdiff_t rows, ptrdiff_t columns, const void *x,
                      ptrdiff_t ldx, void *y, ptrdiff_t ldy) {
    if (size == 1)
        kn->transpose_8(rows, columns, x, ldx, y, ldy);
    else if (size == 2)
        kn->transpose_16(rows, columns, x, ldx, y, ldy);
    else
        kn->transpose(rows, columns, x, ldx, y, ldy);
}

void fo_qmove_pixels(const fo_kernels *kn, ptrdiff_t size, ptrdiff_t c, ptrdiff_t pixels, const void *x, fo_qsteps from,
                     void *y, fo_qsteps to) {
    if (from.w == 1 && to.c == 1) {
        transpose(kn, size, c, pixels, x, from.c, y, to.w);
    } else if (from.c == 1 && to.w == 1) {
        transpose(kn, size, pixels, c, x, from.w, y, to.c);
    } else {
        for (ptrdiff_t p = 0; p < pixels; p++)
            for (ptrdiff_t i = 0; i < c; i++)
                memcpy((char *)y + (p * to.w + i * to.c) * size, (const char *)x + (p * from.w + i * from.c) * size,
                       (size_t)size);
    }
}

void fo_qround_pixels(const fo_kernels *kn, ptrdiff_t c, ptrdiff_t pixels, const float *x, fo_qsteps from, float *near,
                      uint16_t *y) {
    if ((from.c == 1 || c == 1) && from.w == c) {
        kn->narrow(pixels * c, x, y);
    } else if (from.c == 1) {
        for (ptrdiff_t p = 0; p < pixels; p++) kn->narrow(c, x + p * from.w, y + p * c);
    } else if (from.w == 1 && c <= FO_TRANSPOSE_ELEMENTS) {
        uint16_t *planes = (uint16_t *)near;
        for (ptrdiff_t i = 0; i < c; i++) kn->narrow(pixels, x + i * from.c, planes + i * pixels);
        kn->transpose_16(c, pixels, planes, pixels, y, c);
    } else {
        fo_qmove_pixels(kn, sizeof *x, c, pixels, x, from, near, (fo_qsteps){1, c});
        kn->narrow(pixels * c, near, y);
    }
}

typedef struct {
    fo_qextent e;
    ptrdiff_t size; /* of an element */
    fo_image from, to;
    ptrdiff_t piece, pieces; /* pixels of a task; tasks of a row */
} moving;

static void move_task(void *context, ptrdiff_t task, int thread) {
    const moving *m = context;
    const ptrdiff_t w = task % m->pieces * m->piece, row = task / m->pieces, pixels = min_(m->piece, m->e.w - w);
    const fo_image *f = &m->from, *t = &m->to;
    const char *x = (const char *)f->data + (row / m->e.h * f->sn + row % m->e.h * f->sh + w * f->sw) * m->size;
    char *y = (char *)t->data + (row / m->e.h * t->sn + row % m->e.h * t->sh + w * t->sw) * m->size;
    (void)thread;
    fo_qmove_pixels(fo_active(), m->size, m->e.c, pixels, x, (fo_qsteps){f->sc, f->sw}, y, (fo_qsteps){t->sc, t->sw});
}

void fo_qmove(fo_qextent e, fo_dtype type, const fo_image *from, const fo_image *to) {
    moving m = {.e = e, .size = fo_size(type), .from = *from, .to = *to};
    if (e.h > 1 && from->sh == e.w * from->sw && to->sh == e.w * to->sw) m.e.w *= e.h, m.e.h = 1; /* rows are one */
    m.piece = clamp_(FO_COPY_BYTES / max_(e.c, 1), 4 * fo_active()->vl, max_(m.e.w, 1)),
    m.pieces = div_up(m.e.w, m.piece);
    fo_parallel_for(e.n * m.e.h * m.pieces, fo_threads_for(0.2 * (double)(e.n * e.c * e.h * e.w)), move_task, &m);
}

/* Floats of a row of the image as bfloat16. */
typedef struct {
    fo_qextent e;
    fo_image from, to;
    ptrdiff_t piece, pieces, each; /* pixels of a task; tasks of a row; floats of a thread */
    float *scratch;
} rounding;

static void round_task(void *context, ptrdiff_t task, int thread) {
    const rounding *r = context;
    const ptrdiff_t w = task % r->pieces * r->piece, row = task / r->pieces, pixels = min_(r->piece, r->e.w - w);
    const fo_image *f = &r->from, *t = &r->to;
    const float *x = f->data + row / r->e.h * f->sn + row % r->e.h * f->sh + w * f->sw;
    uint16_t *y = (uint16_t *)t->data + row / r->e.h * t->sn + row % r->e.h * t->sh + w * t->sw;
    float *near = r->scratch ? r->scratch + thread * r->each : NULL;
    fo_qround_pixels(fo_active(), r->e.c, pixels, x, (fo_qsteps){f->sc, f->sw}, near, y);
}

fo_status fo_qround(fo_qextent e, const fo_image *from, const fo_image *to) {
    rounding r = {.e = e, .from = *from, .to = *to};
    const int threads = fo_threads_for(0.2 * (double)(e.n * e.c * e.h * e.w));
    if (e.h > 1 && from->sh == e.w * from->sw) r.e.w *= e.h, r.e.h = 1; /* rows are one */
    r.piece = clamp_(FO_COPY_BYTES / (4 * max_(e.c, 1)), 16, max_(r.e.w, 1)), r.pieces = div_up(r.e.w, r.piece);
    r.each = r.piece * e.c;
    if (from->sc != 1 && !(r.scratch = fo_arena_share(&r.each, threads, 0))) return FO_NO_MEMORY;
    fo_parallel_for(e.n * r.e.h * r.pieces, threads, round_task, &r);
    if (r.scratch) fo_arena_release(r.scratch);
    return FO_OK;
}
