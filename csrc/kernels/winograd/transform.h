/* The transforms of one row or column of a tile, on registers: d = B^T d and d = A^T d (points.h). */

INLINE vf v_times(double c, vf x) { return c == 1 ? x : v_mul(v_set1((float)c), x); }
INLINE vf v_plus(vf y, double c, vf x) { return c == 1 ? v_add(y, x) : v_fma(v_set1((float)c), x, y); }   /* y + c x */
INLINE vf v_minus(vf y, double c, vf x) { return c == 1 ? v_sub(y, x) : v_fnma(v_set1((float)c), x, y); } /* y - c x */

/* The rows of B^T for the points +-p, from the even and the odd part of the product over the other points. */
INLINE void pair(vf *rows, double p, vf even, vf odd) {
    rows[0] = v_plus(even, p, odd);
    rows[1] = v_minus(even, p, odd);
}

/* x4 - (p^2 + q^2) x2 + p^2 q^2 x0. F(6x6), whose points are 1, p and 1/p, takes sums that several rows of B^T share:
 * 12 multiply-adds and 10 sums, not 18 and 6. */
INLINE vf quartic(double p, double q, vf x4, vf x2, vf x0) {
    if (p == 1) return v_minus(v_sub(x4, x2), SQUARE(q), v_sub(x2, x0));
    if (p * q == 1) return v_minus(v_add(x4, x0), SQUARE(p) + SQUARE(q), x2);
    return v_plus(v_minus(x4, SQUARE(p) + SQUARE(q), x2), SQUARE(p) * SQUARE(q), x0);
}

/* x6 - e1 x4 + e1 x2 - x0, e1 the sum of the squared points: as p = q r = 1, e2 is e1 and e3 is 1 */
INLINE vf sextic(double p, double q, double r, vf x6, vf x4, vf x2, vf x0) {
    return v_minus(v_sub(x6, x0), SQUARE(p) + SQUARE(q) + SQUARE(r), v_sub(x4, x2));
}

/* Stride 2: even pixels' values, then the odd ones'. Each t is an even pixel less c times the one before: ONE's factor
 * (x - c). */
INLINE void strided_input(const int m, const int s, vf *d) {
    const double c = one[m], a = two[m], a2 = SQUARE(a);
    const vf e0 = d[0], e1 = d[2], e2 = d[4], o0 = d[1], o1 = d[3], t1 = v_minus(e1, c, e0), t2 = v_minus(e2, c, e1);
    vf *odd = d + s + 1;
    if (s == 2) {
        d[ZERO] = m == 2 ? t1 : v_times(-a2, t1);
        d[INFINITE] = t2;
        d[ONE] = m == 2 ? e1 : v_times(SQUARE(c) - a2, e1);
        odd[ZERO] = m == 2 ? o0 : v_times(-a2, o0);
        odd[INFINITE] = o1;
        return;
    }
    const vf e3 = d[6], e4 = d[8], o2 = d[5], o3 = d[7], t3 = v_minus(e3, c, e2), t4 = v_minus(e4, c, e3);
    d[ZERO] = v_minus(t3, a2, t1);
    d[INFINITE] = v_minus(t4, a2, t2);
    d[ONE] = v_minus(e3, a2, e1);
    pair(d + ONE + 1, a, t3, t2);
    odd[ZERO] = v_minus(o2, a2, o0);
    odd[INFINITE] = v_minus(o3, a2, o1);
    pair(odd + PAIRS, a, o2, o1);
}

/* d = B^T d, of s outputs by the points of m */
INLINE void input_transform(const int stride, const int m, const int s, vf *d) {
    if (stride == 2) {
        strided_input(m, s, d);
        return;
    }
    const double a = points[m][0], b = points[m][1], c = points[m][2];
    const vf d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
    if (s == 2) {
        d[ZERO] = v_minus(d2, SQUARE(a), d0);
        d[INFINITE] = v_minus(d3, SQUARE(a), d1);
        pair(d + PAIRS, a, d2, d1);
    } else if (s == 4) {
        const vf d4 = d[4], d5 = d[5];
        d[ZERO] = quartic(a, b, d4, d2, d0);
        d[INFINITE] = quartic(a, b, d5, d3, d1);
        pair(d + PAIRS, a, v_minus(d4, SQUARE(b), d2), v_minus(d3, SQUARE(b), d1));
        pair(d + PAIRS + 2, b, v_minus(d4, SQUARE(a), d2), v_minus(d3, SQUARE(a), d1));
    } else {
        const vf d4 = d[4], d5 = d[5], d6 = d[6], d7 = d[7];
        d[ZERO] = sextic(a, b, c, d6, d4, d2, d0);
        d[INFINITE] = sextic(a, b, c, d7, d5, d3, d1);
        pair(d + PAIRS, a, quartic(b, c, d6, d4, d2), quartic(b, c, d5, d3, d1));
        pair(d + PAIRS + 2, b, quartic(a, c, d6, d4, d2), quartic(a, c, d5, d3, d1));
        pair(d + PAIRS + 4, c, quartic(a, b, d6, d4, d2), quartic(a, b, d5, d3, d1));
    }
    d[ZERO] = v_times(differences(m, s / 2, 0), d[ZERO]);
    UNROLL_FOR (int i = PAIRS; i < s + 2; i++) d[i] = v_times(differences(m, s / 2, points[m][(i - PAIRS) / 2]), d[i]);
}

/* a p^k + b q^k + c r^k */
INLINE vf powers(double p, vf a, double q, vf b, double r, vf c) { return v_plus(v_plus(v_times(p, a), r, c), q, b); }

INLINE void strided_output(const int m, const int s, vf *d) {
    const double c = one[m], a = two[m];
    const vf zero = d[ZERO], infinite = d[INFINITE], single = d[ONE];
    if (s == 2) {
        d[0] = v_add(zero, single);
        d[1] = v_plus(infinite, c, single);
        return;
    }
    const vf sa = v_add(d[3], d[4]), da = v_sub(d[3], d[4]);
    d[0] = v_add(v_add(zero, single), sa);
    d[1] = v_plus(v_times(a, da), c, single);
    d[2] = v_plus(v_times(SQUARE(a), sa), SQUARE(c), single);
    d[3] = v_plus(v_plus(infinite, a * SQUARE(a), da), c * SQUARE(c), single);
}

/* d[0..s) = A^T d */
INLINE void output_transform(const int stride, const int m, const int s, vf *d) {
    if (stride == 2) {
        strided_output(m, s, d);
        return;
    }
    const double a = points[m][0], b = points[m][1], c = points[m][2], a2 = SQUARE(a), b2 = SQUARE(b), c2 = SQUARE(c);
    const vf zero = d[ZERO], infinite = d[INFINITE], sa = v_add(d[2], d[3]), da = v_sub(d[2], d[3]);
    if (s == 2) {
        d[0] = v_add(zero, sa);
        d[1] = v_plus(infinite, a, da);
        return;
    }
    const vf sb = v_add(d[4], d[5]), db = v_sub(d[4], d[5]);
    if (s == 4) {
        d[0] = v_add(zero, v_add(sa, sb));
        d[1] = v_plus(v_times(a, da), b, db);
        d[2] = v_plus(v_times(a2, sa), b2, sb);
        d[3] = v_plus(v_plus(infinite, a * a2, da), b * b2, db);
        return;
    }
    const vf sc = v_add(d[6], d[7]), dc = v_sub(d[6], d[7]);
    d[0] = v_add(v_add(zero, sa), v_add(sb, sc));
    d[1] = powers(a, da, b, db, c, dc);
    d[2] = powers(a2, sa, b2, sb, c2, sc);
    d[3] = powers(a2 * a, da, b2 * b, db, c2 * c, dc);
    d[4] = powers(a2 * a2, sa, b2 * b2, sb, c2 * c2, sc);
    d[5] = powers(a2 * a2 * a, v_add(infinite, da), b2 * b2 * b, db, c2 * c2 * c, dc);
}
