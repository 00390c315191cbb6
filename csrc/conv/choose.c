/* Convolutions: the one list of algorithms, the choice among them, and the prepared calls that plans keep.
 *
 *     plan -> a rewrite, or the cheapest algorithm that applies -> its prepared call -> runs
 *
 * A call is prepared for sizes, strides and a number of threads, and is constant then. All that is known of a
 * convolution's kernel is read from it.
 */
#include "choose.h"

#include <math.h>
#include <string.h>

#include "algorithm.h"
#include "cost.h"
#include "rewrite.h"

/* ---- the list ---------------------------------------------------------------------------------------------------- */

/* Of equal costs the first one counts. */
#define ROW(name, named, algorithm) TYPED(name, FO_OF(FO_F32), named, algorithm)
#define TYPED(name, types, named, algorithm) \
    {name, types, named, fo_##algorithm##_applies, fo_cost_##algorithm, NULL, fo_##algorithm##_prepare, \
     fo_##algorithm##_run}
#define ALONE(name, types, algorithm, inner) \
    {name, types, FO_BY_ANY, fo_##algorithm##_applies, NULL, inner, fo_##algorithm##_prepare, fo_##algorithm##_run}
static const fo_algorithm algorithms[] = {
    ROW("depthwise", FO_BY_ANY, depthwise),
    ROW("winograd", FO_BY(FO_AUTO) | FO_BY(FO_WINOGRAD), winograd),
    ROW("winograd", FO_BY(FO_AUTO) | FO_BY(FO_WINOGRAD_1D), winograd1d),
    ROW("direct", FO_BY(FO_AUTO) | FO_BY(FO_DIRECT), im2col),
    TYPED("direct", FO_OF(FO_F32) | FO_OF(FO_F16), FO_BY_ANY, direct),
    ALONE("depthwise", FO_OF(FO_S8), qdepthwise, NULL),
    ALONE("gemm", FO_OF(FO_S8) | FO_OF(FO_BF16), qgemm, NULL),
    ALONE("im2col", FO_OF(FO_S8) | FO_OF(FO_BF16), qim2col, NULL),
    ALONE("rounded", FO_OF(FO_BF16), rounded, fo_rounded_inner),
};
enum { ALGORITHMS = sizeof algorithms / sizeof *algorithms };

static const fo_algorithm rewritten = {"rewritten", FO_OF(FO_F32), FO_BY_ANY, NULL, NULL, NULL, NULL, fo_rewrite_run};

static bool admits(const fo_algorithm *a, const fo_conv2d *plan, const fo_conv2d_size *z) {
    return (a->types & FO_OF(plan->type)) && (a->named & FO_BY(plan->s.algorithm)) && a->applies(plan, z);
}

/* An algorithm that the caller names costs 0, so it is taken wherever it applies. So does the only one for weights that
 * are not float32. */
static double cost(const fo_algorithm *a, const fo_costing *c) {
    const bool named = c->plan->s.algorithm > FO_DIRECT && a->named != FO_BY_ANY;
    return named || c->plan->type != FO_F32 ? 0 : a->nanoseconds(c);
}

static _Atomic ptrdiff_t choices;
ptrdiff_t fo_conv2d_choices(void) { return atomic_load(&choices); }

static const fo_algorithm *cheapest(const fo_conv2d *plan, const fo_conv2d_size *z) {
    const fo_algorithm *best = NULL;
    double least = INFINITY;
    const fo_costing costing = fo_costing_of(plan, z);
    atomic_fetch_add_explicit(&choices, 1, memory_order_relaxed);
    for (const fo_algorithm *a = algorithms; a < algorithms + ALGORITHMS; a++) {
        if (!admits(a, plan, z)) continue;
        const double ns = cost(a, &costing);
        if (ns < least) best = a, least = ns;
    }
    return best;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* A plan keeps the prepared calls of some sizes, because choosing and preparing take as long as a tiny image. A call
 * that runs is taken out, so that it can be freed without a lock, which a fork could leave held. */
enum { KEPT = 4 };
struct fo_prepared {
    fo_conv2d *to; /* the plan of a rewrite, or NULL */
    _Atomic(fo_prepared_conv2d *) kept[KEPT];
    atomic_uint replaced;
};

static fo_layout layout_of(fo_types types, const fo_conv2d_size *z, const fo_image *x, const fo_image *r,
                           const fo_image *y) {
    fo_layout layout = {*z, *x, r ? *r : (fo_image){0}, *y, types, r != NULL};
    layout.x.data = layout.r.data = layout.y.data = NULL;
    return layout;
}

void fo_conv2d_release(fo_prepared_conv2d *call) {
    if (!call) return;
    for (int i = 0; i < 2; i++) fo_conv2d_release(call->inner[i]);
    if (call->state != call->room) free(call->state);
    free(call);
}

static fo_prepared_conv2d *new_call(const fo_conv2d *plan, const fo_layout *layout, fo_team team) {
    fo_prepared_conv2d *call = malloc(sizeof *call);
    if (!call) return NULL;
    memset(call, 0, offsetof(fo_prepared_conv2d, room));
    call->plan = plan, call->layout = *layout, call->team = team;
    return call;
}

/* The call, or NULL if that failed. */
static fo_prepared_conv2d *checked(fo_prepared_conv2d *call, fo_status status) {
    if (status == FO_OK) return call;
    fo_conv2d_release(call);
    return NULL;
}

/* Whether images of this size are rewritten. */
static bool is_rewritten(const fo_conv2d *plan, const fo_conv2d_size *z) {
    const fo_conv2d *to = plan->prepared->to;
    return to && fo_rewrite_applies(plan, to, z) && fo_rewrite_pays(plan, to, z);
}

static fo_prepared_conv2d *prepared(const fo_conv2d *plan, const fo_layout *layout, fo_team team);

/* A call by an algorithm of the list; NULL where memory is short. */
static fo_prepared_conv2d *listed_call(const fo_conv2d *plan, const fo_layout *layout, fo_team team) {
    fo_prepared_conv2d *call = new_call(plan, layout, team);
    if (!call) return NULL;
    call->algorithm = cheapest(plan, &layout->z);
    if (call->algorithm->inner) {
        const fo_layout inner = call->algorithm->inner(plan, layout);
        if (!(call->inner[0] = prepared(plan->wide, &inner, team))) return checked(call, FO_NO_MEMORY);
    }
    return checked(call, call->algorithm->prepare(call));
}

/* A call of `to`; its kernel's name is that of the inner call. */
static fo_prepared_conv2d *rewritten_call(const fo_conv2d *plan, const fo_conv2d *to, const fo_layout *layout,
                                          fo_team team) {
    fo_prepared_conv2d *call = new_call(plan, layout, team);
    fo_layout inner[2] = {0};
    if (!call) return NULL;
    call->algorithm = &rewritten;
    fo_status status = fo_rewrite_prepare(call, to, inner);
    if (call->threads > 1) team = fo_region_team();
    for (int i = 0; i < 2 && status == FO_OK; i++)
        if (inner[i].z.n && !(call->inner[i] = listed_call(to, &inner[i], team))) status = FO_NO_MEMORY;
    if (status == FO_OK) call->kernel = call->inner[0]->kernel, call->scratch += call->inner[0]->scratch;
    return checked(call, status);
}

static fo_prepared_conv2d *prepared(const fo_conv2d *plan, const fo_layout *layout, fo_team team) {
    if (fo_is_huge(plan, &layout->z)) return NULL;
    return is_rewritten(plan, &layout->z) ? rewritten_call(plan, plan->prepared->to, layout, team)
                                          : listed_call(plan, layout, team);
}

/* Whether a call is prepared for these threads. */
static bool fits(const fo_prepared_conv2d *call, fo_team team) {
    bool all = fo_threads_of(team, call->work) == call->threads;
    if (call->threads > 1) return all; /* a rewrite's inner calls know its team */
    for (int i = 0; i < 2; i++) all = all && (!call->inner[i] || fits(call->inner[i], team));
    return all;
}

/* ---- the calls that a plan keeps --------------------------------------------------------------------------------- */

/* Keeps it in an empty place, or else in that of another. */
static void keep(struct fo_prepared *p, fo_prepared_conv2d *call) {
    for (int i = 0; i < KEPT; i++) {
        fo_prepared_conv2d *none = NULL;
        if (atomic_load_explicit(&p->kept[i], memory_order_relaxed)) continue;
        if (atomic_compare_exchange_strong(&p->kept[i], &none, call)) return;
    }
    fo_conv2d_release(atomic_exchange(&p->kept[atomic_fetch_add(&p->replaced, 1) % KEPT], call));
}

/* The call of this layout, or NULL. */
static fo_prepared_conv2d *take(struct fo_prepared *p, const fo_layout *layout, fo_team team) {
    for (int i = 0; i < KEPT; i++) {
        if (!atomic_load_explicit(&p->kept[i], memory_order_relaxed)) continue;
        fo_prepared_conv2d *call = atomic_exchange(&p->kept[i], NULL);
        if (!call) continue;
        if (!memcmp(&call->layout, layout, sizeof *layout) && fits(call, team)) return call;
        keep(p, call);
    }
    return NULL;
}

/* ---- the interface ----------------------------------------------------------------------------------------------- */

static void free_prepared(struct fo_prepared *p) {
    for (int i = 0; i < KEPT; i++) fo_conv2d_release(atomic_load(&p->kept[i]));
    fo_plan_free_shared(p->to);
    fo_free(p);
}

/* The plan with room for its calls. */
static fo_conv2d *with_calls(fo_conv2d *plan) {
    fo_conv2d_shape other;
    bool made = plan && (plan->prepared = fo_alloc(sizeof *plan->prepared));
    if (made) memset(plan->prepared, 0, sizeof *plan->prepared);
    if (made && plan->type == FO_F32 && fo_rewrite_shape(plan, &other))
        made = (plan->prepared->to = fo_plan_share(plan, &other));
    if (made) return plan;
    fo_conv2d_free(plan);
    return NULL;
}

fo_conv2d *fo_conv2d_create_int8(const fo_conv2d_shape *shape, const int8_t *w, const fo_quantized *q) {
    return with_calls(fo_qconv2d_plan(shape, FO_S8, w, q));
}

fo_conv2d *fo_conv2d_create(const fo_conv2d_shape *shape, fo_dtype a, const fo_weights *w, const double *scale,
                            const float *bias) {
    if (!w->data) return with_calls(fo_plan_new(shape, w->type));
    if (a == FO_F32) return with_calls(fo_plan_create(shape, w, scale, bias));
    const ptrdiff_t k = shape->ic / shape->groups * shape->kh * shape->kw;
    uint16_t *rounded = fo_bf16_weights(shape->oc, k, w, k, 1, scale);
    fo_conv2d *plan = NULL;
    if (rounded && k > shape->kh * shape->kw) {
        plan = fo_qconv2d_plan(shape, FO_BF16, rounded, &(fo_quantized){.bias = bias, .act = shape->act});
    } else if (rounded && (plan = fo_rounded_plan(shape))) {
        const fo_weights wide = {fo_widened_weights(plan, rounded), FO_F32};
        plan->wide = wide.data ? fo_conv2d_create(shape, FO_F32, &wide, NULL, bias) : NULL;
        fo_free((void *)wide.data);
        if (!plan->wide) fo_plan_free(plan), plan = NULL;
    }
    fo_free(rounded);
    return with_calls(plan);
}

void fo_conv2d_free(fo_conv2d *plan) {
    if (!plan) return;
    if (plan->prepared) free_prepared(plan->prepared);
    fo_conv2d_free(plan->wide);
    fo_qconv2d_free(plan->q);
    fo_plan_free(plan);
}

bool fo_conv2d_weights(const fo_conv2d *plan, void *w) {
    if (plan->q) return fo_qconv2d_weights(plan->q, w);
    fo_plan_weights(plan->wide ? plan->wide : plan, w);
    return true;
}

static ptrdiff_t bytes_of(const fo_conv2d *plan, int form) {
    return plan && atomic_load(&plan->packed[form]) ? atomic_load(&plan->bytes[form]) : 0;
}

ptrdiff_t fo_conv2d_memory(const fo_conv2d *plan, int form, const char **name) {
    static const char *const names[] = {"weights", FO_EACH_WEIGHT_FORM(FO_NAMED)};
    if (form < 0 || form > FO_WEIGHT_FORMS) return -1;
    *name = names[form];
    if (plan->wide) return fo_conv2d_memory(plan->wide, form, name);
    if (plan->q) return form ? 0 : fo_qconv2d_bytes(plan->q);
    if (!form) return plan->w ? plan->s.oc * plan->ldw * fo_size(plan->type) : 0;
    return bytes_of(plan, form - 1) + bytes_of(plan->prepared->to, form - 1);
}

static bool is_empty(const fo_conv2d *plan, const fo_conv2d_size *z) {
    return !z->n || !z->oh || !z->ow || !plan->s.oc;
}

fo_status fo_conv2d_run_as(const fo_conv2d *plan, fo_types types, const fo_conv2d_size *z, const fo_image *x,
                           const fo_image *residual, const fo_image *y) {
    if (is_empty(plan, z)) return FO_OK;
    const fo_layout layout = layout_of(types, z, x, residual, y);
    const fo_team team = fo_team_here();
    fo_prepared_conv2d *call = take(plan->prepared, &layout, team);
    if (!call && !(call = prepared(plan, &layout, team))) return FO_NO_MEMORY;
    const fo_status status = fo_call_run(call, x, residual, y);
    keep(plan->prepared, call);
    return status;
}

fo_status fo_conv2d_run(const fo_conv2d *plan, const fo_conv2d_size *z, const fo_image *x, const fo_image *residual,
                        const fo_image *y) {
    return fo_conv2d_run_as(plan, (fo_types){0}, z, x, residual, y);
}

void fo_conv2d_prepare(fo_prepared_conv2d *calls[2], const fo_conv2d *plan, fo_types types, const fo_conv2d_size *z,
                       const fo_image *x, const fo_image *residual, const fo_image *y) {
    const fo_layout layout = layout_of(types, z, x, residual, y);
    const fo_team inside = fo_region_team();
    calls[0] = is_empty(plan, z) ? NULL : prepared(plan, &layout, fo_team_here());
    calls[1] = !calls[0] || fits(calls[0], inside) ? NULL : prepared(plan, &layout, inside);
}

fo_status fo_conv2d_run_prepared(fo_prepared_conv2d *const calls[2], const fo_conv2d *plan, fo_types types,
                                 const fo_conv2d_size *z, const fo_image *x, const fo_image *residual,
                                 const fo_image *y) {
    const fo_team team = fo_team_here();
    for (int i = 0; i < 2; i++)
        if (calls[i] && fits(calls[i], team)) return fo_call_run(calls[i], x, residual, y);
    return fo_conv2d_run_as(plan, types, z, x, residual, y);
}

/* A call of whole contiguous images; NULL where memory is short. */
static fo_prepared_conv2d *contiguous_call(const fo_conv2d *plan, const fo_conv2d_size *z, bool nhwc) {
    const fo_image x = fo_contiguous(plan->s.ic, z->ih, z->iw, nhwc), y = fo_contiguous(plan->s.oc, z->oh, z->ow, nhwc);
    const fo_layout layout = layout_of((fo_types){0}, z, &x, NULL, &y);
    return prepared(plan, &layout, fo_team_here());
}

double fo_conv2d_nanoseconds(const fo_conv2d *plan, const fo_conv2d_size *z) {
    const bool other = is_rewritten(plan, z);
    const fo_conv2d *to = other ? plan->prepared->to : plan;
    const fo_conv2d_size size = other ? fo_rewrite_size(to, z) : *z;
    const fo_costing costing = fo_costing_of(to, &size);
    if (is_empty(plan, z)) return 0;
    return (double)size.n *
           (fo_is_depthwise(to) ? fo_depthwise_nanoseconds(to, &size) : cheapest(to, &size)->nanoseconds(&costing));
}

const char *fo_conv2d_kernel(const fo_conv2d *plan, const fo_conv2d_size *z, bool nhwc, ptrdiff_t *scratch) {
    *scratch = 0;
    if (is_empty(plan, z)) return "none, an empty result";
    fo_prepared_conv2d *call = contiguous_call(plan, z, nhwc);
    const char *kernel = call ? call->kernel : NULL;
    if (call) *scratch = call->scratch;
    fo_conv2d_release(call);
    return kernel;
}

/* Adds the names of a plan's algorithms to those there are. */
static int add_names(const fo_conv2d *plan, const fo_conv2d_size *z, const char *names[FO_ALGORITHM_NAMES], int count) {
    for (const fo_algorithm *a = algorithms; a < algorithms + ALGORITHMS; a++) {
        bool known = !admits(a, plan, z);
        for (int i = 0; i < count; i++) known |= !strcmp(names[i], a->name);
        if (!known) names[count++] = a->name;
    }
    return count;
}

int fo_conv2d_algorithms(const fo_conv2d *plan, const fo_conv2d_size *z, const char *names[FO_ALGORITHM_NAMES]) {
    int count = 0;
    if (is_rewritten(plan, z)) {
        const fo_conv2d_size size = fo_rewrite_size(plan->prepared->to, z);
        count = add_names(plan->prepared->to, &size, names, count);
    }
    return add_names(plan, z, names, count);
}

ptrdiff_t fo_conv2d_pixel(const fo_conv2d *plan) {
    const ptrdiff_t ic = plan->s.ic;
    /* ResNet-50: 0.96 of the time */
    const bool far = fo_is_depthwise(plan) ? !plan->kn->vec_is_line : ic >= FO_PAGE_FLOATS;
    const bool aliases = ic % FO_SHARED_SETS_FLOATS == 0 && far;
    return aliases ? ic + 16 : ic;
}
