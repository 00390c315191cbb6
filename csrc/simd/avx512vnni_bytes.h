/* Integers and bytes on AVX-512 with VNNI's dot product. Contract: bytes.h. */
#define FO_VNNI
#include "avx512_bytes.h"
