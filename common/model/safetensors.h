// safetensors.h: Hugging Face's tensor files: one model.safetensors, or shards named by
// model.safetensors.index.json.
//
// The header is checked as if an attacker wrote it; afterwards every tensor's bytes lie inside its
// file and none overlap. Nothing is mapped: a file that shrinks under us is an error, not a signal.
// Immutable after opening; any thread. Format: 8 bytes little-endian header length, the header
// (JSON), the data without gaps.
#ifndef MOESAIC_COMMON_MODEL_SAFETENSORS_H
#define MOESAIC_COMMON_MODEL_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/dtype.h"
#include "common/base/err.h"

#define SAFETENSORS_DIMS_MAX 8

struct safetensors_tensor {
    const char *name;
    uint32_t type; // row of the table of types in safetensors_header.c
    uint32_t shard;
    uint32_t n_dims;
    uint64_t shape[SAFETENSORS_DIMS_MAX];
    uint64_t offset, bytes; // within the file
};

// The type's name in the file ("BF16"), and the format when it is one that weights may have.
const char *safetensors_type_name(const struct safetensors_tensor *t);
bool safetensors_dtype(const struct safetensors_tensor *t, enum dtype *out);
// Bytes of an element where the type may hold ids (I32, I64); 0 where it may not.
uint32_t safetensors_id_bytes(const struct safetensors_tensor *t);
// "[2048, 256]", for messages.
void safetensors_shape_text(char *buf, size_t cap, const uint64_t *shape, uint32_t n_dims);

// --- the parser, without I/O

struct safetensors_header {
    struct safetensors_tensor *tensors; // owned, sorted by name
    size_t n_tensors;
    char *names; // owned
};

// The header's length from a file's first 8 bytes, checked against the file's size and limits.h.
int safetensors_header_bytes(uint64_t *out, const uint8_t first[8], uint64_t file_bytes,
                             const char *file, struct err_text *e);
// The header's text, the size of its file, and the file's name for messages.
struct safetensors_source {
    const char *json;
    size_t json_bytes;
    uint64_t file_bytes;
    const char *file;
};
int safetensors_header_parse(struct safetensors_header *out,
                             const struct safetensors_source *source, struct err_text *e);
void safetensors_header_finish(struct safetensors_header *h);

// --- a checkpoint on disk

struct safetensors;

int safetensors_open(struct safetensors **out, const char *folder, struct err_text *e);

// Hears each problem, one sentence a call.
struct problems {
    void (*say)(void *context, const char *text);
    void *context;
};
// The same, but it goes on behind an error where it can, and says each to problems. The result is
// that of the last one.
int safetensors_open_saying(struct safetensors **out, const char *folder,
                            const struct problems *problems, struct err_text *e);
void safetensors_close(struct safetensors *s);

size_t safetensors_count(const struct safetensors *s);
const struct safetensors_tensor *safetensors_at(const struct safetensors *s,
                                                size_t i); // sorted by name
const struct safetensors_tensor *safetensors_find(const struct safetensors *s,
                                                  const char *name); // or NULL

// A part of a tensor's bytes.
struct safetensors_range {
    uint64_t offset;
    size_t bytes;
};
int safetensors_read(const struct safetensors *s, const struct safetensors_tensor *t,
                     struct safetensors_range range, void *buf, struct err_text *e);

// A hash over shard names, headers and index: equal wherever the checkpoint's layout is.
uint64_t safetensors_layout_hash(const struct safetensors *s);

#endif
