/* A step of a recurrent layer. */
#include "kernels.h"

#include "rnn.h"
