// fuzz_template.c: a chat template from outside is refused, or renders within its limits, the same
// way each time.
//
// The input is the template's source, then, after a zero byte, the variables as JSON.
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/text/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_output(const struct chat_output *o) {
    size_t at = 0;
    for (size_t i = 0; i < o->n_spans; i++) {
        check(o->spans[i].begin == at && o->spans[i].end > at);
        at = o->spans[i].end;
    }
    check(at == o->bytes);
}

static json_t *variables_of(const uint8_t *data, size_t size) {
    json_t *v = size == 0 ? NULL : json_loadb((const char *)data, size, JSON_ALLOW_NUL, NULL);
    if (json_is_object(v)) return v;
    json_decref(v);
    return json_pack("{s:[{s:s, s:s}, {s:s, s:s}], s:b, s:s}", "messages", "role", "user",
                     "content", " hi <|x|> ", "role", "assistant", "content", "b",
                     "add_generation_prompt", 1, "bos_token", "<s>");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *zero = size == 0 ? NULL : memchr(data, 0, size);
    size_t n = zero == NULL ? size : (size_t)(zero - data);
    struct chat_template *t = NULL;
    struct err_text e = {""};
    int rc = chat_template_parse(&t, (const char *)data, n, &e);
    check(rc == 0 || (t == NULL && e.text[0] != '\0'));
    if (rc != 0) return 0;
    json_t *variables = zero == NULL ? variables_of(NULL, 0) : variables_of(zero + 1, size - n - 1);
    struct chat_output first = {0}, second = {0};
    int rc_first = chat_template_render(t, variables, 0, &first, &e),
        rc_second = chat_template_render(t, variables, 0, &second, &e);
    check(rc_first == rc_second);
    if (rc_first == 0) {
        check_output(&first);
        check(first.bytes == second.bytes &&
              (first.bytes == 0 || memcmp(first.text, second.text, first.bytes) == 0));
    }
    chat_output_finish(&first);
    chat_output_finish(&second);
    json_decref(variables);
    chat_template_destroy(t);
    return 0;
}
