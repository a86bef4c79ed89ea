// folder_copy.h: a copy of a model's folder in a temporary one, for tests that change it.
#ifndef MOESAIC_TESTS_HARNESS_FOLDER_COPY_H
#define MOESAIC_TESTS_HARNESS_FOLDER_COPY_H

#include <stdint.h>

#define FOLDER_PATH_MAX 512

struct folder_copy {
    char folder[256];
};

// All regular files of the folder.
void folder_copy_make(struct folder_copy *c, const char *folder);
void folder_copy_remove(const struct folder_copy *c);
void folder_copy_path(const struct folder_copy *c, const char *file, char path[FOLDER_PATH_MAX]);
// Replaces the first occurrence of a text by one of the same length.
void folder_copy_edit(const struct folder_copy *c, const char *file, const char *from,
                      const char *to);
// Writes a whole file.
void folder_copy_write(const struct folder_copy *c, const char *file, const char *text);
// Overwrites one element of a tensor, of 4 bytes, or of 2 where the tensor has such; of one of
// ids, 4 bytes counted in such.
void folder_copy_poke(const struct folder_copy *c, const char *tensor, uint64_t element,
                      uint32_t bits);

#endif
