/* Cells of bfloat16: their weights and products. */
#ifndef FO_ROUNDED_CELL_H
#define FO_ROUNDED_CELL_H

#include "cell_plan.h"

/* The weights of a stage whose gates are `first` and those after it, and the projection's; false where memory is
 * short. */
bool fo_cell_rounded_weights(const fo_cell *cell, const fo_cell_weights *from, int first, step_stage *stage);
bool fo_cell_rounded_projection(fo_cell *cell, const fo_weights *w_hr);
/* The products of a stage, the gates and the rounding of what comes of them, for the units of g. */
void fo_cell_rounded_stage(const fo_cell *cell, const step_stage *stage, const step_job *job, const fo_step_args *g);
/* Columns j .. j+n-1 of the projection, and their rounding. */
void fo_cell_rounded_project(const fo_cell *cell, const step_job *job, ptrdiff_t j, ptrdiff_t n);

#endif
