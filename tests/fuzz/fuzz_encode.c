// fuzz_encode.c: any bytes encode, in any cut into spans, and decode to the same text.
//
// The first byte of the input says how the rest is cut: each set bit begins a new span of other
// trust at that eighth.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/text/chat.h"
#include "common/text/tokenizer.h"
#include "common/text/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add(char *json, size_t cap, const char *text) {
    size_t n = strlen(json);
    check(n + strlen(text) < cap);
    memcpy(json + n, text, strlen(text) + 1);
}

// The byte alphabet as 256 tokens, a few merges, three added tokens.
static struct tokenizer *make(const char *normalizer) {
    static char json[16384];
    char part[64];
    uint32_t extra = 256, id = 0;
    snprintf(
        json, sizeof json,
        "{\"version\":\"1.0\",\"normalizer\":%s,\"added_tokens\":["
        "{\"id\":300,\"content\":\"<a>\",\"normalized\":false,\"special\":true},"
        "{\"id\":301,\"content\":\"<a><b>\",\"normalized\":true,\"special\":false},"
        "{\"id\":302,\"content\":\"  \",\"normalized\":false,\"special\":false}],"
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
        "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{",
        normalizer);
    for (uint32_t b = 0; b < 256; b++) {
        bool kept = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
        snprintf(part, sizeof part, "%s\"\\u%04x\":%u", b == 0 ? "" : ",", kept ? b : extra++,
                 id++);
        add(json, sizeof json, part);
    }
    add(json, sizeof json,
        ",\"aa\":256,\"aaa\":257,\"aaaa\":258,\"\\u0120a\":259,\"ba\":260},\"merges\":[\"b a\",\"a "
        "a\",\"aa a\",\"aa aa\",\"\\u0120 a\"]}}");
    struct tokenizer *t = NULL;
    struct err_text e = {""};
    int rc = tokenizer_parse(&t, json, strlen(json), &e);
    if (rc != 0) fprintf(stderr, "%s\n", e.text);
    check(rc == 0);
    return t;
}

// The text as encoding repairs it.
static size_t repaired(const char *text, size_t n, char *out) {
    size_t written = 0;
    for (size_t i = 0; i < n;) {
        struct utf8_unit unit = utf8_next(text + i, n - i);
        memcpy(out + written, unit.valid ? text + i : UTF8_REPLACEMENT,
               unit.valid ? unit.bytes : 3);
        written += unit.valid ? unit.bytes : 3;
        i += unit.bytes;
    }
    return written;
}

static size_t decode(const struct tokenizer *t, const struct id_list *ids, char *out) {
    struct detok d;
    size_t n = 0, cap = detok_bytes_max(t);
    detok_init(&d, t, false);
    for (size_t i = 0; i < ids->n; i++)
        n += detok_push(&d, ids->ids[i], out + n, cap);
    return n + detok_finish(&d, out + n, cap);
}

static void encode_cut(const struct tokenizer *t, struct chat_output *prompt, uint8_t cuts,
                       struct id_list *ids) {
    struct chat_span spans[9];
    size_t at = 0;
    bool trusted = true;
    prompt->spans = spans;
    prompt->n_spans = 0;
    for (size_t i = 0; i <= 8; i++) {
        size_t end = i == 8 ? prompt->bytes : prompt->bytes * (i + 1) / 9;
        spans[prompt->n_spans++] = (struct chat_span){.begin = at, .end = end, .trusted = trusted};
        if (i < 8 && (cuts >> i & 1)) trusted = !trusted;
        at = end;
    }
    struct err_text e = {""};
    check(tokenizer_encode_spans(t, prompt, &(struct encode_bounds){prompt->bytes * 4 + 16, NULL},
                                 ids, &e) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct tokenizer *plain, *nfc;
    if (plain == NULL) plain = make("null");
    if (nfc == NULL) nfc = make("{\"type\":\"NFC\"}");
    if (size == 0 || size > 65536) return 0;
    char *text = malloc(size), *wanted = malloc(3 * size + 64), *got = malloc(3 * size + 4096);
    memcpy(text, data + 1, size - 1);
    struct chat_output prompt = {.text = text, .bytes = size - 1};
    struct id_list ids = {0};
    encode_cut(plain, &prompt, data[0], &ids);
    size_t n = repaired(text, size - 1, wanted);
    check(decode(plain, &ids, got) == n && memcmp(got, wanted, n) == 0);
    ids.n = 0;
    encode_cut(nfc, &prompt, data[0], &ids);
    id_list_finish(&ids);
    free(text);
    free(wanted);
    free(got);
    return 0;
}
