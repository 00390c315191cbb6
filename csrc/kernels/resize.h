/* Nearest and linear resizing of images whose channels are neighbours: vectors along the channels of a pixel. */

INLINE vf v_between(vf a, vf b, vf t) { return v_fma(t, v_sub(b, a), a); }

/* Output row h of image n. */
void FO_NAME(fo_resize_row)(const fo_resize_args *g, ptrdiff_t n, ptrdiff_t h) {
    const fo_image *s = &g->x;
    const float *image = s->data + n * s->sn, *upper = image + g->h0[h] * s->sh;
    const float *lower = g->h1 ? image + g->h1[h] * s->sh : upper;
    const vf down = v_set1(g->h1 ? g->th[h] : 0);
    for (ptrdiff_t w = 0; w < g->ow; w++) {
        const ptrdiff_t left = g->w0[w] * s->sw, right = g->w1 ? g->w1[w] * s->sw : left;
        const vf along = v_set1(g->w1 ? g->tw[w] : 0);
        float *y = g->y.data + n * g->y.sn + h * g->y.sh + w * g->y.sw;
        for (ptrdiff_t c = 0; c < g->c; c += VL) {
            const vm m = v_range(0, g->c - c);
            vf v = v_load_mask(upper + left + c, m);
            if (g->w1) v = v_between(v, v_load_mask(upper + right + c, m), along);
            if (g->h1) {
                vf below = v_load_mask(lower + left + c, m);
                if (g->w1) below = v_between(below, v_load_mask(lower + right + c, m), along);
                v = v_between(v, below, down);
            }
            v_store_mask(y + c, v, m);
        }
    }
}
