// weights_plan.h: what a rank has to read: destinations, the tensors that fill them, and their
// memory.
//
// Made by weights_plan.c from spec, layout and the checkpoint's list of tensors, before any tensor
// byte is read; worked through by weights_read.c. Private to the weights_* files.
#ifndef MOESAIC_WORKER_WEIGHTS_PLAN_H
#define MOESAIC_WORKER_WEIGHTS_PLAN_H

#include "common/model/safetensors.h"
#include "worker/weights.h"

#define ITEM_SOURCES_MAX 4 // q, k, v and z become one matrix

// A matrix, or a vector of one column, inside a tensor of the checkpoint (struct tensor_place).
struct weights_source {
    const struct safetensors_tensor *tensor;
    uint32_t n_rows;
    uint64_t offset, row_stride, column_stride; // in elements
};

// One destination, filled from sources stacked on each other. Exactly what is set of packed, rows
// and vector is written; a tied embedding writes two. Most checkpoints store rows, and a part of
// their columns is read row by row; where one stores columns (by_columns; then there is one
// source), what lies together in the file is read together, and a piece is a few columns.
struct weights_item {
    struct weights_source sources[ITEM_SOURCES_MAX];
    uint32_t n_sources;
    uint32_t n_rows, n_cols; // a vector has one column
    bool by_columns;
    enum dtype src_dtype; // of all sources
    enum dtype dst_dtype;
    const struct matrix *packed; // its data is writable memory of the weights
    void *rows;                  // row-major, of dst_dtype
    float *vector;
    bool expert;   // counts into experts_digest
    bool plus_one; // 1 is added to each element of the vector
};

// A table of expert ids, read whole: which experts each token has in a layer.
struct weights_table {
    const struct safetensors_tensor *tensor; // [tokens, top_k] of 4 or 8 bytes each
    uint16_t *ids;
};

struct weights_plan {
    struct weights_item *items; // owned
    size_t n_items, items_max;
    struct weights_table tables[LAYERS_MAX];
    uint32_t n_tables;
    uint64_t source_bytes; // of all items and tables, in the file's format
};

// Checks every tensor's name, type and shape (also those of other ranks' experts), allocates w's
// memory and lists the items.
int weights_plan_make(struct weights_plan *out, struct weights *w,
                      const struct weights_config *config, const struct safetensors *st,
                      struct err_text *e);
void weights_plan_finish(struct weights_plan *plan);

// Reads every item with config->n_threads threads and fills in w's digests.
int weights_read(struct weights *w, const struct weights_plan *plan,
                 const struct weights_config *config, const struct safetensors *st,
                 struct err_text *e);

// Zeroed memory that belongs to w.
void *weights_alloc(struct weights *w, size_t bytes, size_t align);

#endif
