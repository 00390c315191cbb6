/* The choice of an algorithm. */
#ifndef FO_CHOOSE_H
#define FO_CHOOSE_H

#include "plan.h"

/* How often an algorithm of convolutions has been chosen: calls of sizes that a plan or a program knows choose none. */
ptrdiff_t fo_conv2d_choices(void);

#endif
