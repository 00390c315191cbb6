/* AMX's tiles in plain C, for a build that runs their kernels on a processor with VNNI that has none
 * (FUSEDOPS_EMULATE_AMX=1, setup.py): for correctness, not for time. csrc/kernels/quantized/amx.h alone includes
 * it. */
#ifndef FO_EMULATED_AMX_H
#define FO_EMULATED_AMX_H

#include <stdint.h>
#include <string.h>

enum { E_TILES = 8, E_ROWS = 16, E_BYTES = 64 };
static __thread struct {
    int rows[E_TILES], bytes[E_TILES];
    uint8_t data[E_TILES][E_ROWS][E_BYTES];
} e_tiles;

static inline void e_configure(const uint8_t *rows, const uint16_t *bytes) {
    memset(&e_tiles, 0, sizeof e_tiles);
    for (int t = 0; t < E_TILES; t++) e_tiles.rows[t] = rows[t], e_tiles.bytes[t] = bytes[t];
}

static inline void e_load(int tile, const void *p, ptrdiff_t ld) {
    for (int i = 0; i < e_tiles.rows[tile]; i++)
        memcpy(e_tiles.data[tile][i], (const char *)p + i * ld, (size_t)e_tiles.bytes[tile]);
}

static inline void e_store(int tile, void *p, ptrdiff_t ld) {
    for (int i = 0; i < e_tiles.rows[tile]; i++)
        memcpy((char *)p + i * ld, e_tiles.data[tile][i], (size_t)e_tiles.bytes[tile]);
}

static inline float e_bf16(const uint8_t *p) {
    uint8_t u[4] = {0, 0, p[0], p[1]};
    float v;
    memcpy(&v, u, sizeof v);
    return v;
}

/* The products of a row of A and a column of B of bytes, of which either is signed, added to a sum. */
static inline void e_bytes(int is_signed, int groups, uint8_t *sum, const uint8_t *a, const uint8_t (*b)[E_BYTES],
                           int j) {
    int32_t s;
    memcpy(&s, sum, sizeof s);
    for (int g = 0; g < groups; g++)
        for (int i = 0; i < 4; i++)
            s += is_signed ? (int8_t)a[4 * g + i] * (int)b[g][4 * j + i] : (int)a[4 * g + i] * (int8_t)b[g][4 * j + i];
    memcpy(sum, &s, sizeof s);
}

/* The same of bfloat16: even and odd elements have a sum each, which are added to it in the end. */
static inline void e_pairs(int groups, uint8_t *sum, const uint8_t *a, const uint8_t (*b)[E_BYTES], int j) {
    float s, parts[2] = {0};
    memcpy(&s, sum, sizeof s);
    for (int g = 0; g < groups; g++)
        for (int i = 0; i < 2; i++) parts[i] += e_bf16(a + 4 * g + 2 * i) * e_bf16(b[g] + 4 * j + 2 * i);
    s += parts[0] + parts[1];
    memcpy(sum, &s, sizeof s);
}

static inline void e_dot(fo_dtype type, int sums, int a, int b) {
    const int groups = e_tiles.bytes[a] / 4;
    for (int i = 0; i < e_tiles.rows[sums]; i++)
        for (int j = 0; j < e_tiles.bytes[sums] / 4; j++) {
            uint8_t *sum = e_tiles.data[sums][i] + 4 * j;
            const uint8_t *row = e_tiles.data[a][i], (*panel)[E_BYTES] = (const uint8_t (*)[E_BYTES])e_tiles.data[b];
            type == FO_BF16 ? e_pairs(groups, sum, row, panel, j) : e_bytes(type == FO_U8, groups, sum, row, panel, j);
        }
}

#define AMX_CONFIGURE(shapes) e_configure((shapes).rows, (shapes).bytes)
#define AMX_RELEASE() memset(&e_tiles, 0, sizeof e_tiles)
#define AMX_LOAD(tile, p, ld) e_load(tile, p, ld)
#define AMX_STORE(tile, p, ld) e_store(tile, p, ld)
#define AMX_ZERO(tile) memset(e_tiles.data[tile], 0, sizeof e_tiles.data[tile])
#define AMX_DOT(type, sums, a, b) e_dot(type, sums, a, b)

#endif
