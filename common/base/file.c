// file.c: see file.h.
#include "common/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/limits.h"
#include "common/base/mem.h"

static bool path_join(char path[PATH_BYTES_MAX], const char *folder, const char *name) {
    int n = snprintf(path, PATH_BYTES_MAX, "%s/%s", folder, name);
    return n > 0 && n < PATH_BYTES_MAX;
}

bool file_exists(const char *folder, const char *name) {
    char path[PATH_BYTES_MAX];
    return path_join(path, folder, name) && access(path, F_OK) == 0;
}

static int open_path(struct file *out, const char *path, const char *name, struct err_text *e) {
    // Without O_NONBLOCK opening a pipe would wait for its writer.
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0)
        return err_set(e, ERR_FATAL_IO, "cannot open %.400s: %s", path, strerror(errno));
    struct stat st;
    if (fstat(opened, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(opened);
        return err_set(e, ERR_FATAL_IO, "%.400s is not a regular file", path);
    }
    *out = (struct file){.fd = opened, .bytes = (uint64_t)st.st_size, .name = name};
    return 0;
}

int file_open(struct file *out, const char *folder, const char *name, struct err_text *e) {
    char path[PATH_BYTES_MAX];
    if (!path_join(path, folder, name))
        return err_set(e, ERR_FATAL_IO, "the path of %.128s is longer than %d bytes", name,
                       PATH_BYTES_MAX);
    struct stat st;
    if (stat(folder, &st) != 0 && errno == ENOENT) // a mistyped folder is no missing file
        return err_set(e, ERR_FATAL_IO, "cannot open %.200s: there is no folder %.200s", path,
                       folder);
    if (stat(folder, &st) == 0 && !S_ISDIR(st.st_mode))
        return err_set(e, ERR_FATAL_IO, "cannot open %.200s: %.200s is no folder", path, folder);
    return open_path(out, path, name, e);
}

int file_read_at(const struct file *f, uint64_t offset, void *buf, size_t n, struct err_text *e) {
    size_t done = 0;
    while (done < n) {
        ssize_t got = pread(f->fd, (char *)buf + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return err_set(e, ERR_FATAL_IO, "cannot read %.256s: %s", f->name, strerror(errno));
        if (got == 0)
            return err_set(e, ERR_FATAL_IO,
                           "%.256s ends at byte %llu, before byte %llu: the file was cut short",
                           f->name, (unsigned long long)(offset + done),
                           (unsigned long long)(offset + n));
        done += (size_t)got;
    }
    return 0;
}

// Closes f.
static int read_whole(struct file_bytes *out, const struct file *f, size_t bytes_max,
                      struct err_text *e) {
    int rc = 0;
    char *data = NULL;
    if (f->bytes > bytes_max) {
        rc =
            err_set(e, ERR_FATAL_MODEL, "%.256s has %llu bytes, more than the %zu that are allowed",
                    f->name, (unsigned long long)f->bytes, bytes_max);
        goto out;
    }
    data = mem_alloc((size_t)f->bytes + 1);
    if (data == NULL) {
        rc = err_set(e, ERR_FATAL_NOMEM, "no memory for %.256s", f->name);
        goto out;
    }
    rc = file_read_at(f, 0, data, (size_t)f->bytes, e);
out:
    close(f->fd);
    if (rc != 0) {
        mem_free(data);
        return rc;
    }
    data[f->bytes] = '\0';
    *out = (struct file_bytes){.data = data, .bytes = (size_t)f->bytes};
    return 0;
}

int file_read_whole(struct file_bytes *out, const char *folder, const char *name, size_t bytes_max,
                    struct err_text *e) {
    struct file f;
    int rc = file_open(&f, folder, name, e);
    return rc == 0 ? read_whole(out, &f, bytes_max, e) : rc;
}

int file_read_path(struct file_bytes *out, const char *path, size_t bytes_max, struct err_text *e) {
    struct file f;
    int rc = open_path(&f, path, path, e);
    return rc == 0 ? read_whole(out, &f, bytes_max, e) : rc;
}

const char *file_not_json(const char *bytes, size_t n, char buf[FILE_REASON_BYTES]) {
    const size_t mark = sizeof FILE_LFS_MARK - 1;
    size_t at = 0, shown = 0;
    while (at < n && memchr(" \t\r\n", bytes[at], 4) != NULL)
        at++;
    if (at == n) return "it is empty";
    if (bytes[at] == '{' || bytes[at] == '[') return NULL;
    if (n - at >= mark && memcmp(bytes + at, FILE_LFS_MARK, mark) == 0) return FILE_LFS_REASON;
    while (shown < 24 && at + shown < n && bytes[at + shown] >= ' ' && bytes[at + shown] < 0x7f)
        shown++;
    if (shown > 0)
        snprintf(buf, FILE_REASON_BYTES, "it is no JSON: it begins with \"%.*s\"", (int)shown,
                 bytes + at);
    else
        snprintf(buf, FILE_REASON_BYTES, "it is no JSON: byte %zu is 0x%02x", at,
                 (unsigned char)bytes[at]);
    return buf;
}
