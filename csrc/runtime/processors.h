/* Processors that this process may use. */
#ifndef FO_PROCESSORS_H
#define FO_PROCESSORS_H

/* By its affinity and by what its cgroups grant. bound: those that it had before OpenMP bound this thread to some; else
 * 0. */
int fo_processors(int bound);

/* Processors' worth of time, rounded up, that the cgroups named in `list` (as /proc/self/cgroup) and those around them
 * grant, the least of them; they are mounted under `root` as under /sys/fs/cgroup. 0 where none sets a limit. */
int fo_cgroup_quota(const char *root, const char *list);

#endif
