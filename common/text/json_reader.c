// json_reader.c: jansson behind a scan that costs nothing, so that a small file cannot ask for
// gigabytes.
#include "common/text/json_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"

// Counts brackets outside of strings; jansson judges the syntax afterwards.
static int check_bounds(const char *text, size_t bytes, const struct json_bounds *b,
                        struct err_text *e) {
    size_t depth = 0, containers = 0;
    bool in_string = false;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        if (in_string) continue;
        if (c == '{' || c == '[') {
            depth++;
            containers++;
        }
        if ((c == '}' || c == ']') && depth > 0) depth--;
        if (depth > b->depth_max)
            return err_set(e, ERR_FATAL_MODEL, "%s: nested deeper than %zu levels", b->name,
                           b->depth_max);
        if (containers > b->containers_max)
            return err_set(e, ERR_FATAL_MODEL, "%s: more than %zu objects and arrays", b->name,
                           b->containers_max);
    }
    return 0;
}

int json_read(json_t **out, const char *text, size_t bytes, const struct json_bounds *b,
              struct err_text *e) {
    char buf[FILE_REASON_BYTES];
    const char *reason = file_not_json(text, bytes, buf);
    if (reason != NULL) return err_set(e, ERR_FATAL_MODEL, "%s: %s", b->name, reason);
    int rc = check_bounds(text, bytes, b, e);
    if (rc != 0) return rc;
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        return err_set(e, ERR_FATAL_MODEL, "%s, line %d, column %d: %s", b->name, error.line,
                       error.column, error.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return err_set(e, ERR_FATAL_MODEL, "%s: not an object", b->name);
    }
    *out = root;
    return 0;
}

static int read_all(int fd, char *to, size_t bytes) {
    for (size_t n = 0; n < bytes;) {
        ssize_t got = read(fd, to + n, bytes - n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return ERR_FATAL_IO;
        n += (size_t)got;
    }
    return 0;
}

// Opens a regular file of at most bytes_max. O_NONBLOCK: a FIFO must not hang the process.
static int open_regular(const char *path, size_t bytes_max, int *fd, size_t *bytes,
                        struct err_text *e) {
    struct stat info;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0 && errno == ENOENT) return ERR_REQ_NOT_FOUND;
    if (*fd < 0) return err_set(e, ERR_FATAL_IO, "%s: %s", path, strerror(errno));
    int rc = 0;
    if (fstat(*fd, &info) != 0 || !S_ISREG(info.st_mode))
        rc = err_set(e, ERR_FATAL_IO, "%s: not a regular file", path);
    else if (info.st_size < 0 || (size_t)info.st_size > bytes_max)
        rc = err_set(e, ERR_FATAL_MODEL, "%s: larger than %zu bytes", path, bytes_max);
    else
        *bytes = (size_t)info.st_size;
    if (rc != 0) close(*fd);
    return rc;
}

int json_file_read(char **out, size_t *bytes, const char *path, size_t bytes_max,
                   struct err_text *e) {
    int fd;
    size_t n = 0;
    int rc = open_regular(path, bytes_max, &fd, &n, e);
    if (rc != 0) return rc;
    char *data = mem_alloc(n);
    if (data == NULL)
        rc = err_set(e, ERR_FATAL_NOMEM, "%s: no memory", path);
    else if (read_all(fd, data, n) != 0)
        rc = err_set(e, ERR_FATAL_IO, "%s: cannot be read", path);
    close(fd);
    if (rc != 0) {
        mem_free(data);
        return rc;
    }
    *out = data;
    *bytes = n;
    return 0;
}

int json_check_keys(const json_t *object, const char *const *known, const char *where,
                    struct err_text *e) {
    // jansson's iterators do not change the object; their signature does not say so.
    json_t *o;
    memcpy(&o, &object, sizeof o);
    for (void *i = json_object_iter(o); i != NULL; i = json_object_iter_next(o, i)) {
        const char *key = json_object_iter_key(i);
        size_t k = 0;
        while (known[k] != NULL && strcmp(known[k], key) != 0)
            k++;
        if (known[k] == NULL)
            return err_set(e, ERR_FATAL_MODEL, "%s: \"%.60s\" is not supported", where, key);
    }
    return 0;
}
