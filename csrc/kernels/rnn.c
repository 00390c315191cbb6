/* A step of a recurrent layer. */
#include "kernels.h"
#include "../machine/tune.h"

#include "rnn.h"
