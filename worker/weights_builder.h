// weights_builder.h: the bricks of weights_plan.c: tensors that were looked up and checked become
// items with a place in memory. Private to the weights_* files.
#ifndef MOESAIC_WORKER_WEIGHTS_BUILDER_H
#define MOESAIC_WORKER_WEIGHTS_BUILDER_H

#include "worker/slice.h"
#include "worker/weights_plan.h"

// A cache line: what the kernels' loads want at least.
#define MATRIX_ALIGN 64

struct builder {
    struct weights_plan *plan;
    struct weights *w;
    const struct weights_config *config;
    const struct model_spec *spec;
    const struct family *family;
    const struct safetensors *st;
    struct layout_place place; // of this rank
    struct slice slice;        // the same
    uint8_t *used;             // [tensors of the checkpoint]
    bool dry;                  // tensors are only looked at: nothing is allocated for them
    struct err_text *e;
};

// [first, first + n); n 0 = all.
struct part_of {
    uint32_t first, n;
};

// What the forward pass wants of a tensor: a matrix, or a vector where cols is 0; and the part of
// it that this rank reads.
struct want {
    uint32_t rows, cols;
    struct part_of row, col;
};

static inline uint32_t want_rows(const struct want *want) {
    return want->row.n != 0 ? want->row.n : want->rows;
}

// Rows of a tensor that is stacked with others.
struct part {
    enum tensor_kind kind;
    uint32_t n;
    struct part_of row;
};

int builder_no_memory(struct builder *b);
// ERR_FATAL_STOPPED where whoever loads has given up.
int builder_cancelled(struct builder *b);

// Looks up a tensor that must be there and checks what its header says.
int builder_find(struct builder *b, struct tensor_ref ref, struct want want,
                 struct weights_source *out);
// The same of one that only other ranks hold: every rank then refuses a wrong checkpoint with the
// same words.
int builder_check(struct builder *b, struct tensor_ref ref, struct want want);
// An item of no sources; then one more of them, in its place behind the others.
struct weights_item *builder_item(struct builder *b, uint32_t n_cols);
int builder_source(struct builder *b, struct weights_item *item, struct tensor_ref ref,
                   struct want want);

// The bricks below allocate nothing in a dry run, and leave every pointer as it is.

// A vector of float32 from one tensor, or from several behind each other.
int builder_vector(struct builder *b, float **out, enum tensor_kind kind, uint32_t layer,
                   uint32_t n);
int builder_stack(struct builder *b, float **out, uint32_t layer, const struct part *parts,
                  uint32_t n_parts);

struct matrix builder_shape(const struct builder *b, uint32_t n_out, uint32_t n_in,
                            uint32_t n_segments);
// Memory of its own for a matrix whose shape is set.
int builder_alloc(struct builder *b, struct matrix *m);
// What is wanted of a tensor into a matrix that has memory and just this shape; and one whole
// tensor [n_out, n_in].
int builder_fill(struct builder *b, const struct matrix *m, struct tensor_ref ref,
                 struct want want);
int builder_fill_whole(struct builder *b, const struct matrix *m, struct tensor_ref ref);

// What is wanted of a tensor into a matrix with memory of its own, summed in one segment.
int builder_slice(struct builder *b, struct matrix *m, struct tensor_ref ref, struct want want);
// One whole tensor into a matrix of this shape with memory of its own.
int builder_matrix(struct builder *b, struct matrix *m, struct matrix shape, struct tensor_ref ref);
// The same into a matrix whose shape is set, of those that tensor_held_dtype may keep in float32.
int builder_precise(struct builder *b, struct matrix *m, struct tensor_ref ref);
// The layer's table of experts by token (TENSOR_HASH).
int builder_table(struct builder *b, uint16_t **out, uint32_t layer);

// weights_foreign.c: checks the head, one expert, and what the heads of latent attention make of
// latents, of all ranks.
int weights_check_head(struct builder *b);
int weights_check_expert(struct builder *b, uint32_t layer, uint32_t expert);
int weights_check_latent_heads(struct builder *b, uint32_t layer);

// weights_joint.c: joint attention, compressed entries and hyper-connections; the columns of the
// output projection that this rank's groups of heads make.
int weights_plan_joint(struct builder *b, struct layer_weights *l, uint32_t layer);
struct part_of weights_joint_columns(const struct builder *b);
int weights_plan_hyper(struct builder *b, struct layer_weights *l, uint32_t layer);
int weights_plan_head_hyper(struct builder *b);

// weights_delta.c: what a recurrent layer holds beside its norms. A rank's channels lie in so many
// runs: those of its queries, keys and values.
#define DELTA_RUNS_MAX 3
int weights_plan_delta(struct builder *b, struct layer_weights *l, uint32_t layer);

#endif
