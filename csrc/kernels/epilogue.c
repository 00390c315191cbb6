/* The end of tiles that leave their registers by way of memory. */
#include "kernels.h"

void FO_NAME(fo_finish_tile)(const finish_args *f, fo_act_kind kind, bool transposed) {
    if (transposed)
        WITH_ACTIVATION(kind, finish_columns(KIND, f));
    else
        WITH_ACTIVATION(kind, finish_rows(KIND, f));
}
