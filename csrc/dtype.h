/* Element types, each said once: in the list below. A type is a value, never a copy of the code: plans, tables and
 * calls have it as a field, kernels as a literal.
 *
 *   size     of an element, in bytes: fo_size
 *   name     NumPy's, by which the binding finds its number: fo_dtype_name
 *   loads    to float32 in registers: v_load_as (simd/lanes.h)
 *
 * Layouts (fo_form, fo_image) say no type.
 */
#ifndef FO_DTYPE_H
#define FO_DTYPE_H

#include <stddef.h>

/* Those first that a product of floats has weights of. */
#define FO_EACH_DTYPE(X) \
    X(F32, 4, "float32") \
    X(F16, 2, "float16") \
    X(U8, 1, "uint8") \
    X(S8, 1, "int8") \
    X(S32, 4, "int32") \
    X(S64, 8, "int64") \
    X(F64, 8, "float64") \
    X(BOOL, 1, "bool")

#define FO_DTYPE_NUMBER(type, size, name) FO_##type,
#define FO_DTYPE_SIZE(type, size, name) \
    case FO_##type: return size;
#define FO_DTYPE_NAME(type, size, name) name,
typedef enum { FO_EACH_DTYPE(FO_DTYPE_NUMBER) FO_DTYPES } fo_dtype;

static inline ptrdiff_t fo_size(fo_dtype type) {
    switch (type) {
        FO_EACH_DTYPE(FO_DTYPE_SIZE)
        default: return 0;
    }
}

static inline const char *fo_dtype_name(fo_dtype type) {
    static const char *const names[] = {FO_EACH_DTYPE(FO_DTYPE_NAME)};
    return names[type];
}
#undef FO_DTYPE_NUMBER
#undef FO_DTYPE_SIZE
#undef FO_DTYPE_NAME

#endif
