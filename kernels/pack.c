// pack.c: row-major weights into panels of 16 columns, as the products read them.
#include "common/base/check.h"
#include "kernels/ops.h"

// Elements of K converted at a time: 16 rows of it stay in the first cache level.
#define CHUNK 64

// n elements at any byte address, converted to the packed type.
static void convert(void *dst, enum dtype to, const void *src, enum dtype from, uint32_t n) {
    if (from == to) {
        memcpy(dst, src, n * dtype_bytes(to));
        return;
    }
    const struct kernel_ops *ops = kernel_ops_select(NULL);
    float wide[CHUNK];
    ops->unpack(wide, src, from, n);
    ops->pack(dst, wide, to, n);
}

static void interleave_32(uint32_t *out, uint32_t rows[PANEL_COLS][CHUNK], uint32_t n) {
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t c = 0; c < PANEL_COLS; c++)
            out[k * PANEL_COLS + c] = rows[c][k];
}

static void interleave_16(uint16_t *out, uint16_t rows[PANEL_COLS][CHUNK], uint32_t n) {
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t c = 0; c < PANEL_COLS; c++)
            out[k * PANEL_COLS + c] = rows[c][k];
}

// One panel's elements [k, k + n) of K. src points at the panel's first column.
struct piece {
    const struct matrix *w;
    const unsigned char *src;
    enum dtype src_dtype;
    size_t src_stride;
    uint32_t n_cols;
};

static void pack_chunk(const struct piece *piece, unsigned char *out, uint32_t k, uint32_t n) {
    union {
        uint32_t wide[PANEL_COLS][CHUNK];
        uint16_t half[PANEL_COLS][CHUNK];
    } rows;
    memset(&rows, 0, sizeof rows); // columns past n_out are zero
    enum dtype to = piece->w->dtype;
    for (uint32_t c = 0; c < piece->n_cols; c++) {
        const unsigned char *src =
            piece->src + (c * piece->src_stride + k) * dtype_bytes(piece->src_dtype);
        void *row = to == DTYPE_F32 ? (void *)rows.wide[c] : (void *)rows.half[c];
        convert(row, to, src, piece->src_dtype, n);
    }
    if (to == DTYPE_F32)
        interleave_32((uint32_t *)(void *)out, rows.wide, n);
    else
        interleave_16((uint16_t *)(void *)out, rows.half, n);
}

void matrix_pack(const struct matrix *w, void *dst, const void *src, enum dtype src_dtype,
                 size_t src_stride) {
    check(src_stride >= w->n_in && (uintptr_t)dst % 4 == 0);
    size_t element_bytes = dtype_bytes(w->dtype);
    for (uint32_t p = 0; p < matrix_panels(w); p++) {
        uint32_t column = p * PANEL_COLS, left = w->n_out - column;
        struct piece piece = {
            .w = w,
            .src = (const unsigned char *)src + column * src_stride * dtype_bytes(src_dtype),
            .src_dtype = src_dtype,
            .src_stride = src_stride,
            .n_cols = left < PANEL_COLS ? left : PANEL_COLS,
        };
        unsigned char *out =
            (unsigned char *)dst + (size_t)p * w->n_in * PANEL_COLS * element_bytes;
        for (uint32_t k = 0; k < w->n_in; k += CHUNK) {
            uint32_t n = w->n_in - k < CHUNK ? w->n_in - k : CHUNK;
            pack_chunk(&piece, out + (size_t)k * PANEL_COLS * element_bytes, k, n);
        }
    }
}

void matrix_pack_inputs(const struct matrix *w, void *dst, const void *src, enum dtype src_dtype,
                        const uint32_t range[2]) {
    check(range[0] <= w->n_in && range[1] <= w->n_in - range[0] && (uintptr_t)dst % 4 == 0);
    size_t element = dtype_bytes(w->dtype), src_element = dtype_bytes(src_dtype);
    for (uint32_t i = 0; i < range[1]; i++) {
        for (uint32_t column = 0; column < w->n_out; column += PANEL_COLS) {
            uint32_t left = w->n_out - column, n = left < PANEL_COLS ? left : PANEL_COLS;
            size_t at = (size_t)column * w->n_in + (size_t)(range[0] + i) * PANEL_COLS;
            convert((unsigned char *)dst + at * element, w->dtype,
                    (const unsigned char *)src + ((size_t)i * w->n_out + column) * src_element,
                    src_dtype, n);
        }
    }
}
