/* Which kernel variants ran, for tests. */
#ifndef FO_TRACE_H
#define FO_TRACE_H

/* The kernel variants that ran since they were last forgotten, some names twice, NULL between them. Only a build with
 * FUSEDOPS_TRACE=1 has any. */
int fo_variants_most(void);
const char *fo_variant(int i);
void fo_forget_variants(void);

#endif
