/* Winograd's algorithm along columns: a unit of two or three output rows takes fewer products than each row by
 * itself. */
#ifndef FO_WINOGRAD1D_H
#define FO_WINOGRAD1D_H

#include "../../include/fusedops/fusedops.h"

enum { FO_MAX_UNIT = 3, FO_MAX_UNIT_PRODUCTS = FO_MAX_UNIT + 2, FO_MAX_UNIT_TERMS = 48 };

/* A term of a product: an image row, or the sum or difference of two, times a combination of up to three taps `sh` rows
 * apart. */
typedef struct {
    int product;
    int row, other, sign; /* row + sign * other, of the unit's image rows; sign 0: the row as it is */
    int tap;              /* kernel row of the first tap */
    float taps[3];
    int at; /* place among the rows of scratch, relative to that of the unit's first row */
} fo_winograd1d_term;

/* Products 0 .. unit-1 are of one output row each; the next one is part of every row, and one after it is added to
 * even rows and subtracted from odd ones. In scratch a unit's image rows are followed by the sums of rows, then by
 * the next unit's rows. */
typedef struct fo_winograd1d {
    int unit; /* output rows; 1: no saving */
    int products, terms, sums;
    int rows; /* image rows from one unit to the next */
    fo_winograd1d_term term[FO_MAX_UNIT_TERMS];
    ptrdiff_t first[FO_MAX_UNIT_PRODUCTS + 1]; /* each product's first step of the reduction */
} fo_winograd1d;

/* The products for kernels of a shape; false where they save nothing. */
bool fo_winograd1d_terms(fo_winograd1d *w, const fo_conv2d_shape *s);

#endif
