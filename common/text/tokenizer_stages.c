// tokenizer_stages.c: what tokenizer.json does to text before the model: normaliser and
// pre-tokeniser.
#include <assert.h>
#include <string.h>

#include "common/text/tokenizer_loader.h"

static_assert(DECODER_STEPS_MAX <= NORMALIZER_STEPS_MAX, "a Sequence of any length allowed fits");

// --- normaliser

static int read_form(struct loader *l, const json_t *value, enum unicode_form form,
                     struct normalizer_step *out) {
    static const char *const known[] = {"type", NULL};
    *out = (struct normalizer_step){.kind = NORMALIZE_FORM, .form = form};
    return loader_check_keys(l, value, known, "normalizer");
}

static int read_prepend(struct loader *l, const json_t *value, struct normalizer_step *out) {
    static const char *const known[] = {"type", "prepend", NULL};
    *out = (struct normalizer_step){.kind = NORMALIZE_PREPEND};
    int rc = loader_check_keys(l, value, known, "normalizer");
    if (rc != 0) return rc;
    return loader_short_text(l, value, "prepend",
                             (struct loader_text){out->to, &out->n_to, sizeof out->to});
}

static int read_strip(struct loader *l, const json_t *value, struct normalizer_step *out) {
    static const char *const known[] = {"type", "strip_left", "strip_right", NULL};
    *out = (struct normalizer_step){.kind = NORMALIZE_STRIP};
    int rc = loader_check_keys(l, value, known, "normalizer");
    if (rc == 0) rc = loader_flag(l, value, "strip_left", true, &out->left);
    if (rc == 0) rc = loader_flag(l, value, "strip_right", true, &out->right);
    return rc;
}

static int read_one_normalizer(struct loader *l, const json_t *value) {
    static const char *const forms[] = {
        [FORM_NFC] = "NFC", [FORM_NFD] = "NFD", [FORM_NFKC] = "NFKC", [FORM_NFKD] = "NFKD"};
    const char *type = loader_type(value);
    struct normalizer_step *step = &l->t->normalizer.steps[l->t->normalizer.n++];
    for (int form = FORM_NFC; form <= FORM_NFKD; form++) {
        if (strcmp(type, forms[form]) == 0)
            return read_form(l, value, (enum unicode_form)form, step);
    }
    if (strcmp(type, "Prepend") == 0) return read_prepend(l, value, step);
    if (strcmp(type, "Replace") == 0) return loader_replace(l, value, "normalizer", step);
    if (strcmp(type, "Strip") == 0) return read_strip(l, value, step);
    return refuse(l, "normalizer type \"%.60s\" is not supported", type);
}

int loader_normalizer(struct loader *l) {
    struct loader_list list;
    int rc = loader_list(l, "normalizer", "normalizers", &list);
    for (size_t i = 0; i < list.n && rc == 0; i++)
        rc = read_one_normalizer(l, list.items[i]);
    if (rc == 0 && normalizer_explodes(&l->t->normalizer))
        rc = refuse(l, "normalizer: its replacements make text too long");
    return rc;
}

// --- pre-tokeniser

static int read_behavior(struct loader *l, const json_t *value, enum split_behavior *out) {
    static const char *const names[] = {[SPLIT_ISOLATED] = "Isolated",
                                        [SPLIT_REMOVED] = "Removed",
                                        [SPLIT_CONTIGUOUS] = "Contiguous",
                                        [SPLIT_TO_PREVIOUS] = "MergedWithPrevious",
                                        [SPLIT_TO_NEXT] = "MergedWithNext"};
    const char *name = json_string_value(json_object_get(value, "behavior"));
    for (int i = SPLIT_ISOLATED; name != NULL && i <= SPLIT_TO_NEXT; i++) {
        if (strcmp(names[i], name) != 0) continue;
        *out = (enum split_behavior)i;
        return 0;
    }
    return refuse(l, "behavior \"%.40s\" of %s is not supported", name == NULL ? "" : name,
                  loader_type(value));
}

static int read_split(struct loader *l, const json_t *value) {
    static const char *const known[] = {"type", "pattern", "behavior", "invert", NULL};
    static const char *const pattern_keys[] = {"Regex", "String", NULL};
    struct split_rule rule = {0};
    int rc = loader_check_keys(l, value, known, "pre_tokenizer");
    if (rc == 0) rc = loader_flag(l, value, "invert", false, &rule.invert);
    if (rc == 0) rc = read_behavior(l, value, &rule.behavior);
    if (rc != 0) return rc;
    const json_t *pattern = json_object_get(value, "pattern");
    if (!json_is_object(pattern) || json_object_size(pattern) != 1)
        return refuse(l, "pattern of Split is wrong");
    rc = loader_check_keys(l, pattern, pattern_keys, "pre_tokenizer pattern");
    if (rc != 0) return rc;
    const json_t *literal = json_object_get(pattern, "String");
    const json_t *source = literal == NULL ? json_object_get(pattern, "Regex") : literal;
    if (!json_is_string(source)) return refuse(l, "pattern of Split is not a string");
    rule.source = json_string_value(source);
    rule.n = json_string_length(source);
    rule.literal = literal != NULL;
    return splitter_add(&l->t->splitter, &rule, l->e);
}

static int read_digits(struct loader *l, const json_t *value) {
    static const char *const known[] = {"type", "individual_digits", NULL};
    bool individual;
    int rc = loader_check_keys(l, value, known, "pre_tokenizer");
    if (rc == 0) rc = loader_flag(l, value, "individual_digits", false, &individual);
    if (rc != 0) return rc;
    struct split_rule rule = {.source = individual ? "\\p{N}" : "\\p{N}+"};
    rule.n = strlen(rule.source);
    return splitter_add(&l->t->splitter, &rule, l->e);
}

static int read_punctuation(struct loader *l, const json_t *value) {
    static const char *const known[] = {"type", "behavior", NULL};
    static const char pattern[] = "[!-/:-@\\[-`{-~\\p{P}]";
    struct split_rule rule = {.source = pattern, .n = sizeof pattern - 1};
    int rc = loader_check_keys(l, value, known, "pre_tokenizer");
    if (rc == 0 && json_object_get(value, "behavior") != NULL)
        rc = read_behavior(l, value, &rule.behavior);
    return rc != 0 ? rc : splitter_add(&l->t->splitter, &rule, l->e);
}

// alone: nothing else pre-tokenises. After other stages each of their pieces would get a space.
static int read_byte_level(struct loader *l, const json_t *value, bool alone) {
    static const char *const known[] = {"type", "add_prefix_space", "trim_offsets", "use_regex",
                                        NULL};
    static const char pattern[] =
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    const struct split_rule rule = {.source = pattern, .n = sizeof pattern - 1}; // GPT-2's
    bool prefix, use_regex;
    int rc = loader_check_keys(l, value, known, "pre_tokenizer");
    if (rc == 0) rc = loader_flag(l, value, "add_prefix_space", true, &prefix);
    if (rc == 0) rc = loader_flag(l, value, "use_regex", true, &use_regex);
    if (rc == 0 && prefix && !alone)
        rc =
            refuse(l, "add_prefix_space of ByteLevel behind other pre_tokenizers is not supported");
    if (rc != 0) return rc;
    if (prefix) l->t->spacing.prefix = PREFIX_ALWAYS;
    l->t->vocab.byte_level = true;
    return use_regex ? splitter_add(&l->t->splitter, &rule, l->e) : 0;
}

static int read_prefix_rule(struct loader *l, const json_t *value, enum prefix_rule *out) {
    static const char *const names[] = {
        [PREFIX_NEVER] = "never", [PREFIX_FIRST] = "first", [PREFIX_ALWAYS] = "always"};
    const json_t *scheme = json_object_get(value, "prepend_scheme");
    const char *name = scheme == NULL ? "always" : json_string_value(scheme);
    bool prefix;
    int rc = loader_flag(l, value, "add_prefix_space", true, &prefix);
    if (rc != 0) return rc;
    for (int i = PREFIX_NEVER; name != NULL && i <= PREFIX_ALWAYS; i++) {
        if (strcmp(names[i], name) != 0) continue;
        if (!prefix && i != PREFIX_NEVER)
            return refuse(l, "add_prefix_space and prepend_scheme of Metaspace do not agree");
        *out = (enum prefix_rule)i;
        return 0;
    }
    return refuse(l, "prepend_scheme \"%.40s\" of Metaspace is not supported",
                  name == NULL ? "" : name);
}

static int read_metaspace(struct loader *l, const json_t *value) {
    static const char *const known[] = {
        "type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep", NULL};
    struct spacing *s = &l->t->spacing;
    bool split;
    int rc = loader_check_keys(l, value, known, "pre_tokenizer");
    if (rc == 0)
        rc = loader_short_text(l, value, "replacement",
                               (struct loader_text){s->mark, &s->n_mark, sizeof s->mark});
    if (rc == 0 && s->n_mark == 0) rc = refuse(l, "replacement of Metaspace is empty");
    if (rc == 0) rc = read_prefix_rule(l, value, &s->prefix);
    if (rc == 0) rc = loader_flag(l, value, "split", true, &split);
    if (rc != 0 || !split) return rc;
    const struct split_rule rule = {
        .source = s->mark, .n = s->n_mark, .literal = true, .behavior = SPLIT_TO_NEXT};
    return splitter_add(&l->t->splitter, &rule, l->e);
}

struct place {
    bool first, last;
};

static int read_one_pre_tokenizer(struct loader *l, const json_t *value, struct place at) {
    const char *type = loader_type(value);
    bool byte_level = strcmp(type, "ByteLevel") == 0, metaspace = strcmp(type, "Metaspace") == 0;
    if (byte_level && !at.last) return refuse(l, "pre_tokenizer: ByteLevel must be the last one");
    if (metaspace && !(at.first && at.last))
        return refuse(l, "pre_tokenizer: Metaspace with others is not supported");
    if (byte_level) return read_byte_level(l, value, at.first);
    if (metaspace) return read_metaspace(l, value);
    if (strcmp(type, "Split") == 0) return read_split(l, value);
    if (strcmp(type, "Digits") == 0) return read_digits(l, value);
    if (strcmp(type, "Punctuation") == 0) return read_punctuation(l, value);
    return refuse(l, "pre_tokenizer type \"%.60s\" is not supported", type);
}

int loader_pre_tokenizer(struct loader *l) {
    struct loader_list list;
    int rc = splitter_init(&l->t->splitter, l->e);
    if (rc == 0) rc = loader_list(l, "pre_tokenizer", "pretokenizers", &list);
    for (size_t i = 0; rc == 0 && i < list.n; i++)
        rc = read_one_pre_tokenizer(l, list.items[i], (struct place){i == 0, i + 1 == list.n});
    return rc;
}
