/* Cells of int8 weights, whose operands are quantized as they come. */
#ifndef FO_DYNAMIC_CELL_H
#define FO_DYNAMIC_CELL_H

#include "cell_plan.h"

/* Their one stage, without products of its own; and sequences of one layer, or a step, of them. */
void fo_cell_make_dynamic(fo_cell *cell, const fo_cell_weights *weights, bool *failed);
fo_status fo_dynamic_sequence(const fo_sequence *s);
fo_status fo_dynamic_step(const fo_cell *cell, ptrdiff_t batch, const fo_cell_io *io);

#endif
