/* Processors that this process may use. */
#define _GNU_SOURCE
#include "processors.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "../fusedops_test.h"

/* The first numbers of a file, or how many of them there are. A word that is no number ends them. */
static int numbers_of(const char *folder, const char *name, long *a, long *b) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    const int n = fscanf(f, "%ld %ld", a, b);
    fclose(f);
    return n;
}

int fo_cgroup_quota(const char *folder) {
    long quota = 0, period = 0, unused;
    if (numbers_of(folder, "cpu.max", &quota, &period) == -1) {
        numbers_of(folder, "cpu/cpu.cfs_quota_us", &quota, &unused);
        numbers_of(folder, "cpu/cpu.cfs_period_us", &period, &unused);
    }
    if (quota <= 0 || period <= 0) return 0; /* "max" in version 2, -1 in version 1 */
    const long processors = quota / period + (quota % period != 0);
    return processors > INT_MAX ? INT_MAX : (int)processors;
}

int fo_processors(void) {
    int n = (int)sysconf(_SC_NPROCESSORS_ONLN), quota = fo_cgroup_quota("/sys/fs/cgroup");
#ifdef __linux__
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) n = CPU_COUNT(&set);
#endif
    return quota && quota < n ? quota : n;
}
