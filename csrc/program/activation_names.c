/* The names of the activations. */
#include "../include/fusedops/fusedops.h"

#define NAME(with, kind, name, value) [kind] = name,
static const char *const names[FO_ACTIVATIONS] = {FO_EACH_ACTIVATION(NAME, )};

const char *fo_activation_name(fo_act_kind kind) { return names[kind]; }
