/* What tests alone take of the library: to be as another machine would be, and to see what it decides. */
#ifndef FUSEDOPS_TEST_H
#define FUSEDOPS_TEST_H

#include "fusedops.h"
#include "machine/machine.h"

/* Processors' worth of time, rounded up, that the cgroups named in `list` (as /proc/self/cgroup) and those around them
 * grant, the least of them; they are mounted under `root` as under /sys/fs/cgroup. 0 where none sets a limit. */
int fo_cgroup_quota(const char *root, const char *list);

/* How often an algorithm of convolutions has been chosen: calls of sizes that a plan or a program knows choose none. */
ptrdiff_t fo_conv2d_choices(void);

/* The kernel variants that ran since they were last forgotten, some names twice, NULL between them. Only a build with
 * FUSEDOPS_TRACE=1 has any. */
int fo_variants_most(void);
const char *fo_variant(int i);
void fo_forget_variants(void);

#endif
