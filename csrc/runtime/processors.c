/* Processors that this process may use. */
#define _GNU_SOURCE
#include "processors.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../include/fusedops/runtime.h"
#include "../machine/machine.h"

/* The first numbers of a file, or how many of them there are. A word that is no number ends them. */
static int numbers_of(const char *folder, const char *name, long *a, long *b) {
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    const int n = fscanf(f, "%ld %ld", a, b);
    fclose(f);
    return n;
}

/* What one group grants, of either version; INT_MAX where it sets no limit. */
static int quota_of(const char *folder) {
    long quota = 0, period = 0, unused;
    if (numbers_of(folder, "cpu.max", &quota, &period) == -1) {
        numbers_of(folder, "cpu.cfs_quota_us", &quota, &unused);
        numbers_of(folder, "cpu.cfs_period_us", &period, &unused);
    }
    if (quota <= 0 || period <= 0) return INT_MAX; /* "max" in version 2, -1 in version 1 */
    const long processors = quota / period + (quota % period != 0);
    return processors > INT_MAX ? INT_MAX : (int)processors;
}

/* The least of a group, of those around it and of the one at `root`; the path is eaten. A container that sees a part of
 * the tree has a path that is not there: it counts from where it is. */
static int least_quota(const char *root, char *path) {
    for (int least = INT_MAX;;) {
        char folder[PATH_MAX];
        snprintf(folder, sizeof folder, "%s%s", root, path);
        const int quota = quota_of(folder);
        if (quota < least) least = quota;
        char *last = strrchr(path, '/');
        if (!last) return least;
        *last = 0;
    }
}

/* Whether a group's controllers, as cpu,cpuacct, are those of version 1 that limit time. */
static bool has_cpu(const char *controllers) {
    for (; *controllers; controllers += strcspn(controllers, ","), controllers += *controllers == ',')
        if (strcspn(controllers, ",") == 3 && !strncmp(controllers, "cpu", 3)) return true;
    return false;
}

int fo_cgroup_quota(const char *root, const char *list) {
    char v1[PATH_MAX], here[] = "", *line = NULL;
    snprintf(v1, sizeof v1, "%s/cpu", root);
    int least = least_quota(root, here), quota = least_quota(v1, here);
    if (quota < least) least = quota;
    FILE *f = fopen(list, "r");
    for (size_t room = 0; f && getline(&line, &room, f) > 0;) { /* number:controllers:path */
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *controllers++ = *path++ = 0;
        quota = !*controllers ? least_quota(root, path) : has_cpu(controllers) ? least_quota(v1, path) : INT_MAX;
        if (quota < least) least = quota;
    }
    free(line);
    if (f) fclose(f);
    return least == INT_MAX ? 0 : least;
}

int fo_processors(int bound) {
    int n = (int)sysconf(_SC_NPROCESSORS_ONLN), quota = fo_cgroup_quota("/sys/fs/cgroup", "/proc/self/cgroup");
#ifdef __linux__
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) n = CPU_COUNT(&set);
#endif
    if (fo_this_machine()->processors) n = (int)fo_this_machine()->processors;
    if (bound) n = bound;
    return quota && quota < n ? quota : n;
}
