// layout_table.h: a layout as a table for people, 80 columns wide: who holds what.
#ifndef MOESAIC_COMMON_MODEL_LAYOUT_TABLE_H
#define MOESAIC_COMMON_MODEL_LAYOUT_TABLE_H

#include "common/base/buf.h"
#include "common/model/footprint.h"

struct layout_table {
    const struct model_spec *spec;
    const struct layout *layout;
    struct footprint_types types;
    uint32_t n_local;  // ranks below it are on this machine
    uint32_t rows_max; // 0 = all
};

// A head line, what it means, and a row for each rank. Bytes are reckoned (footprint.h).
void layout_table_write(struct buf *out, const struct layout_table *t);

#define LAYOUT_BYTES_TEXT 24
// "512 B", "13.4 MiB"
void layout_bytes_text(char out[LAYOUT_BYTES_TEXT], uint64_t bytes);

#endif
