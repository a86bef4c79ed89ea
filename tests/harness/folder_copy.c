// folder_copy.c: see folder_copy.h.
#include "tests/harness/folder_copy.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/model/safetensors.h"
#include "tests/harness/suite.h"

static void copy_file(const char *from, const char *to) {
    static char buf[1 << 16];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    ck_assert(in != NULL && out != NULL);
    for (size_t n; (n = fread(buf, 1, sizeof buf, in)) > 0;)
        ck_assert_uint_eq(fwrite(buf, 1, n, out), n);
    fclose(in);
    ck_assert_int_eq(fclose(out), 0);
}

void folder_copy_make(struct folder_copy *c, const char *folder) {
    char from[FOLDER_PATH_MAX], to[FOLDER_PATH_MAX];
    snprintf(c->folder, sizeof c->folder, "%s/model-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(c->folder));
    DIR *files = opendir(folder);
    ck_assert_msg(files != NULL, "%s", folder);
    for (const struct dirent *file; (file = readdir(files)) != NULL;) {
        struct stat status;
        snprintf(from, sizeof from, "%s/%.200s", folder, file->d_name);
        if (stat(from, &status) != 0 || !S_ISREG(status.st_mode)) continue;
        folder_copy_path(c, file->d_name, to);
        copy_file(from, to);
    }
    closedir(files);
}

void folder_copy_remove(const struct folder_copy *c) {
    char path[FOLDER_PATH_MAX];
    DIR *files = opendir(c->folder);
    ck_assert_ptr_nonnull(files);
    for (const struct dirent *file; (file = readdir(files)) != NULL;) {
        folder_copy_path(c, file->d_name, path);
        if (file->d_name[0] != '.') unlink(path);
    }
    closedir(files);
    rmdir(c->folder);
}

void folder_copy_path(const struct folder_copy *c, const char *file, char path[FOLDER_PATH_MAX]) {
    snprintf(path, FOLDER_PATH_MAX, "%s/%.200s", c->folder, file);
}

void folder_copy_edit(const struct folder_copy *c, const char *file, const char *from,
                      const char *to) {
    char path[FOLDER_PATH_MAX];
    folder_copy_path(c, file, path);
    ck_assert_uint_eq(strlen(from), strlen(to));
    int fd = open(path, O_RDWR);
    struct stat st;
    ck_assert_int_eq(fstat(fd, &st), 0);
    char *text = mem_alloc((size_t)st.st_size);
    ck_assert_int_eq(pread(fd, text, (size_t)st.st_size, 0), st.st_size);
    char *at = memmem(text, (size_t)st.st_size, from, strlen(from));
    ck_assert_msg(at != NULL, "%s lacks %s", file, from);
    ck_assert_int_eq(pwrite(fd, to, strlen(to), at - text), (ssize_t)strlen(to));
    mem_free(text);
    close(fd);
}

void folder_copy_write(const struct folder_copy *c, const char *file, const char *text) {
    char path[FOLDER_PATH_MAX];
    folder_copy_path(c, file, path);
    FILE *out = fopen(path, "wb");
    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(text, 1, strlen(text), out), strlen(text));
    ck_assert_int_eq(fclose(out), 0);
}

void folder_copy_poke(const struct folder_copy *c, const char *tensor, uint64_t element,
                      uint32_t bits) {
    struct safetensors *st;
    struct err_text e;
    enum dtype dtype;
    char path[FOLDER_PATH_MAX];
    ck_assert_int_eq(safetensors_open(&st, c->folder, &e), 0);
    const struct safetensors_tensor *t = safetensors_find(st, tensor);
    ck_assert_ptr_nonnull(t);
    folder_copy_path(c, "model.safetensors", path);
    int fd = open(path, O_WRONLY);
    size_t n = safetensors_dtype(t, &dtype) ? dtype_bytes(dtype) : sizeof bits;
    ck_assert_int_eq(pwrite(fd, &bits, n, (off_t)(t->offset + n * element)), (ssize_t)n);
    close(fd);
    safetensors_close(st);
}
