/* Integers and bytes on AVX2 with AVX-VNNI's dot product. Contract: int8.h. */
#ifdef __AVX512VNNI__ /* tests: the same instruction of 32 bytes on a processor that has it in AVX-512's form */
#define FO_VNNI ""
#else
#define FO_VNNI "%{vex%}"
#endif
#include "avx2_int8.h"
