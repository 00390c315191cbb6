/* The names of enums' members. */
#include "../include/fusedops/fusedops.h"

const char *const fo_dtype_names[] = {FO_EACH_DTYPE(FO_NAMED) NULL};
const char *const fo_function_names[] = {FO_EACH_FUNCTION(FO_NAMED) NULL};
const char *const fo_map_names[] = {FO_EACH_MAP(FO_NAMED) NULL};
const char *const fo_reduction_names[] = {FO_EACH_REDUCTION(FO_NAMED) NULL};
const char *const fo_scatter_names[] = {FO_EACH_SCATTER(FO_NAMED) NULL};
const char *const fo_beyond_names[] = {FO_EACH_BEYOND(FO_NAMED) NULL};
const char *const fo_interpolation_names[] = {FO_EACH_INTERPOLATION(FO_NAMED) NULL};
const char *const fo_cell_names[] = {FO_EACH_CELL(FO_NAMED) NULL};
const char *const fo_algorithm_names[] = {FO_EACH_NAMED_ALGORITHM(FO_NAMED) NULL};
const char *const fo_transform_names[] = {FO_EACH_TRANSFORM(FO_NAMED) NULL};
const char *const fo_rounding_names[] = {FO_EACH_ROUNDING(FO_NAMED) NULL};
