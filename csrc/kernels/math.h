/* Exponential functions over the vocabulary: no branch, no table, one formula for every lane.
 *
 * All rest on e^-x = s (1 - q): s = 2^n with n = -x / ln 2 rounded, and q = 1 - e^-r for what is left, |r| <= ln 2 / 2.
 * Sums such as 1 - e^-x are made of s and q, where what cancels is exact. Polynomials are minimax fits: each
 * coefficient was rounded to a float before the next ones were fitted.
 *
 * NaN gives NaN, an infinity the limit, a zero its own sign; subnormal x and results count as zero (kernels run with
 * flush-to-zero). Largest error over every float, in units in the last place of the exact result:
 *   exp 1.05   1 - exp 0.98   tanh 1.91   sigmoid 2.00   erf 3.83   softplus 3.67   silu 2.45   mish 4.66
 *   gelu 3.2 for |x| <= 1, gelu_tanh 2.9; both 1.4 for x > 4
 * Left of -1, gelu and gelu_tanh take e to a float near -x^2 / 2, whose rounding makes a relative error of 3e-6 at -4,
 * 2e-5 at -9. silu and mish are 0 below -87.3, where the factor of x is flushed.
 */

INLINE vf v_clamp(vf x, float lo, float hi) { return v_min(v_set1(hi), v_max(v_set1(lo), x)); }

typedef struct {
    vf n, s, q;
} v_exponential;

/* n, s and q for |x| <= 88. n times the rounding error of ln 2 shows in e^-x where x is `wide`, beyond 20 or so: there
 * ln 2 is the sum of 0x1.62e4p-1, which n multiplies exactly, and the rest. The fit's error is 1.4e-8 q. */
INLINE v_exponential v_exp_parts(vf x, const bool wide) {
    vf z = v_fnma(x, v_set1(1.44269504f), v_set1(V_POW2));
    vf n = v_sub(z, v_set1(V_POW2));
    vf r = v_fma(n, v_set1(wide ? 0x1.62e4p-1f : 0.693147182f), x);
    if (wide) r = v_fma(n, v_set1(1.42860677e-6f), r);
    vf r2 = v_mul(r, r);
    vf a = v_fnma(v_set1(0.16666539f), r, v_set1(0.49999997f));
    vf b = v_fnma(v_set1(0.008367088f), r, v_set1(0.041667748f));
    b = v_fma(v_set1(0.001383786f), r2, b);
    a = v_fma(b, r2, a);
    return (v_exponential){n, v_pow2(z), v_fnma(a, r2, r)};
}

/* e^-x for |x| <= 88. */
INLINE vf v_exp_minus(vf x, const bool wide) {
    v_exponential e = v_exp_parts(x, wide);
    return v_fnma(e.s, e.q, e.s);
}

/* 1 - e^-x for x >= 0. */
INLINE vf v_one_minus_exp(vf x) {
    v_exponential e = v_exp_parts(v_min(v_set1(25), x), false);
    return v_fma(e.s, e.q, v_sub(v_set1(1), e.s));
}

/* e^x. At both ends s is no float, so v_scale multiplies. */
INLINE vf v_exp(vf x) {
    v_exponential e = v_exp_parts(v_clamp(v_sub(v_zero(), x), -89, 104), true);
    return v_scale(v_sub(v_set1(1), e.q), e.n);
}

/* 1 + e^-x, for x bounded to -bound..bound, bound <= 88: times 2 it is finite. */
INLINE vf v_one_plus_exp(vf x, vf bound) {
    v_exponential e = v_exp_parts(v_min(bound, v_max(v_sub(v_zero(), bound), x)), true);
    return v_add(v_fnma(e.s, e.q, v_set1(1)), e.s);
}

/* 1 / (1 + e^-x). Left of -88 it stays at 6e-39, which flush-to-zero makes 0. */
INLINE vf v_sigmoid(vf x) { return v_div(v_set1(1), v_one_plus_exp(x, v_set1(88))); }

/* (1 - e^-2|x|) / (den (1 + e^-2|x|)) with the sign of x, for |x| bounded by bound; from 9.02 on it is 1 / den. */
INLINE vf v_tanh_over(vf den, vf x, vf bound) {
    vf t = v_min(bound, v_abs(x)), one = v_set1(1);
    v_exponential e = v_exp_parts(v_add(t, t), false);
    vf num = v_fma(e.s, e.q, v_sub(one, e.s)), plus = v_fnma(e.s, e.q, v_add(one, e.s));
    return v_copysign(v_div(num, v_mul(den, plus)), x);
}

INLINE vf v_tanh(vf x) { return v_tanh_over(v_set1(1), x, v_set1(9.02f)); }

/* The bits of x as numbers: from `first` on so many. */
INLINE vf v_bits_of(vf x, int first, int bits) {
    union {
        float lanes[VL];
        uint32_t words[VL];
    } memory;
    v_store(memory.lanes, x);
    return v_sub(v_load_bits(memory.words, first, 0, bits), v_set1(0x1p23f));
}

/* ln x = n ln 2 + ln(1 + f) for x = 2^n (1 + f), f in sqrt(1/2) - 1 .. sqrt(2) - 1, with the polynomial of Cephes.
 * Subnormal x are integers times 2^-149, with a logarithm here. */
INLINE vf v_log(vf x) {
    static const float c[] = {-1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                              -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f};
    const vf whole = v_bits_of(x, 0, 23);
    const vm small = v_lt(v_bits_of(x, 23, 8), v_set1(1));
    const vf z = v_select(small, whole, x), m = v_fma(v_bits_of(z, 0, 23), v_set1(0x1p-23f), v_set1(1));
    const vm high = v_lt(v_set1(1.41421356f), m);
    vf n = v_sub(v_bits_of(z, 23, 8), v_select(small, v_set1(127 + 149), v_set1(127)));
    n = v_select(high, v_add(n, v_set1(1)), n);
    const vf f = v_sub(v_select(high, v_mul(v_set1(0.5f), m), m), v_set1(1)), f2 = v_mul(f, f);
    vf p = v_set1(7.0376836292e-2f);
    UNROLL_FOR (int i = 0; i < 8; i++) p = v_fma(p, f, v_set1(c[i]));
    vf y = v_fma(n, v_set1(-2.12194440e-4f), v_mul(v_mul(p, f2), f));
    y = v_fma(n, v_set1(0.693359375f), v_add(f, v_fma(v_set1(-0.5f), f2, y)));
    y = v_select(v_lt(v_copysign(v_set1(1), x), v_zero()), v_set1(NAN), y);
    y = v_select(v_lt(z, v_set1(FLT_MIN)), v_select(v_lt(z, v_zero()), y, v_set1(-INFINITY)), y);
    return v_select(v_lt(x, v_set1(INFINITY)), y, x);
}

/* max(x, 0) + ln(1 + u), u = e^-|x|, and ln(1 + u) = 2 atanh(v / 2), v = u / (1 + u / 2) in 0..2/3. */
INLINE vf v_softplus(vf x) {
    vf u = v_exp_minus(v_min(v_set1(88), v_abs(x)), true);
    vf v = v_div(u, v_fma(u, v_set1(0.5f), v_set1(1))), v2 = v_mul(v, v);
    vf t = v_fma(v_set1(0.00054700946f), v2, v_set1(0.0021877356f));
    t = v_fma(t, v2, v_set1(0.012506699f));
    t = v_fma(t, v2, v_set1(0.083333023f));
    t = v_fma(t, v2, v_set1(1));
    return v_fma(t, v, v_max(v_zero(), x));
}

/* c0 - ln erfc(t / sqrt 2) for t in 0..13, a smooth function near t^2 / 2. The fit's relative error in erfc and in 1 -
 * erfc is 2e-7 to t = 3 and 1e-6 to t = 5; from there, where erfc < 1e-6, it may grow: 4e-3 at t = 10, 0.4 at t =
 * 13. */
INLINE vf v_minus_log_erfc(const float c0, vf t) {
    static const float c[] = {0x1.988454p-1f,   0x1.45f2b6p-2f,  0x1.29b870p-5f,   -0x1.3a5522p-8f,
                              -0x1.d1586cp-16f, 0x1.c6cc8ap-13f, -0x1.0df33cp-14f, 0x1.71dbdcp-17f,
                              -0x1.47091ep-20f, 0x1.6de80cp-24f, -0x1.d58652p-29f, 0x1.061518p-34f};
    vf t2 = v_mul(t, t), odd = v_set1(c[10]), even = v_set1(c[11]); /* two chains: half the latency */
    UNROLL_FOR (int i = 8; i >= 0; i -= 2) {
        odd = v_fma(odd, t2, v_set1(c[i]));
        even = v_fma(even, t2, v_set1(c[i + 1]));
    }
    return v_fma(odd, t, v_fma(even, t2, v_set1(c0)));
}

INLINE vf v_erf(vf x) {
    vf t = v_min(v_set1(5.8f), v_mul(v_abs(x), v_set1(1.41421356f)));
    return v_copysign(v_one_minus_exp(v_minus_log_erfc(0, t)), x);
}

/* x P(X < x) of a normal X = max(x, 0) - t P(X > t), t = |x|: no digits are lost on the left. */
INLINE vf v_gelu(vf x) {
    vf t = v_min(v_set1(13), v_abs(x));
    vf tail = v_exp_minus(v_minus_log_erfc(0.693147182f, t), false);
    return v_fnma(t, tail, v_max(v_zero(), x));
}

/* x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)); it vanishes left of -14. */
INLINE vf v_gelu_tanh(vf x) {
    x = v_max(v_set1(-14), x);
    return v_mul(x, v_sigmoid(v_mul(x, v_fma(v_mul(x, x), v_set1(0.0713548163f), v_set1(1.59576912f)))));
}

INLINE vf v_silu(vf x) {
    x = v_max(v_set1(-100), x);
    return v_mul(x, v_sigmoid(x));
}

/* x tanh(softplus(x)) = x n / (n + 2), n = u (u + 2), u = e^x. */
INLINE vf v_mish(vf x) {
    x = v_max(v_set1(-88), x);
    vf u = v_exp_minus(v_max(v_set1(-20), v_sub(v_zero(), x)), true), n = v_mul(u, v_add(u, v_set1(2)));
    return v_mul(x, v_div(n, v_add(n, v_set1(2))));
}

INLINE vf v_hardsigmoid(vf x) { return v_mul(v_clamp(v_add(x, v_set1(3)), 0, 6), v_set1(1 / 6.f)); }

INLINE vf v_hardswish(vf x) {
    x = v_max(v_set1(-3), x);
    return v_mul(x, v_mul(v_min(v_set1(6), v_add(x, v_set1(3))), v_set1(1 / 6.f)));
}
