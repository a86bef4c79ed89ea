// layout_table.h: a layout as a table for people, 80 columns wide: who holds what.
#ifndef MOESAIC_COMMON_MODEL_LAYOUT_TABLE_H
#define MOESAIC_COMMON_MODEL_LAYOUT_TABLE_H

#include "common/base/buf.h"
#include "common/model/choice.h"

struct layout_table {
    const struct footprint_model *model;
    const struct layout *layout;
    uint32_t n_local;  // ranks below it are on this machine
    uint32_t rows_max; // 0 = all
};

// A head line, what it means, and a row for each rank. Bytes are reckoned (footprint.h).
void layout_table_write(struct buf *out, const struct layout_table *t);

// How much of its memory the worker that needs most needs, and of models with states how much of
// that is theirs: a line to four.
void layout_need_write(struct buf *out, const struct layout *l, const struct layout_need *need);

#define LAYOUT_BYTES_TEXT 24
// "512 B", "13.4 MiB"
void layout_bytes_text(char out[LAYOUT_BYTES_TEXT], uint64_t bytes);

#endif
