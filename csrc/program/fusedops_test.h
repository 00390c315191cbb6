/* What tests alone take of the library: to be as another machine would be, and to see what it decides. */
#ifndef FUSEDOPS_TEST_H
#define FUSEDOPS_TEST_H

#include "../conv/choose.h"        /* fo_conv2d_choices */
#include "../dispatch/isa.h"       /* fo_forget_kernels */
#include "../dispatch/trace.h"     /* fo_variant */
#include "../machine/machine.h"    /* fo_set_machine */
#include "../runtime/processors.h" /* fo_cgroup_quota */

#endif
