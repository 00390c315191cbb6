/* The only properties of an instruction set that kernels branch on; each has one reason. */
#ifndef FO_TRAITS_H
#define FO_TRAITS_H

enum {
    VEC_IS_LINE = VL * sizeof(float) == 64, /* a vector is a whole cache line: stores of one do not share lines */
    MANY_REGS = REGISTERS >= 32,            /* a tile and its operands leave registers for pointers and constants */
    FMA_FROM_MEM = FMA_READS,               /* a multiply-add reads and broadcasts an element of memory itself */
    IS_SCALAR = VL == 1,                    /* plain C: nothing to shuffle, no lanes to mask */
};

#endif
