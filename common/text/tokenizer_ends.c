// tokenizer_ends.c: what tokenizer.json does behind the model: the tokens that a post-processor
// adds, and the decoder.
#include <stdlib.h>
#include <string.h>

#include "common/text/tokenizer_loader.h"

// --- post-processor

static int add_ids(struct loader *l, const json_t *ids, struct affix *to) {
    size_t i;
    json_t *value;
    if (!json_is_array(ids)) return refuse(l, "TemplateProcessing: a special token lacks its ids");
    json_array_foreach(ids, i, value) {
        if (to->n == AFFIX_IDS_MAX)
            return refuse(l, "TemplateProcessing adds more than %d tokens", AFFIX_IDS_MAX);
        int rc = loader_id(l, value, "TemplateProcessing", &to->ids[to->n]);
        if (rc == 0 && to->ids[to->n] >= l->t->vocab.n_ids)
            rc = refuse(l, "TemplateProcessing: there is no id %u", to->ids[to->n]);
        if (rc != 0) return rc;
        to->n++;
    }
    return 0;
}

// One part of "single": the text itself (sequence), or a special token before or behind it.
static int read_template_part(struct loader *l, const json_t *post, const json_t *part,
                              bool *text_seen) {
    const json_t *special = json_object_get(part, "SpecialToken"),
                 *sequence = json_object_get(part, "Sequence");
    if (json_object_size(part) == 1 && json_is_object(sequence)) {
        const char *id = json_string_value(json_object_get(sequence, "id"));
        if (*text_seen || id == NULL || strcmp(id, "A") != 0)
            return refuse(l, "TemplateProcessing: single must have the text once");
        *text_seen = true;
        return 0;
    }
    const char *id = json_string_value(json_object_get(special, "id"));
    if (json_object_size(part) != 1 || id == NULL)
        return refuse(l, "TemplateProcessing: a part of single is neither text nor token");
    const json_t *token = json_object_get(json_object_get(post, "special_tokens"), id);
    return add_ids(l, json_object_get(token, "ids"), *text_seen ? &l->t->after : &l->t->before);
}

// The template around what the processors before it have made of the text.
static int read_template(struct loader *l, const json_t *post) {
    static const char *const known[] = {"type", "single", "pair", "special_tokens", NULL};
    const json_t *single = json_object_get(post, "single");
    struct affix *before = &l->t->before, inner = *before;
    bool text_seen = false;
    size_t i;
    json_t *part;
    if (!json_is_array(single)) return refuse(l, "TemplateProcessing: single is not a list");
    int rc = loader_check_keys(l, post, known, "post_processor");
    *before = (struct affix){0};
    json_array_foreach(single, i, part) {
        if (rc == 0) rc = read_template_part(l, post, part, &text_seen);
    }
    if (rc == 0 && !text_seen) rc = refuse(l, "TemplateProcessing: single must have the text once");
    for (uint32_t k = 0; k < inner.n && rc == 0; k++) {
        if (before->n == AFFIX_IDS_MAX)
            return refuse(l, "TemplateProcessing adds more than %d tokens", AFFIX_IDS_MAX);
        before->ids[before->n++] = inner.ids[k];
    }
    return rc;
}

int loader_post_processor(struct loader *l) {
    struct loader_list list;
    int rc = loader_list(l, "post_processor", "processors", &list);
    for (size_t i = 0; rc == 0 && i < list.n; i++) {
        const char *type = loader_type(list.items[i]);
        if (strcmp(type, "ByteLevel") == 0) continue; // only moves offsets
        if (strcmp(type, "TemplateProcessing") != 0)
            return refuse(l, "post_processor type \"%.60s\" is not supported", type);
        rc = read_template(l, list.items[i]);
    }
    return rc;
}

// --- decoder

// The order in which decoders may stand: what comes later works on the whole text.
enum decoder_stage { STAGE_TOKEN, STAGE_BYTES, STAGE_FUSED };

static int read_metaspace(struct loader *l, const json_t *value) {
    struct decoder *d = &l->t->decoder;
    const json_t *scheme = json_object_get(value, "prepend_scheme");
    const char *name = scheme == NULL ? "always" : json_string_value(scheme);
    bool prefix;
    int rc = loader_short_text(l, value, "replacement",
                               (struct loader_text){d->mark, &d->n_mark, sizeof d->mark});
    if (rc == 0) rc = loader_flag(l, value, "add_prefix_space", true, &prefix);
    if (rc == 0 && d->n_mark == 0) rc = refuse(l, "replacement of Metaspace is empty");
    if (rc == 0 && name == NULL) rc = refuse(l, "prepend_scheme of Metaspace is not a string");
    if (rc != 0) return rc;
    struct normalizer_step *step = &l->decoded.steps[l->decoded.n++];
    *step = (struct normalizer_step){
        .kind = NORMALIZE_REPLACE, .n_from = d->n_mark, .to = " ", .n_to = 1};
    memcpy(step->from, d->mark, d->n_mark);
    d->first_unmark = prefix && strcmp(name, "never") != 0;
    return 0;
}

static int read_strip(struct loader *l, const json_t *value) {
    static const char *const known[] = {"type", "content", "start", "stop", NULL};
    struct decoder *d = &l->t->decoder;
    const json_t *start = json_object_get(value, "start"), *stop = json_object_get(value, "stop");
    int rc = loader_check_keys(l, value, known, "decoder");
    if (rc == 0)
        rc = loader_short_text(l, value, "content",
                               (struct loader_text){d->strip, &d->n_strip, sizeof d->strip});
    if (rc == 0 && d->strip_max != 0) rc = refuse(l, "decoder: more than one Strip");
    if (rc == 0 && d->n_strip == 0) rc = refuse(l, "decoder: content of Strip is empty");
    if (rc == 0 && (!json_is_integer(start) || json_integer_value(start) < 0 ||
                    json_integer_value(start) > UINT16_MAX))
        rc = refuse(l, "decoder: start of Strip is not a count");
    // What stands at the end is not known before the end.
    if (rc == 0 && (!json_is_integer(stop) || json_integer_value(stop) != 0))
        rc = refuse(l, "decoder: stop of Strip must be 0");
    if (rc == 0) d->strip_max = (uint32_t)json_integer_value(start);
    return rc;
}

static int read_one_decoder(struct loader *l, const json_t *value, enum decoder_stage *stage) {
    const char *type = loader_type(value);
    bool fuse = strcmp(type, "Fuse") == 0, bytes = strcmp(type, "ByteFallback") == 0;
    bool token = strcmp(type, "Replace") == 0 || strcmp(type, "Metaspace") == 0;
    if (!fuse && !bytes && !token && strcmp(type, "Strip") != 0)
        return refuse(l, "decoder type \"%.60s\" is not supported", type);
    bool in_order = (token && *stage == STAGE_TOKEN) || (bytes && *stage == STAGE_TOKEN) || fuse ||
                    (!token && !bytes && *stage == STAGE_FUSED);
    if (!in_order) return refuse(l, "decoder: %s at this place is not supported", type);
    if (strcmp(type, "Replace") == 0)
        return loader_replace(l, value, "decoder", &l->decoded.steps[l->decoded.n++]);
    if (token) return read_metaspace(l, value);
    if (!bytes && !fuse) return read_strip(l, value);
    if (bytes) l->t->decoder.byte_runs = true;
    *stage = fuse ? STAGE_FUSED : STAGE_BYTES;
    return 0;
}

int loader_decoder(struct loader *l) {
    struct loader_list list;
    enum decoder_stage stage = STAGE_TOKEN;
    int rc = loader_list(l, "decoder", "decoders", &list);
    if (rc != 0) return rc;
    bool level = list.n == 1 && strcmp(loader_type(list.items[0]), "ByteLevel") == 0;
    if (level != l->t->vocab.byte_level)
        return refuse(l, "decoder type \"%.60s\" does not fit the pre_tokenizer",
                      loader_type(json_object_get(l->root, "decoder")));
    if (level) return 0; // its flags mean nothing when decoding
    if (list.n == 0) return refuse(l, "decoder is missing");
    for (size_t i = 0; i < list.n && rc == 0; i++)
        rc = read_one_decoder(l, list.items[i], &stage);
    if (rc == 0 && normalizer_explodes(&l->decoded))
        rc = refuse(l, "decoder: its replacements make text too long");
    return rc;
}

// --- texts

// "<0xE4>" is one byte.
static bool is_byte(const char *text, size_t n, unsigned char *byte) {
    static const char digits[] = "0123456789abcdefABCDEF";
    if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return false;
    const char hex[3] = {text[3], text[4], '\0'};
    if (strspn(hex, digits) != 2) return false;
    *byte = (unsigned char)strtoul(hex, NULL, 16);
    return true;
}

static int set_text(struct loader *l, struct token *token, const char *text, size_t n) {
    unsigned char byte;
    token->byte = l->t->decoder.byte_runs && is_byte(text, n, &byte);
    if (token->byte) {
        text = (const char *)&byte;
        n = 1;
    }
    char *copy = arena_alloc(&l->t->vocab.arena, n > 0 ? n : 1);
    if (copy == NULL) return err_set(l->e, ERR_FATAL_NOMEM, "tokenizer.json: no memory for texts");
    if (n > 0) memcpy(copy, text, n); // an empty buffer has no address
    token->text = copy;
    token->n_text = (uint32_t)n;
    return 0;
}

int loader_texts(struct loader *l) {
    struct vocab *v = &l->t->vocab;
    struct buf text = {0};
    int rc = 0;
    for (uint32_t id = 0; id < v->n_ids && rc == 0 && !v->byte_level; id++) {
        struct token *token = &v->tokens[id];
        if (token->bytes == NULL) continue;
        buf_reset(&text);
        if (normalize_text(&l->decoded, token->bytes, token->n_bytes, &text) != 0)
            rc = err_set(l->e, ERR_FATAL_NOMEM, "tokenizer.json: no memory for texts");
        else
            rc = set_text(l, token, text.data, text.bytes);
        if (rc == 0 && token->n_text > v->text_bytes_max) v->text_bytes_max = token->n_text;
    }
    buf_finish(&text);
    return rc;
}
