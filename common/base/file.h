// file.h: reading files of a model folder: regular files only, within a limit, short reads are
// errors.
//
// Any thread. Symbolic links are followed, because download caches are made of them.
#ifndef MOESAIC_COMMON_BASE_FILE_H
#define MOESAIC_COMMON_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

bool file_exists(const char *folder, const char *name);

// Opens folder/name for reading; *bytes is its size now. Anything but a regular file is refused, so
// a pipe cannot block us.
int file_open(int *fd, uint64_t *bytes, const char *folder, const char *name, struct err_text *e);

// Reads exactly n bytes at offset. A file that became shorter since it was opened is ERR_FATAL_IO;
// name is for the text.
int file_read_at(int fd, void *buf, size_t n, uint64_t offset, const char *name,
                 struct err_text *e);

struct file_bytes {
    char *data; // mem_alloc'd, with a NUL behind the last byte
    size_t bytes;
};

// Reads a whole file of at most bytes_max; a larger one is ERR_FATAL_MODEL. The caller frees
// out->data.
int file_read(struct file_bytes *out, const char *folder, const char *name, size_t bytes_max,
              struct err_text *e);

#endif
