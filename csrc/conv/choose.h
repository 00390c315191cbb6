/* The choice of an algorithm. */
#ifndef FO_CHOOSE_H
#define FO_CHOOSE_H

#include "plan.h"

/* Whether images of this size take the algorithm that fo_conv2d_shape.algorithm names so. */
bool fo_conv2d_takes(const fo_conv2d *plan, const fo_conv2d_size *z, fo_named_algorithm name);

/* How often an algorithm of convolutions has been chosen: calls of sizes that a plan or a program knows choose none. */
ptrdiff_t fo_conv2d_choices(void);

#endif
