/* Enums whose members have names, by which the binding finds their numbers. The header of each has a list
 * FO_EACH_X(X) of X(MEMBER, "name", ...); its enum and its names (names.c) are made of that. Activations have a list of
 * another form (activations.h). */
#ifndef FO_NAMES_H
#define FO_NAMES_H

#define FO_MEMBER(member, ...) FO_##member,
#define FO_NAMED(member, name, ...) name,

/* In the order of the enum, with NULL after the last. */
extern const char *const fo_dtype_names[];
extern const char *const fo_function_names[];
extern const char *const fo_map_names[];
extern const char *const fo_reduction_names[];
extern const char *const fo_scatter_names[];
extern const char *const fo_beyond_names[];
extern const char *const fo_interpolation_names[];
extern const char *const fo_cell_names[];
extern const char *const fo_algorithm_names[];
extern const char *const fo_transform_names[];
extern const char *const fo_rounding_names[];

#endif
