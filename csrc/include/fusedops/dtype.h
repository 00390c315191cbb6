/* Element types, each said once: in the list below. A type is a value, never a copy of the code: plans, tables and
 * calls have it as a field, kernels as a literal.
 *
 *   size     of an element, in bytes: fo_size
 *   name     NumPy's: fo_dtype_names
 *   loads    to float32 in registers: v_load_as (simd/lanes.h)
 *
 * Layouts (fo_form, fo_image) say no type.
 */
#ifndef FO_DTYPE_H
#define FO_DTYPE_H

#include <stddef.h>

#include "names.h"

#define FO_EACH_DTYPE(X) \
    X(F32, "float32", 4) \
    X(F16, "float16", 2) \
    X(BF16, "bfloat16", 2) /* the upper half of a float32 */ \
    X(U8, "uint8", 1) \
    X(S8, "int8", 1) \
    X(S32, "int32", 4) \
    X(S64, "int64", 8) \
    X(F64, "float64", 8) \
    X(BOOL, "bool", 1)
typedef enum { FO_EACH_DTYPE(FO_MEMBER) FO_DTYPES } fo_dtype;

/* Those that products of floats have weights of: each a tile of its own (kernels/gemm/tile_stack.h). */
#define FO_EACH_WEIGHT(X) X(F32) X(F16) X(BF16)

/* The types of a call's tensors; of floats all are 0. */
typedef struct {
    fo_dtype x, residual, y;
} fo_types;

#define FO_SIZE(type, name, size) \
    case FO_##type: return size;
static inline ptrdiff_t fo_size(fo_dtype type) {
    switch (type) {
        FO_EACH_DTYPE(FO_SIZE)
        default: return 0;
    }
}
#undef FO_SIZE

#endif
