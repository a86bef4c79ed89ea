// kv.h: the pages of this rank's KV cache and each slot's block table.
//
// Which page belongs to whom is decided in the leader; here pages are only written and read. Engine
// thread; kv_write may run on any compute thread for different tokens.
#ifndef MOESAIC_WORKER_KV_H
#define MOESAIC_WORKER_KV_H

#include "common/model/spec.h"
#include "kernels/ops.h"
#include "worker/scratch.h"

// One slot's pages in order of position.
struct kv_table {
    uint32_t *blocks; // [kv.blocks_max]
    uint32_t n_blocks;
};

// Where a layer's pages are.
struct kv_layer {
    size_t offset;     // of its first page
    size_t page_bytes; // of one KV head; 0: the layer has none
    size_t stride;     // from one page to the next of the same head
    uint32_t rate;     // tokens of a compressed entry; 0: it has none
    size_t index_at;   // in a page: the entries that an index scores
};

struct kv {
    enum dtype dtype;
    uint32_t key_dim, value_dim, n_heads, n_blocks;
    uint32_t blocks_max; // of one sequence
    bool latents;        // a page holds rows that are key and value (struct latent_keys)
    uint32_t
        index_dim; // of sparse attention's index keys, which stand behind in layers that choose
    uint32_t entry_index_dim; // of compressed entries that an index scores
    size_t key_bytes;         // of one page: 16 tokens of one layer and KV head, K alone
    struct kv_layer layers[LAYERS_MAX];
    uint8_t *pages;          // [layer][block][kv head][K, V]
    struct kv_table *tables; // [n_slots]
    uint32_t *tokens; // [n_blocks][KV_BLOCK_TOKENS] the token whose key and value stand there
};

struct kv_sizes {
    const struct model_spec *spec;
    enum dtype dtype;
    uint32_t first_layer, n_layers, n_heads; // of this rank; recurrent layers have no pages
    uint32_t n_slots, n_blocks, max_model_len;
};

static inline uint32_t kv_blocks_of(uint32_t n_tokens) {
    return (n_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}

// Lays tables into s and pages into kept, whose bytes may be any (scratch.h: called once to
// measure, once to place).
void kv_lay(struct kv *kv, const struct kv_sizes *sizes, struct scratch *s, struct scratch *kept);

// Bytes of one page over this rank's layers and heads, K and V.
uint64_t kv_block_bytes(const struct kv_sizes *sizes);

// Replaces the slot's table from offset on; without blocks nothing changes.
void kv_set_blocks(struct kv *kv, uint32_t slot, uint32_t offset, const uint32_t *blocks,
                   uint32_t n);

// Where the K part of page 0 of a layer (by its number in the model) and head begins, or its
// latents, and its V part.
const void *kv_keys(const struct kv *kv, uint32_t layer, uint32_t head);
const void *kv_values(const struct kv *kv, uint32_t layer, uint32_t head);

// Which token stands at a position of a slot.
void kv_set_token(const struct kv *kv, uint32_t slot, uint32_t position, uint32_t token);
uint32_t kv_token(const struct kv *kv, uint32_t slot, uint32_t position);

// Stores one token's key [key_dim] and value [value_dim] of one layer and head, rounded to the
// page's type.
struct kv_place {
    uint32_t layer, head, slot, position;
};
void kv_write(const struct kv *kv, const struct kernel_ops *ops, const struct kv_place *at,
              const float *key, const float *value);
// Stores one token's latent [key_dim].
void kv_write_latent(const struct kv *kv, const struct kernel_ops *ops, const struct kv_place *at,
                     const float *latent);

// Stores one compressed entry, which stands in the page of its window's last token: [key_dim], or
// [compress.dim] of those that an index scores. Page 0's of a layer begin there.
struct kv_entry {
    uint32_t layer, slot, number;
    bool index;
};
void kv_write_entry(const struct kv *kv, const struct kernel_ops *ops, const struct kv_entry *at,
                    const float *entry);
const void *kv_entries(const struct kv *kv, uint32_t layer, bool index);

// Stores one token's index key [index_dim]; page 0's of a layer begin there.
void kv_write_index(const struct kv *kv, const struct kernel_ops *ops, const struct kv_place *at,
                    const float *key);
const void *kv_index_keys(const struct kv *kv, uint32_t layer);

#endif
