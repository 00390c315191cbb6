/* Products: C = epilogue(A B). */
#include "kernels.h"

#include "gemm/gemm.h"
#include "gemm/gemv_columns.h"
