/* The activations, a row each. All that must know every one of them is made from this list: the enum and its names
 * (fusedops.h, activations.c), both switches of the epilogue (kernels/epilogue.h), the names in Python and the cases of
 * tests. So none can be left out of one of them.
 *
 * A row is X(with, kind, name, value): `with` is the caller's own, handed on; value is that of one vector x, in the
 * vocabulary of simd/simd.h and kernels/math.h, of the parameters p0 and p1 and, for FO_PRELU, the channels' slope.
 * Order: clips come first (fo_in_registers), then what costs next to nothing (fo_act_cost), up to FO_PRELU.
 */
#ifndef FO_EACH_ACTIVATION

/* clang-format off */
#define FO_EACH_ACTIVATION(X, with) \
    X(with, FO_IDENTITY, "identity", x) \
    /* relu is (0, inf), relu6 (0, 6); this order lets NaN through */ \
    X(with, FO_CLIP, "clip", v_min(v_set1(p1), v_max(v_set1(p0), x))) \
    /* x > 0 ? x : p0 x, and slopes[channel] x */ \
    X(with, FO_LEAKY_RELU, "leaky_relu", v_select(v_lt(x, v_zero()), v_mul(v_set1(p0), x), x)) \
    X(with, FO_PRELU, "prelu", v_select(v_lt(x, v_zero()), v_mul(slope, x), x)) \
    /* x > 0 ? x : p0 (e^x - 1) */ \
    X(with, FO_ELU, "elu", v_select(v_lt(x, v_zero()), v_mul(v_set1(-p0), v_one_minus_exp(v_abs(x))), x)) \
    X(with, FO_SIGMOID, "sigmoid", v_sigmoid(x)) \
    X(with, FO_TANH, "tanh", v_tanh(x)) \
    /* x/2 (1 + erf(x / sqrt 2)), and x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */ \
    X(with, FO_GELU, "gelu", v_gelu(x)) \
    X(with, FO_GELU_TANH, "gelu_tanh", v_gelu_tanh(x)) \
    X(with, FO_SILU, "silu", v_silu(x)) \
    /* clip(x/6 + 1/2, 0, 1), and x times that */ \
    X(with, FO_HARDSIGMOID, "hardsigmoid", v_hardsigmoid(x)) \
    X(with, FO_HARDSWISH, "hardswish", v_hardswish(x)) \
    /* log(1 + e^x), and x tanh(softplus(x)) */ \
    X(with, FO_SOFTPLUS, "softplus", v_softplus(x)) \
    X(with, FO_MISH, "mish", v_mish(x)) \
    X(with, FO_SOFTSIGN, "softsign", v_div(x, v_add(v_set1(1), v_abs(x)))) /* x / (1 + |x|) */
/* clang-format on */

#endif
