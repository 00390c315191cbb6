/* What tests alone take of the library: to be as another machine would be, and to see what it decides. */
#ifndef FUSEDOPS_TEST_H
#define FUSEDOPS_TEST_H

#include "fusedops.h"

/* As on a processor with or without these; plans remember what they were made under. */
void fo_set_half_rate(bool half);
void fo_set_dot_product(bool used);
void fo_set_tiles(bool used);

/* Processors' worth of time that the cgroup under this folder (version 2, else 1) grants, rounded up; 0 where it sets
 * no limit. */
int fo_cgroup_quota(const char *folder);

/* How often an algorithm of convolutions has been chosen: calls of sizes that a plan or a program knows choose none. */
ptrdiff_t fo_conv2d_choices(void);

/* The kernel variants that ran since they were last forgotten, some names twice, NULL between them. Only a build with
 * FUSEDOPS_TRACE=1 has any. */
int fo_variants_most(void);
const char *fo_variant(int i);
void fo_forget_variants(void);

#endif
