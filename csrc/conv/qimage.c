#include <string.h>

#include "../matmul/packing.h"
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

typedef struct {
    fo_qextent e;
    ptrdiff_t size; /* of an element */
    fo_image from, to;
    ptrdiff_t piece, pieces; /* pixels of a task; tasks of a row */
} moving;

static void move_pixel(const moving *m, const char *x, char *y, ptrdiff_t pixels) {
    for (ptrdiff_t p = 0; p < pixels; p++)
        for (ptrdiff_t c = 0; c < m->e.c; c++)
            memcpy(y + (p * m->to.sw + c * m->to.sc) * m->size, x + (p * m->from.sw + c * m->from.sc) * m->size,
                   (size_t)m->size);
}

static void transpose(const moving *m, ptrdiff_t rows, ptrdiff_t columns, const void *x, ptrdiff_t ldx, void *y,
                      ptrdiff_t ldy) {
    if (m->size == 1)
        fo_active()->transpose_8(rows, columns, x, ldx, y, ldy);
    else if (m->size == 2)
        fo_transpose_16(rows, columns, x, ldx, y, ldy);
    else
        fo_active()->transpose(rows, columns, x, ldx, y, ldy);
}

static void move_task(void *context, ptrdiff_t task, int thread) {
    const moving *m = context;
    const ptrdiff_t w = task % m->pieces * m->piece, row = task / m->pieces, pixels = min_(m->piece, m->e.w - w);
    const fo_image *f = &m->from, *t = &m->to;
    const char *x = (const char *)f->data + (row / m->e.h * f->sn + row % m->e.h * f->sh + w * f->sw) * m->size;
    char *y = (char *)t->data + (row / m->e.h * t->sn + row % m->e.h * t->sh + w * t->sw) * m->size;
    (void)thread;
    if (f->sw == 1 && t->sc == 1)
        transpose(m, m->e.c, pixels, x, f->sc, y, t->sw);
    else if (f->sc == 1 && t->sw == 1)
        transpose(m, pixels, m->e.c, x, f->sw, y, t->sc);
    else
        move_pixel(m, x, y, pixels);
}

void fo_qmove(fo_qextent e, fo_dtype type, const fo_image *from, const fo_image *to) {
    moving m = {.e = e, .size = fo_size(type), .from = *from, .to = *to};
    if (e.h > 1 && from->sh == e.w * from->sw && to->sh == e.w * to->sw) m.e.w *= e.h, m.e.h = 1; /* rows are one */
    m.piece = clamp_(FO_COPY_BYTES / max_(e.c, 1), 4 * fo_active()->vl, max_(m.e.w, 1)),
    m.pieces = div_up(m.e.w, m.piece);
    fo_parallel_for(e.n * m.e.h * m.pieces, fo_threads_for(0.2 * (double)(e.n * e.c * e.h * e.w)), move_task, &m);
}

/* Pixels of a row of the image, by way of floats that stay near where they are not neighbours' channels already. */
typedef struct {
    fo_qextent e;
    fo_image from, to;
    ptrdiff_t piece, pieces, each; /* pixels of a task; tasks of a row; floats of a thread */
    float *scratch;
} rounding;

static void round_task(void *context, ptrdiff_t task, int thread) {
    const rounding *r = context;
    const ptrdiff_t c = r->e.c, w = task % r->pieces * r->piece, row = task / r->pieces,
                    pixels = min_(r->piece, r->e.w - w);
    const fo_image *f = &r->from, *t = &r->to;
    const float *x = f->data + row / r->e.h * f->sn + row % r->e.h * f->sh + w * f->sw;
    uint16_t *y = (uint16_t *)t->data + row / r->e.h * t->sn + row % r->e.h * t->sh + w * t->sw;
    if ((f->sc == 1 || c == 1) && f->sw == c) {
        fo_active()->narrow(pixels * c, x, y);
    } else if (f->sc == 1) {
        for (ptrdiff_t p = 0; p < pixels; p++) fo_active()->narrow(c, x + p * f->sw, y + p * c);
    } else {
        float *near = r->scratch + thread * r->each;
        if (f->sw == 1)
            fo_active()->transpose(c, pixels, x, f->sc, near, c);
        else
            for (ptrdiff_t p = 0; p < pixels; p++)
                for (ptrdiff_t i = 0; i < c; i++) near[p * c + i] = x[p * f->sw + i * f->sc];
        fo_active()->narrow(pixels * c, near, y);
    }
}

fo_status fo_qround(fo_qextent e, const fo_image *from, const fo_image *to) {
    rounding r = {.e = e, .from = *from, .to = *to};
    const int threads = fo_threads_for(0.2 * (double)(e.n * e.c * e.h * e.w));
    if (e.h > 1 && from->sh == e.w * from->sw) r.e.w *= e.h, r.e.h = 1; /* rows are one */
    r.piece = clamp_(FO_COPY_BYTES / (4 * max_(e.c, 1)), 16, max_(r.e.w, 1)), r.pieces = div_up(r.e.w, r.piece);
    r.each = r.piece * e.c;
    if (from->sc != 1 && e.c > 1 && !(r.scratch = fo_arena_share(&r.each, threads, 0))) return FO_NO_MEMORY;
    fo_parallel_for(e.n * r.e.h * r.pieces, threads, round_task, &r);
    if (r.scratch) fo_arena_release(r.scratch);
    return FO_OK;
}
