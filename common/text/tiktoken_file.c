// tiktoken_file.c: a tiktoken.model file to struct tokenizer: a line a token, its bytes in base64
// and its rank, which is its id.
//
// Its merges follow from that (ranked.h). The pattern and the special tokens are in Python code
// that comes with a model and is not run here: the one that Kimi's models have
// ("TikTokenTokenizer") is known.
#include "common/text/tiktoken_file.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/text/ranked.h"
#include "common/text/unicode_unhan.h"

#define RESERVED_TOKENS 256 // ids behind the ranks that are special, named or not

static const char kimi_pattern[] =
    "\\p{Han}+"
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}" UNHAN_OTHER "]*[\\p{Ll}" UNHAN_OTHER
    "]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}" UNHAN_OTHER "]+[\\p{Ll}" UNHAN_OTHER
    "]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

struct reader {
    struct tokenizer *t;
    const char *text;
    size_t n, at;
    uint32_t line;
    struct err_text *e;
};

#define refuse(r, ...) err_set((r)->e, ERR_FATAL_MODEL, "tiktoken.model: " __VA_ARGS__)

// --- lines

static int digit_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// Decodes base64 up to the space; 0 when it is wrong or empty.
static size_t decode_base64(const char *text, size_t n, unsigned char *out) {
    uint32_t bits = 0;
    size_t written = 0, padding = 0;
    if (n == 0 || n % 4 != 0 || n / 4 * 3 > RANKED_BYTES_MAX) return 0;
    while (padding < 2 && text[n - 1 - padding] == '=')
        padding++;
    for (size_t i = 0; i < n - padding; i++) {
        int digit = digit_of(text[i]);
        if (digit < 0) return 0;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 == 0) continue;
        out[written++] = (unsigned char)(bits >> (6 - 2 * (i % 4)));
    }
    return written;
}

struct ranked {
    unsigned char bytes[RANKED_BYTES_MAX];
    size_t n;
    uint32_t rank;
};

// The next line; *end at the file's end.
static int read_line(struct reader *r, struct ranked *out, bool *end) {
    while (r->at < r->n && r->text[r->at] == '\n')
        r->at++;
    *end = r->at == r->n;
    if (*end) return 0;
    const char *line = r->text + r->at;
    const char *newline = memchr(line, '\n', r->n - r->at);
    size_t n = newline == NULL ? r->n - r->at : (size_t)(newline - line);
    const char *space = memchr(line, ' ', n);
    r->at += n;
    r->line++;
    out->n = space == NULL ? 0 : decode_base64(line, (size_t)(space - line), out->bytes);
    if (out->n == 0) return refuse(r, "line %u has no token in base64", r->line);
    uint64_t rank = 0;
    const char *digit = space + 1;
    for (; digit < line + n && *digit >= '0' && *digit <= '9' && rank < VOCAB_MAX; digit++)
        rank = rank * 10 + (uint64_t)(*digit - '0');
    if (digit == space + 1 || digit != line + n || rank >= VOCAB_MAX - RESERVED_TOKENS)
        return refuse(r, "line %u has no rank below %d", r->line, VOCAB_MAX - RESERVED_TOKENS);
    out->rank = (uint32_t)rank;
    return 0;
}

typedef int line_user(struct reader *r, const struct ranked *line, void *context);

static int for_each_line(struct reader *r, line_user *use, void *context) {
    struct ranked line;
    bool end = false;
    r->at = r->line = 0;
    while (!end) {
        int rc = read_line(r, &line, &end);
        if (rc == 0 && !end) rc = use(r, &line, context);
        if (rc != 0) return rc;
    }
    return 0;
}

// --- ranks

struct counts {
    uint32_t lines, last_rank;
};

static int count_line(struct reader *r, const struct ranked *line, void *context) {
    struct counts *c = context;
    (void)r;
    c->lines++;
    if (line->rank > c->last_rank) c->last_rank = line->rank;
    return 0;
}

static int store_line(struct reader *r, const struct ranked *line, void *context) {
    struct vocab *v = &r->t->vocab;
    (void)context;
    int rc = vocab_store_bytes(v, line->rank, (const char *)line->bytes, line->n, r->e);
    return rc != 0 ? rc : vocab_index(v, line->rank, r->e);
}

static int read_ranks(struct reader *r) {
    struct counts c = {0};
    struct vocab *v = &r->t->vocab;
    int rc = for_each_line(r, count_line, &c);
    if (rc == 0 && (c.lines == 0 || c.last_rank + 1 != c.lines))
        rc = refuse(r, "its ranks are not 0 to the number of lines");
    v->byte_level = true;
    if (rc == 0) rc = vocab_init(v, c.lines + RESERVED_TOKENS, 0, r->e);
    if (rc == 0) rc = for_each_line(r, store_line, NULL);
    if (rc == 0) rc = vocab_find_bytes(v, r->e);
    return rc != 0 ? rc : ranked_merges(v, "tiktoken.model", r->e);
}

// --- special tokens

// What tokenizer_config.json calls a special token's id; NULL: it has no name.
static const json_t *named_token(const json_t *config, uint32_t id) {
    char key[16];
    snprintf(key, sizeof key, "%u", id);
    return json_object_get(json_object_get(config, "added_tokens_decoder"), key);
}

static int add_special(struct reader *r, const json_t *config, uint32_t id) {
    char reserved[32];
    const json_t *named = named_token(config, id);
    const char *content = json_string_value(json_object_get(named, "content"));
    int n = snprintf(reserved, sizeof reserved, "<|reserved_token_%u|>", id);
    const struct ranked_special token = {
        .id = id,
        .content = content == NULL ? reserved : content,
        .n_bytes = content == NULL ? (size_t)n : strlen(content),
        .special = json_is_true(json_object_get(named, "special")),
    };
    return ranked_add_special(r->t, &token, "tiktoken.model", r->e);
}

static int add_specials(struct reader *r, const json_t *config) {
    struct tokenizer *t = r->t;
    int rc = 0;
    for (uint32_t i = 0; i < RESERVED_TOKENS && rc == 0; i++)
        rc = add_special(r, config, t->vocab.n_ids - RESERVED_TOKENS + i);
    if (rc == 0) rc = added_set_sort(&t->raw, r->e);
    return rc != 0 ? rc : added_set_sort(&t->normalized, r->e);
}

static int read_file(struct reader *r, const json_t *config) {
    const char *kind = json_string_value(json_object_get(config, "tokenizer_class"));
    const struct split_rule rule = {.source = kimi_pattern, .n = sizeof kimi_pattern - 1};
    if (kind == NULL || strcmp(kind, "TikTokenTokenizer") != 0)
        return refuse(r,
                      "tokenizer_class \"%.60s\" of tokenizer_config.json is not known to be "
                      "supported with it, only \"TikTokenTokenizer\" is",
                      kind == NULL ? "" : kind);
    int rc = splitter_init(&r->t->splitter, r->e);
    if (rc == 0) rc = splitter_add(&r->t->splitter, &rule, r->e);
    if (rc == 0) rc = read_ranks(r);
    r->t->ignore_merges = true;
    return rc != 0 ? rc : add_specials(r, config);
}

int tiktoken_parse(struct tokenizer **out, const char *text, size_t bytes, const json_t *config,
                   struct err_text *e) {
    struct reader r = {.text = text, .n = bytes, .e = e};
    r.t = mem_zalloc(sizeof *r.t);
    if (r.t == NULL) return err_set(e, ERR_FATAL_NOMEM, "tiktoken.model: no memory");
    int rc = read_file(&r, config);
    if (rc == 0)
        *out = r.t;
    else
        tokenizer_destroy(r.t);
    return rc;
}
