// secret.h: where keys and tokens come from: a file or a variable, never a flag, whose value
// everybody on the machine sees in the process list.
//
// A text of secrets has one a line, "KEY" or "NAME KEY"; empty lines and those that begin with #
// are skipped. Used by all programs while they start; one thread.
#ifndef MOESAIC_COMMON_BASE_SECRET_H
#define MOESAIC_COMMON_BASE_SECRET_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"

#define SECRET_KEY_BYTES_MAX 400
#define SECRET_NAME_BYTES_MAX 64

struct secret_source {
    const char *flag;     // of the file, for messages: "--api-key-file"
    const char *path;     // NULL: no file
    const char *variable; // for messages: "MOESAIC_API_KEY"
    const char *value;    // of the variable; NULL: not set
};

// The whole text, mem_alloc'd, for secret_free; NULL when there is neither file nor value. Both are
// refused, because one of them would be ignored. Warns of readers.
int secret_read(char **out, const struct secret_source *source, struct err_text *e);
// The one key of the source, without a name.
int secret_read_one(char **out, const struct secret_source *source, struct err_text *e);
// Logs a warning when other users may read a file.
void secret_warn_of_readers(const char *flag, const char *path);
void secret_free(char *secret); // wipes it first; NULL is fine
void secret_wipe(char *secret); // up to its end

// Overwrites each "NAME=value" of an environment, where /proc/PID/environ shows it, and empties the
// entry.
void secret_wipe_variable(char **environment, const char *name);

struct secret_lines {
    const char *at;    // what is still to read
    const char *where; // for messages: the file or the variable
    unsigned number;   // of the last line read
};

struct secret_line { // into the text
    const char *name, *key;
    size_t name_bytes, key_bytes; // name_bytes 0: it has none
};

// The next secret: 0, ERR_AGAIN at the end, ERR_FATAL_CONFIG when a line is wrong. No message shows
// a secret.
int secret_next(struct secret_lines *lines, struct secret_line *out, struct err_text *e);

#endif
