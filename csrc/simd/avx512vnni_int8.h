/* Integers and bytes on AVX-512 with VNNI's dot product. Contract: int8.h. */
#define FO_VNNI
#define HAS_AMX /* what has AMX has all of this */
#include "avx512_int8.h"
