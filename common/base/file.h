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

struct file {
    int fd;
    uint64_t bytes;   // when it was opened
    const char *name; // for messages; not owned
};

// Opens folder/name for reading; close(out->fd) ends it. Anything but a regular file is refused, so
// a pipe cannot block us.
int file_open(struct file *out, const char *folder, const char *name, struct err_text *e);

// Reads exactly n bytes at offset. A file that became shorter since it was opened is ERR_FATAL_IO.
int file_read_at(const struct file *f, uint64_t offset, void *buf, size_t n, struct err_text *e);

struct file_bytes {
    char *data; // mem_alloc'd, with a NUL behind the last byte
    size_t bytes;
};

// Reads a whole file of at most bytes_max; a larger one is ERR_FATAL_MODEL. The caller frees
// out->data.
int file_read_whole(struct file_bytes *out, const char *folder, const char *name, size_t bytes_max,
                    struct err_text *e);
// The same for a file that belongs to no folder, as a person gave its path.
int file_read_path(struct file_bytes *out, const char *path, size_t bytes_max, struct err_text *e);

// What a download that fetched only pointers leaves in the place of large files.
#define FILE_LFS_MARK "version https://git-lfs"
#define FILE_LFS_REASON "a Git LFS pointer stands in its place; git lfs pull fetches the file"

#define FILE_REASON_BYTES 96
// Why bytes are no JSON object at their first glance, in a person's words; NULL: let a parser look.
const char *file_not_json(const char *bytes, size_t n, char buf[FILE_REASON_BYTES]);

#endif
