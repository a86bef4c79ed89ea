// fuzz_tokenizer.c: a tokenizer.json from outside, or a tiktoken.model behind a zero byte, or a
// tokenizer.tok.json behind a one, is refused, or works on text without harm.
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/text/tiktoken_file.h"
#include "common/text/tok_json_file.h"
#include "common/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct tokenizer *t) {
    static const char text[] =
        "Hello, <|im_start|> w\xc3\xb6rld's 12345  \n\n \xff e\xcc\x81 <|x|>";
    struct id_list ids = {0};
    struct err_text e;
    struct encode_text whole = {text, sizeof text - 1, false, 1000, true, NULL};
    char *out = mem_alloc(detok_bytes_max(t));
    struct detok d;
    detok_init(&d, t, false);
    for (int special = 0; special < 2; special++) {
        d.skip_special = special != 0;
        whole.parse_special = special != 0;
        ids.n = 0;
        if (tokenizer_encode(t, &whole, &ids, &e) != 0) continue;
        for (size_t i = 0; i < ids.n && out != NULL; i++) {
            check(ids.ids[i] < tokenizer_vocab(t));
            detok_push(&d, ids.ids[i], out, detok_bytes_max(t));
        }
    }
    if (out != NULL) detok_finish(&d, out, detok_bytes_max(t));
    mem_free(out);
    id_list_finish(&ids);
}

static int parse_ranks(struct tokenizer **out, const char *text, size_t n, struct err_text *e) {
    json_t *config = json_pack("{s:s}", "tokenizer_class", "TikTokenTokenizer");
    int rc = tiktoken_parse(out, text, n, config, e);
    json_decref(config);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tokenizer *t = NULL;
    struct err_text e = {""};
    const char *text = (const char *)data;
    int rc = size > 0 && data[0] == 0   ? parse_ranks(&t, text + 1, size - 1, &e)
             : size > 0 && data[0] == 1 ? tok_json_parse(&t, text + 1, size - 1, &e)
                                        : tokenizer_parse(&t, text, size, &e);
    check(rc == 0 || (t == NULL && e.text[0] != '\0'));
    if (rc == 0) use(t);
    tokenizer_destroy(t);
    return 0;
}
