// kv.c: see kv.h. A page keeps keys as [key_dim][16] and values as [16][value_dim], as attend_job
// wants them.
#include "worker/kv.h"

#include <string.h>

#include "common/base/check.h"

uint64_t kv_block_bytes(const struct model_spec *spec, enum dtype dtype) {
    return KV_BLOCK_TOKENS * spec_kv_token_bytes(spec, dtype); // limits.h keeps it far below 2^64
}

void kv_lay(struct kv *kv, const struct kv_sizes *sizes, struct scratch *s) {
    const struct model_spec *spec = sizes->spec;
    kv->dtype = sizes->dtype;
    kv->key_dim = spec_key_dim(spec);
    kv->value_dim = spec_value_dim(spec);
    kv->n_heads = spec_kv_heads(spec);
    kv->n_blocks = sizes->n_blocks;
    kv->blocks_max = kv_blocks_of(sizes->max_model_len);
    size_t element = dtype_bytes(sizes->dtype);
    kv->key_bytes = KV_BLOCK_TOKENS * kv->key_dim * element;
    kv->page_bytes = kv->key_bytes + KV_BLOCK_TOKENS * kv->value_dim * element;
    kv->block_stride = kv->page_bytes * kv->n_heads;
    kv->layer_stride = kv->block_stride * sizes->n_blocks;
    kv->pages = scratch_take(s, (size_t)sizes->n_blocks, kv_block_bytes(spec, sizes->dtype));
    kv->tokens = scratch_take(s, sizes->n_blocks, KV_BLOCK_TOKENS * sizeof *kv->tokens);
    kv->tables = scratch_take(s, sizes->n_slots, sizeof *kv->tables);
    for (uint32_t slot = 0; slot < sizes->n_slots; slot++) {
        uint32_t *blocks = scratch_take(s, kv->blocks_max, sizeof *blocks);
        if (kv->tables != NULL) kv->tables[slot].blocks = blocks;
    }
}

void kv_set_blocks(struct kv *kv, uint32_t slot, uint32_t offset, const uint32_t *blocks,
                   uint32_t n) {
    if (n == 0) return;
    struct kv_table *table = &kv->tables[slot];
    check(offset <= table->n_blocks && n <= kv->blocks_max - offset);
    memcpy(table->blocks + offset, blocks, n * sizeof *blocks);
    table->n_blocks = offset + n;
}

static uint32_t *token_place(const struct kv *kv, uint32_t slot, uint32_t position) {
    uint32_t block = kv->tables[slot].blocks[position / KV_BLOCK_TOKENS];
    return &kv->tokens[(size_t)block * KV_BLOCK_TOKENS + position % KV_BLOCK_TOKENS];
}

void kv_set_token(const struct kv *kv, uint32_t slot, uint32_t position, uint32_t token) {
    *token_place(kv, slot, position) = token;
}

uint32_t kv_token(const struct kv *kv, uint32_t slot, uint32_t position) {
    return *token_place(kv, slot, position);
}

static size_t page_offset(const struct kv *kv, uint32_t layer, uint32_t head, uint32_t block) {
    return layer * kv->layer_stride + block * kv->block_stride + head * kv->page_bytes;
}

const void *kv_keys(const struct kv *kv, uint32_t layer, uint32_t head) {
    return kv->pages + page_offset(kv, layer, head, 0);
}

const void *kv_values(const struct kv *kv, uint32_t layer, uint32_t head) {
    return kv->pages + page_offset(kv, layer, head, 0) + kv->key_bytes;
}

static void write_keys_f32(float *page, const float *key, uint32_t n) {
    for (uint32_t d = 0; d < n; d++)
        page[(size_t)d * KV_BLOCK_TOKENS] = key[d];
}

static void write_keys_bf16(uint16_t *page, const float *key, uint32_t n) {
    for (uint32_t d = 0; d < n; d++)
        page[(size_t)d * KV_BLOCK_TOKENS] = f32_to_bf16(key[d]);
}

void kv_write(const struct kv *kv, const struct kernel_ops *ops, const struct kv_place *at,
              const float *key, const float *value) {
    const struct kv_table *table = &kv->tables[at->slot];
    uint32_t token = at->position % KV_BLOCK_TOKENS;
    uint32_t block = table->blocks[at->position / KV_BLOCK_TOKENS];
    uint8_t *page = kv->pages + page_offset(kv, at->layer, at->head, block);
    if (kv->dtype == DTYPE_F32)
        write_keys_f32((float *)page + token, key, kv->key_dim);
    else
        write_keys_bf16((uint16_t *)page + token, key, kv->key_dim);
    size_t row_bytes = kv->value_dim * dtype_bytes(kv->dtype);
    ops->pack(page + kv->key_bytes + token * row_bytes, value, kv->dtype, kv->value_dim);
}
