/* Integers and bytes on AVX-512 with VNNI's dot product. Contract: bytes.h. */
#define FO_VNNI
#define BYTE_TILES /* what has tiles of bytes (AMX) has all of this */
#include "avx512_bytes.h"
