// kv.c: see kv.h. A page keeps keys as [key_dim][16] and values as [16][value_dim], as attend_job
// wants them; a page of int8 also [16] scales behind each. Latents are [16][key_dim], as latent_job
// wants them, and of int8 [16][2] scales. Index keys stand behind them, laid out as keys; so do
// compressed entries, laid out as latents, and then those that an index scores.
#include "worker/kv.h"

#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"

#define KEY_DIM_MAX (LATENT_DIM_MAX + HEAD_DIM_MAX) // of latent attention, the wider one

uint64_t kv_block_bytes(const struct kv_sizes *sizes) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < sizes->n_layers; i++)
        bytes += spec_page_bytes(sizes->spec, sizes->first_layer + i, sizes->dtype);
    return bytes * sizes->n_heads; // limits.h: far below 2^64
}

// Behind the tokens' rows.
static void place_entries(const struct kv *kv, const struct kv_sizes *sizes, uint32_t layer,
                          struct kv_layer *l) {
    l->rate = spec_compress_rate(sizes->spec, layer);
    if (l->rate == 0) return;
    l->index_at =
        kv->key_bytes + latent_page_rows(l->rate) * latent_row_bytes(kv->dtype, kv->key_dim);
}

static void place_layers(struct kv *kv, const struct kv_sizes *sizes) {
    size_t offset = 0;
    for (uint32_t i = 0; i < sizes->n_layers; i++) {
        struct kv_layer *l = &kv->layers[sizes->first_layer + i];
        l->page_bytes = spec_page_bytes(sizes->spec, sizes->first_layer + i, sizes->dtype);
        l->stride = l->page_bytes * sizes->n_heads;
        l->offset = offset;
        place_entries(kv, sizes, sizes->first_layer + i, l);
        offset += l->stride * sizes->n_blocks;
    }
}

void kv_lay(struct kv *kv, const struct kv_sizes *sizes, struct scratch *s, struct scratch *kept) {
    const struct model_spec *spec = sizes->spec;
    kv->dtype = sizes->dtype;
    kv->key_dim = spec_key_dim(spec);
    kv->value_dim = spec_value_dim(spec);
    check(kv->key_dim <= KEY_DIM_MAX);
    kv->n_heads = sizes->n_heads;
    kv->n_blocks = sizes->n_blocks;
    kv->blocks_max = kv_blocks_of(sizes->max_model_len);
    kv->latents = spec_has_rows(spec);
    kv->key_bytes = KV_BLOCK_TOKENS * (kv->latents ? latent_row_bytes(kv->dtype, kv->key_dim)
                                                   : kv_row_bytes(kv->dtype, kv->key_dim));
    kv->index_dim = spec->indexer.top_k != 0 ? spec->indexer.dim : 0;
    kv->entry_index_dim = spec->compress.dim;
    place_layers(kv, sizes);
    kv->pages = scratch_take(kept, (size_t)sizes->n_blocks, kv_block_bytes(sizes));
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
    const struct kv_layer *l = &kv->layers[layer];
    return l->offset + block * l->stride + head * l->page_bytes;
}

const void *kv_keys(const struct kv *kv, uint32_t layer, uint32_t head) {
    return kv->pages + page_offset(kv, layer, head, 0);
}

const void *kv_values(const struct kv *kv, uint32_t layer, uint32_t head) {
    return kv->pages + page_offset(kv, layer, head, 0) + kv->key_bytes;
}

static void spread_32(float *page, const float *key, uint32_t n) {
    for (uint32_t d = 0; d < n; d++)
        page[(size_t)d * KV_BLOCK_TOKENS] = key[d];
}

static void spread_16(uint16_t *page, const float *key, uint32_t n) {
    for (uint32_t d = 0; d < n; d++)
        page[(size_t)d * KV_BLOCK_TOKENS] = f32_to_bf16(key[d]);
}

static void spread_8(uint8_t *page, const uint8_t *key, uint32_t n) {
    for (uint32_t d = 0; d < n; d++)
        page[(size_t)d * KV_BLOCK_TOKENS] = key[d];
}

// What is written for one token: its place in the page of one layer and head.
struct kv_row {
    const struct kv *kv;
    const struct kernel_ops *ops;
    uint8_t *keys, *values; // of the page
    uint32_t token;         // in the page
};

// Behind the codes of a page stand the scales of its tokens.
static float *scales_of(uint8_t *page, uint32_t dim) {
    return (float *)(page + (size_t)KV_BLOCK_TOKENS * dim);
}

// A key of dim elements into [dim][16].
static void write_key(const struct kv_row *r, const float *key, uint32_t dim) {
    uint8_t codes[KEY_DIM_MAX];
    switch (r->kv->dtype) {
    case DTYPE_F32: spread_32((float *)r->keys + r->token, key, dim); return;
    case DTYPE_BF16: spread_16((uint16_t *)r->keys + r->token, key, dim); return;
    case DTYPE_I8:
        scales_of(r->keys, dim)[r->token] = r->ops->pack_int8((int8_t *)codes, key, dim);
        break;
    default: r->ops->pack(codes, key, r->kv->dtype, dim);
    }
    spread_8(r->keys + r->token, codes, dim);
}

static void write_value(const struct kv_row *r, const float *value) {
    const struct kv *kv = r->kv;
    uint8_t *row = r->values + r->token * kv->value_dim * dtype_bytes(kv->dtype);
    if (kv->dtype == DTYPE_I8)
        scales_of(r->values, kv->value_dim)[r->token] =
            r->ops->pack_int8((int8_t *)row, value, kv->value_dim);
    else
        r->ops->pack(row, value, kv->dtype, kv->value_dim);
}

static uint8_t *page_of(const struct kv *kv, const struct kv_place *at) {
    const struct kv_table *table = &kv->tables[at->slot];
    uint32_t block = table->blocks[at->position / KV_BLOCK_TOKENS];
    return kv->pages + page_offset(kv, at->layer, at->head, block);
}

// Row number `row` of n rows at base, whose first value_dim elements have a scale of their own.
struct latent_place {
    uint8_t *base;
    uint32_t n, row, dim, value_dim;
};

static void write_latent(const struct kv *kv, const struct kernel_ops *ops,
                         const struct latent_place *at, const float *x) {
    uint8_t *row = at->base + (size_t)at->row * at->dim * dtype_bytes(kv->dtype);
    uint32_t rest = at->dim - at->value_dim;
    float scales[2] = {0};
    if (kv->dtype != DTYPE_I8) {
        ops->pack(row, x, kv->dtype, at->dim);
        return;
    }
    scales[0] = ops->pack_int8((int8_t *)row, x, at->value_dim);
    if (rest != 0)
        scales[1] = ops->pack_int8((int8_t *)row + at->value_dim, x + at->value_dim, rest);
    memcpy(at->base + (size_t)at->n * at->dim + at->row * sizeof scales, scales, sizeof scales);
}

void kv_write_latent(const struct kv *kv, const struct kernel_ops *ops, const struct kv_place *at,
                     const float *latent) {
    const struct latent_place place = {page_of(kv, at), KV_BLOCK_TOKENS,
                                       at->position % KV_BLOCK_TOKENS, kv->key_dim, kv->value_dim};
    write_latent(kv, ops, &place, latent);
}

static size_t entries_at(const struct kv *kv, uint32_t layer, bool index) {
    check(kv->layers[layer].rate != 0);
    return index ? kv->layers[layer].index_at : kv->key_bytes;
}

void kv_write_entry(const struct kv *kv, const struct kernel_ops *ops, const struct kv_entry *at,
                    const float *entry) {
    uint32_t rate = kv->layers[at->layer].rate, n = latent_page_rows(rate);
    uint32_t dim = at->index ? kv->entry_index_dim : kv->key_dim;
    const struct kv_place last = {at->layer, 0, at->slot, (at->number + 1) * rate - 1};
    uint8_t *base = page_of(kv, &last) + entries_at(kv, at->layer, at->index);
    write_latent(kv, ops, &(struct latent_place){base, n, at->number % n, dim, dim}, entry);
}

const void *kv_entries(const struct kv *kv, uint32_t layer, bool index) {
    return (const uint8_t *)kv_keys(kv, layer, 0) + entries_at(kv, layer, index);
}

void kv_write(const struct kv *kv, const struct kernel_ops *ops, const struct kv_place *at,
              const float *key, const float *value) {
    uint8_t *page = page_of(kv, at);
    struct kv_row row = {kv, ops, page, page + kv->key_bytes, at->position % KV_BLOCK_TOKENS};
    write_key(&row, key, kv->key_dim);
    write_value(&row, value);
}

void kv_write_index(const struct kv *kv, const struct kernel_ops *ops, const struct kv_place *at,
                    const float *key) {
    uint8_t *page = page_of(kv, at) + kv->key_bytes;
    struct kv_row row = {kv, ops, page, NULL, at->position % KV_BLOCK_TOKENS};
    check(kv->latents && kv->index_dim != 0);
    write_key(&row, key, kv->index_dim);
}

const void *kv_index_keys(const struct kv *kv, uint32_t layer) {
    return (const uint8_t *)kv_keys(kv, layer, 0) + kv->key_bytes;
}
