// secret.c: see secret.h.
#include "common/base/secret.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/mem.h"

#define FILE_BYTES_MAX ((size_t)256 << 10)

// --- lines

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

// The next word of a line, or no bytes.
static const char *word(const char **at, const char *end, size_t *bytes) {
    while (*at < end && is_space(**at))
        ++*at;
    const char *begin = *at;
    while (*at < end && !is_space(**at))
        ++*at;
    *bytes = (size_t)(*at - begin);
    return begin;
}

static const char *wrong_key(const struct secret_line *l) {
    if (l->key_bytes > SECRET_KEY_BYTES_MAX) return "the key has more than 400 characters";
    for (size_t i = 0; i < l->key_bytes; i++) {
        if (l->key[i] < 0x21 || l->key[i] > 0x7e)
            return "the key has a character that is not printable ASCII";
    }
    return NULL;
}

static const char *wrong_name(const struct secret_line *l) {
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-@";
    if (l->name_bytes > SECRET_NAME_BYTES_MAX) return "the name has more than 64 characters";
    for (size_t i = 0; i < l->name_bytes; i++) {
        if (l->name[i] == '\0' || strchr(allowed, l->name[i]) == NULL)
            return "the name has a character other than letters, digits and ._-@";
    }
    return NULL;
}

// 0, ERR_AGAIN for a line without a secret, or ERR_FATAL_CONFIG with a reason.
static int parse_line(const char *at, const char *end, struct secret_line *out,
                      const char **reason) {
    struct secret_line l = {0};
    size_t third;
    l.name = word(&at, end, &l.name_bytes);
    if (l.name_bytes == 0 || l.name[0] == '#') return ERR_AGAIN;
    l.key = word(&at, end, &l.key_bytes);
    word(&at, end, &third);
    if (l.key_bytes == 0) {
        l.key = l.name;
        l.key_bytes = l.name_bytes;
        l.name_bytes = 0;
    }
    *reason = third != 0 ? "more than a name and a key" : wrong_key(&l);
    if (*reason == NULL) *reason = wrong_name(&l);
    *out = l;
    return *reason == NULL ? 0 : ERR_FATAL_CONFIG;
}

int secret_next(struct secret_lines *lines, struct secret_line *out, struct err_text *e) {
    while (*lines->at != '\0') {
        const char *begin = lines->at, *reason = NULL;
        size_t n = strcspn(begin, "\n");
        lines->at = begin + n + (begin[n] == '\n');
        lines->number++;
        struct secret_line l;
        int rc = parse_line(begin, begin + n, &l, &reason);
        if (rc == ERR_AGAIN) continue;
        if (rc != 0)
            return err_set(e, rc, "%.300s, line %u: %s", lines->where, lines->number, reason);
        *out = l;
        return 0;
    }
    return ERR_AGAIN;
}

// --- wiping

// The compiler must not leave this out because nobody reads the memory again.
void secret_wipe(char *secret) {
    if (secret != NULL) explicit_bzero(secret, strlen(secret));
}

void secret_free(char *secret) {
    secret_wipe(secret);
    mem_free(secret);
}

void secret_wipe_variable(char **environment, const char *name) {
    size_t n = strlen(name);
    for (; *environment != NULL; environment++) {
        if (strncmp(*environment, name, n) == 0 && (*environment)[n] == '=')
            secret_wipe(*environment + n + 1);
    }
}

// --- sources

void secret_warn_of_readers(const char *flag, const char *path) {
    struct stat st;
    if (stat(path, &st) == 0 && (st.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        log_warn("main", "%s %.256s: other users may read it (mode %04o); chmod 600 it", flag, path,
                 (unsigned)(st.st_mode & 07777));
}

static int read_file(char **out, const struct secret_source *s, struct err_text *e) {
    struct file_bytes file;
    struct err_text cause;
    int rc = file_read_path(&file, s->path, FILE_BYTES_MAX, &cause);
    if (rc == 0 && strlen(file.data) != file.bytes) {
        explicit_bzero(file.data, file.bytes);
        mem_free(file.data);
        rc = err_set(&cause, ERR_FATAL_CONFIG, "it has a byte of value 0");
    }
    if (rc != 0)
        return err_set(e, rc == ERR_FATAL_NOMEM ? rc : ERR_FATAL_CONFIG, "%s %.200s: %.250s",
                       s->flag, s->path, cause.text);
    secret_warn_of_readers(s->flag, s->path);
    *out = file.data;
    return 0;
}

int secret_read(char **out, const struct secret_source *s, struct err_text *e) {
    *out = NULL;
    if (s->path != NULL && s->value != NULL)
        return err_set(e, ERR_FATAL_CONFIG, "%s and %s are both given; remove one", s->flag,
                       s->variable);
    if (s->path != NULL) return read_file(out, s, e);
    if (s->value == NULL) return 0;
    *out = mem_strdup(s->value);
    return *out != NULL ? 0 : err_set(e, ERR_FATAL_NOMEM, "no memory for %s", s->variable);
}

static int take_one(char **out, char *text, const char *where, struct err_text *e) {
    struct secret_lines lines = {.at = text, .where = where};
    struct secret_line first, second;
    int rc = secret_next(&lines, &first, e);
    if (rc == ERR_AGAIN) return err_set(e, ERR_FATAL_CONFIG, "%.300s: holds no secret", where);
    if (rc != 0) return rc;
    rc = secret_next(&lines, &second, e);
    if (rc == 0) return err_set(e, ERR_FATAL_CONFIG, "%.300s: holds more than one secret", where);
    if (rc != ERR_AGAIN) return rc;
    *out = mem_strndup(first.key, first.key_bytes);
    return *out != NULL ? 0 : err_set(e, ERR_FATAL_NOMEM, "no memory for a secret");
}

int secret_read_one(char **out, const struct secret_source *s, struct err_text *e) {
    char *text, where[400];
    *out = NULL;
    int rc = secret_read(&text, s, e);
    if (rc != 0 || text == NULL) return rc;
    if (s->path != NULL)
        snprintf(where, sizeof where, "%s %.300s", s->flag, s->path);
    else
        snprintf(where, sizeof where, "%s", s->variable);
    rc = take_one(out, text, where, e);
    secret_free(text);
    return rc;
}
