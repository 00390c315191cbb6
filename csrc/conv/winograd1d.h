/* Winograd's algorithm in one dimension: two or three output rows ("lines") together take fewer products than each alone. */
#ifndef FO_WINOGRAD1D_H
#define FO_WINOGRAD1D_H

#include "../fusedops.h"

enum { FO_MOST_LINES = 3, FO_MOST_LINE_PRODUCTS = FO_MOST_LINES + 2, FO_MOST_LINE_TERMS = 48 };

/* A term of a product: an image row, or the sum or difference of two, times a combination of up to three taps `sh` rows apart. */
typedef struct {
    int product;
    int row, other, sign; /* row + sign * other, of the rows that the lines see; sign 0: the row as it is */
    int tap;              /* kernel row of the first tap */
    float taps[3];
    int at; /* place among the rows of scratch, relative to that of the lines' first row */
} fo_line_term;

/* Products 0 .. lines-1 are of one line each; the next one is part of every line, and one behind it is added to even lines and
 * subtracted from odd ones. In scratch the lines' image rows are followed by the sums of rows, then by the next lines' rows. */
typedef struct {
    int lines; /* 1: no saving */
    int products, terms, sums;
    int rows; /* image rows from one group of lines to the next */
    fo_line_term term[FO_MOST_LINE_TERMS];
    ptrdiff_t first[FO_MOST_LINE_PRODUCTS + 1]; /* each product's first step of the reduction */
} fo_lines;

void fo_lines_choose(fo_lines *l, const fo_conv2d_shape *s);

/* Place among the rows of scratch of image row i, both counted from the first group's. */
static inline ptrdiff_t fo_line_place(const fo_lines *l, ptrdiff_t i) { return i + i / l->rows * l->sums; }

#endif
