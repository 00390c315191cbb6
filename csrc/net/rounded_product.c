/* Products of bfloat16 inside other operations: rounding of their operands, and the calls of the kernels. */
#include <math.h>
#include <string.h>

#include "rounded_product.h"

void fo_round_floats(const fo_qkernels *qkn, ptrdiff_t n, const float *x, float *to) {
    uint16_t narrow[16 * MAX_LANES];
    for (ptrdiff_t i = 0, some; i < n; i += some) {
        some = min_(n - i, (ptrdiff_t)(sizeof narrow / sizeof *narrow));
        qkn->narrow(some, x + i, narrow);
        fo_active()->widen(some, FO_BF16, narrow, to + i);
    }
}

void fo_round(const fo_qkernels *qkn, ptrdiff_t k, const float *x, void *row, ptrdiff_t first, ptrdiff_t n) {
    if (qkn->gemm_bf16) {
        uint16_t *to = (uint16_t *)row + first;
        qkn->narrow(n, x, to);
        if (k % 2 && first + n == k) to[n] = 0;
        return;
    }
    fo_round_floats(qkn, n, x, (float *)row + first);
}

bool fo_rounded_weights_make(fo_rounded_weights *to, ptrdiff_t n, ptrdiff_t k, const uint16_t *w, const float *bias) {
    const fo_kernels *kn = fo_active();
    bool failed = false;
    *to = (fo_rounded_weights){.kn = kn, .n = n, .k = k, .narrow.kn = fo_active_qkernels()};
    if (to->narrow.kn->gemm_bf16)
        return fo_qplan_make(&to->narrow, FO_BF16, 1, n, k, w, k, 1, &(fo_quantized){.bias = bias});
    to->bias = fo_copy(bias, n, &failed);
    to->panels = fo_alloc((size_t)max_(fo_packed_size(kn, n, k) * fo_size(FO_BF16), 1));
    if (to->panels) fo_pack_weights(kn, n, k, &(fo_weights){w, FO_BF16}, 1, k, to->panels);
    return to->panels && !failed;
}

void fo_rounded_weights_free(fo_rounded_weights *w) {
    fo_qplan_free(&w->narrow);
    fo_free(w->panels);
    fo_free(w->bias);
}

void fo_rounded_gemm(const fo_qkernels *qkn, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, fo_rounded_rows a,
                     const void *panels, const float *bias, float *c, ptrdiff_t ldc) {
    qkn->gemm_bf16(
        &(fo_qgemm_args){.m = m,
                         .n = n,
                         .k = div_up(k, 2),
                         .segments = 1,
                         .lines = 1,
                         .a = (const uint8_t *)a.at,
                         .lda = a.ld,
                         .b = panels,
                         .c = c,
                         .ldc = ldc,
                         .ep = {.scale = bias, .bias = bias, .clips = true, .lo = -INFINITY, .hi = INFINITY}});
}

void fo_rounded_weights_product(const fo_rounded_weights *w, ptrdiff_t m, fo_rounded_rows a, ptrdiff_t j, ptrdiff_t n,
                                float *c, ptrdiff_t ldc) {
    if (w->narrow.kn->gemm_bf16) {
        const int8_t *panels = w->narrow.w + 4 * j * w->narrow.quads;
        fo_rounded_gemm(w->narrow.kn, m, n, w->k, a, panels, w->narrow.bias + j, c, ldc);
        return;
    }
    fo_gemm_args g = {.m = m,
                      .n = n,
                      .k = w->k,
                      .a = (const float *)a.at,
                      .lda = a.ld / (ptrdiff_t)sizeof(float),
                      .c = c,
                      .ldc = ldc,
                      .ep = {.bias = w->bias ? w->bias + j : NULL}};
    fo_gemm_panels(w->kn, &g, w->panels, FO_BF16, j / w->kn->nr);
    w->kn->gemm(&g);
}
