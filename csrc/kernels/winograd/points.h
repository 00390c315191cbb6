/* Winograd's convolution F(m x m, 3x3): m x m outputs of a tile from (m+2) x (m+2) inputs d and 3x3 weights g,
 *
 *     y = A^T [ (G g G^T) o (B^T d B) ] A
 *
 * so that a sum over channels is one small product of matrices for each of the (m+2)^2 positions
 * (conv/algorithms/winograd.c).
 *
 * The matrices come from polynomials that are evaluated at 0, at infinity and at pairs +-p, in this order: B^T has the
 * coefficients of the product of (x - q) over the other points q, A^T the powers p^0 .. p^(m-1), and G the powers
 * p^0 .. p^2 over the product of (p - q). Pairs share their even and their odd part. The points were searched for the
 * lowest error in float32; all are short binary fractions, so every constant but those of G is exact.
 *
 * The last row and the last column of tiles may be smaller, s outputs instead of m: they take the first s+2 points of
 * m, whose G they share; what G's denominators have too much is a factor of their B^T.
 *
 * Stride 2: along each axis even pixels are multiplied by the outer taps, odd ones by the middle tap. The even ones are
 * F(m, 2 taps) of m+1 points: 0, infinity, ONE and pairs. The odd ones, F(m, 1 tap), take those points but ONE. So 2m+1
 * inputs become as many values at m+1 points. What a position has of even and of odd pixels, its phases, are further
 * channels of its product.
 */
#define SQUARE(x) ((x) * (x))

enum { ZERO, INFINITE, PAIRS }; /* rows of the matrices */
static const double points[7][3] = {[2] = {1}, [4] = {0.75, 1.5}, [6] = {1, 0.5, 2}};

/* The product of (p^2 - q^2) over the pairs from k on, but p's own. */
INLINE double differences(const int m, const int k, const double p) {
    double product = 1;
    UNROLL_FOR (int i = k; i < m / 2; i++) product *= points[m][i] == p ? 1 : SQUARE(p) - SQUARE(points[m][i]);
    return product;
}

/* Runs `statement` with STRIDE, TILE and SIZE, the stride and the m and s above, as literals. */
#define WITH_TILE(stride, tile, size, statement) \
    do switch ((stride) * 64 + (tile) * 8 + (size)) { \
        TILE_CASE(1, 2, 2, statement) TILE_CASE(1, 4, 2, statement) TILE_CASE(1, 4, 4, statement) \
        TILE_CASE(1, 6, 2, statement) TILE_CASE(1, 6, 4, statement) TILE_CASE(1, 6, 6, statement) \
        TILE_CASE(2, 2, 2, statement) TILE_CASE(2, 4, 2, statement) TILE_CASE(2, 4, 4, statement) \
    } while (0)
#define TILE_CASE(stride, m, s, statement) \
    case stride * 64 + m * 8 + s: { enum { STRIDE = stride, TILE = m, SIZE = s }; statement; } break;

/* Of s outputs along an axis: inputs, and as many values that they become; points. */
enum { MAX_VALUES = 9 };
INLINE int values_of(const int stride, const int s) { return stride * (s - 1) + 3; }
INLINE int points_of(const int stride, const int s) { return s + 3 - stride; }

/* Stride 2: whether value i is of odd pixels, whose values follow the even ones'; its point; values of a point. */
enum { ONE = 2 };
static const double one[5] = {[2] = 1, [4] = -1.5}, two[5] = {[4] = 0.75}; /* ONE and the pair, searched for as above */
INLINE bool is_odd(const int s, int i) { return i > s; }
INLINE int point_of(const int s, int i) { return !is_odd(s, i) ? i : i - (s + 1) < ONE ? i - (s + 1) : i - s; }
INLINE int values_at(int point) { return point == ONE ? 1 : 2; }

/* ---- weights --------------------------------------------------------------------------------------------------- */

/* Row i of G. */
static void filter_row(int m, int i, double row[3]) {
    const double p = i < PAIRS ? 0 : points[m][(i - PAIRS) / 2];
    const double denominator = differences(m, 0, p) * (i < PAIRS ? 1 : 2 * SQUARE(p));
    for (int j = 0; j < 3; j++)
        row[j] = i == INFINITE ? j == 2 : (j == 0 ? 1 : j == 1 ? i % 2 ? -p : p : SQUARE(p)) / denominator;
}

/* Stride 2: of value i. */
static void strided_filter_row(int m, int i, double row[3]) {
    const int point = point_of(m, i);
    const double c = one[m], a = two[m], a2 = m == 2 ? -1 : SQUARE(a); /* m = 2 has no pair */
    const double p = point < ONE ? 0 : point > ONE ? (point % 2 ? a : -a) : c;
    row[0] = row[1] = row[2] = 0;
    if (point == INFINITE)
        row[is_odd(m, i) ? 1 : 2] = 1;
    else if (is_odd(m, i))
        row[1] = point == ZERO ? -1 / a2 : 1 / (2 * a2);
    else
        row[0] = 1 / (point == ZERO  ? a2 * c
                      : point == ONE ? m == 2 ? c : c * (SQUARE(c) - a2)
                                     : 2 * a2 * (p - c)),
        row[2] = p * row[0];
}

/* u[p * position + o] = (filter g filter^T)[p] of NR output channels o, from g[9][NR]. In double, rounded once. */
INLINE void filter_weights(const int n, double (*filter)[3], const float *restrict g, float *restrict u,
                           ptrdiff_t position) {
    double rows[MAX_VALUES][3][NR];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 3; j++)
            for (int o = 0; o < NR; o++)
                rows[i][j][o] = filter[i][0] * g[j * NR + o] + filter[i][1] * g[(3 + j) * NR + o] +
                                filter[i][2] * g[(6 + j) * NR + o];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++, u += position)
            for (int o = 0; o < NR; o++)
                u[o] =
                    (float)(filter[j][0] * rows[i][0][o] + filter[j][1] * rows[i][1][o] + filter[j][2] * rows[i][2][o]);
}

void FO_NAME(fo_winograd_weights)(int stride, int m, const float *restrict g, float *restrict u, ptrdiff_t position) {
    double filter[MAX_VALUES][3];
    const int n = values_of(stride, m);
    for (int i = 0; i < n; i++) (stride == 1 ? filter_row : strided_filter_row)(m, i, filter[i]);
    filter_weights(n, filter, g, u, position);
}
