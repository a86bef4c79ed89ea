// descriptors.h: an index over protobuf file descriptors: which file says what a name is.
//
// Made from what protoc --descriptor_set_out --include_imports writes (the build embeds it), so the
// bytes are our own; only the names that are looked up come from outside. Read by any thread once
// it is made. Used by reflection.c.
#ifndef MOESAIC_COMMON_NET_DESCRIPTORS_H
#define MOESAIC_COMMON_NET_DESCRIPTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

#define DESCRIPTOR_FILES_MAX 64
#define DESCRIPTOR_NO_FILE UINT32_MAX

struct descriptors;

// The descriptors of the inference port, from proto/ (proto/embed.cmake).
extern const unsigned char inference_descriptors[];
extern const size_t inference_descriptors_bytes;

// data: a FileDescriptorSet in which each file stands behind those it imports; outlives the index.
int descriptors_create(struct descriptors **out, const uint8_t *data, size_t bytes,
                       struct err_text *e);
void descriptors_destroy(struct descriptors *d); // NULL is fine

// Both DESCRIPTOR_NO_FILE when there is none. A symbol is a full name without a leading dot: of a
// message, field, oneof, enum, enum value (which lives beside its enum), service or method.
uint32_t descriptors_by_name(const struct descriptors *d, const char *file);
uint32_t descriptors_by_symbol(const struct descriptors *d, const char *symbol);
bool descriptors_is_message(const struct descriptors *d, const char *symbol);

// The file and everything that it imports, itself first; the number of them.
uint32_t descriptors_closure(const struct descriptors *d, uint32_t file,
                             uint32_t out[DESCRIPTOR_FILES_MAX]);
// A serialized FileDescriptorProto, as it stands in data.
const uint8_t *descriptors_bytes(const struct descriptors *d, uint32_t file, size_t *bytes);

#endif
