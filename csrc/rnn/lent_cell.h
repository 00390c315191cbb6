/* Cells for one call of few rows, which read the caller's weights where they lie. */
#ifndef FO_LENT_CELL_H
#define FO_LENT_CELL_H

#include "cell_plan.h"

/* Floats of what a stage needs, for all members of a team; 0 where the cell does not lend. */
ptrdiff_t fo_cell_lent(const fo_cell *cell);
/* The products of a stage and its gates, for the units of g. */
void fo_cell_lent_stage(const fo_cell *cell, const step_stage *stage, const step_job *job, const fo_step_args *g);

#endif
