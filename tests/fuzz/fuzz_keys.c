// fuzz_keys.c: any text of keys is refused, or each of its keys is found and a changed one is not.
//
// Lines that a key's file may hold are what secret_next reads; keys_parse makes the set of them.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/secret.h"
#include "common/net/keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int32_t find(const struct keys *k, const struct secret_line *line, bool changed) {
    char header[SECRET_KEY_BYTES_MAX + 16];
    int n = snprintf(header, sizeof header, "Bearer %.*s%s", (int)line->key_bytes, line->key,
                     changed ? "\x01" : ""); // no key has this character
    return keys_find(k, header, (size_t)n);
}

static void look_up(const struct keys *k, const char *text) {
    struct secret_lines lines = {.at = text, .where = "text"};
    struct secret_line line;
    int32_t number = 0;
    while (secret_next(&lines, &line, NULL) == 0) {
        check(find(k, &line, false) == number && find(k, &line, true) == KEY_NONE);
        check(line.name_bytes == 0 ||
              strncmp(keys_name(k, number), line.name, line.name_bytes) == 0);
        number++;
    }
    check(number > 0 && keys_name(k, number) == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err_text e = {""};
    struct keys *k;
    char *text = mem_strndup((const char *)data, size);
    log_setup("fuzz", LOG_SILENT);
    check(text != NULL);
    if (keys_parse(&k, text, "text", &e) == 0) {
        look_up(k, text);
        keys_destroy(k);
    } else {
        check(strncmp(e.text, "text", 4) == 0);
    }
    mem_free(text);
    return 0;
}
