/* Processors that this process may use. */
#ifndef FO_PROCESSORS_H
#define FO_PROCESSORS_H

/* By its affinity and by what its cgroups grant. bound: those that it had before OpenMP bound this thread to some; else
 * 0. */
int fo_processors(int bound);

#endif
