// model_path.c: answers --model ORG/NAME, which other servers download, and files of other formats.
#include "leader/model_path.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define NAME_BYTES_MAX 96 // of the hub's names; the answer has room for it

// The letters that names on the hub have. None of them means anything to a shell, so that the
// command in the answer may be copied.
static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

// "org/name"; *name is the part behind the slash.
static bool is_repository(const char *path, const char **name) {
    size_t org = strspn(path, letters);
    if (org == 0 || path[org] != '/' || path[0] == '.' || path[0] == '-') return false;
    *name = path + org + 1;
    size_t n = strspn(*name, letters);
    return n != 0 && org + n <= NAME_BYTES_MAX && (*name)[0] != '.' && (*name)[0] != '-' &&
           (*name)[n] == '\0';
}

static bool is_gguf(const char *path) {
    size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".gguf") == 0;
}

int model_path_check(const char *path, struct err_text *e) {
    struct stat status;
    const char *name;
    bool exists = stat(path, &status) == 0;
    if (is_gguf(path) && !(exists && S_ISDIR(status.st_mode)))
        return err_set(e, ERR_FATAL_CONFIG,
                       "--model %.300s: GGUF is not read; a folder in Hugging Face layout with "
                       "safetensors is needed",
                       path);
    if (exists || !is_repository(path, &name)) return 0;
    return err_set(e, ERR_FATAL_CONFIG,
                   "--model %s is no folder here, and models are not downloaded: run\n"
                   "  hf download %s --local-dir %s\nand pass --model %s",
                   path, path, name, name);
}

void model_path_name(char *out, size_t cap, const char *path) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    snprintf(out, cap, "%.*s", (int)(end - begin), path + begin);
}
