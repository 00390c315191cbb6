/* Processors that this process may use. */
#ifndef FO_PROCESSORS_H
#define FO_PROCESSORS_H

/* By its affinity and by what its cgroup grants. */
int fo_processors(void);

#endif
