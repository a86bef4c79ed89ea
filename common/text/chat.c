// chat.c: a model's chat template: found, compiled once, rendered for each request.
//
// Before tokenizer.h's encode_spans in the walk. Never reads anything but the model's folder, and
// that only while loading.
#include "common/text/chat.h"

#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/text/jinja_lex.h"
#include "common/text/jinja_run.h"
#include "common/text/json_reader.h"

struct chat_template {
    struct jinja_program program;
};

int chat_template_parse(struct chat_template **out, const char *source, size_t bytes,
                        struct err_text *e) {
    if (bytes > TEMPLATE_BYTES_MAX)
        return err_set(e, ERR_FATAL_MODEL, "chat template: larger than %u bytes",
                       TEMPLATE_BYTES_MAX);
    if (memchr(source, '\0', bytes) != NULL)
        return err_set(e, ERR_FATAL_MODEL, "chat template: it has a zero byte");
    struct chat_template *t = mem_zalloc(sizeof *t);
    char *copy = mem_alloc(bytes);
    int rc = ERR_FATAL_NOMEM;
    if (t == NULL || copy == NULL) {
        err_set(e, rc, "chat template: no memory");
    } else {
        memcpy(copy, source, bytes);
        rc = jinja_compile(&t->program, copy, jinja_normalize(copy, bytes), e);
    }
    mem_free(copy);
    if (rc == 0)
        *out = t;
    else
        mem_free(t);
    return rc;
}

// tokenizer_config.json's chat_template: a string, or a list of named ones of which "default"
// counts.
static int parse_config(struct chat_template **out, const json_t *config, struct err_text *e) {
    const json_t *value = json_object_get(config, "chat_template");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *one = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name == NULL || strcmp(name, "default") != 0) continue;
        value = json_object_get(one, "template");
        break;
    }
    if (value == NULL || json_is_null(value)) return 0;
    if (!json_is_string(value))
        return err_set(
            e, ERR_FATAL_MODEL,
            "tokenizer_config.json: chat_template is neither a string nor a list with \"default\"");
    return chat_template_parse(out, json_string_value(value), json_string_length(value), e);
}

static int load_config(struct chat_template **out, const char *path, struct err_text *e) {
    const struct json_bounds bounds = {
        .name = "tokenizer_config.json", .depth_max = 64, .containers_max = 100000};
    char *text = NULL;
    size_t bytes = 0;
    json_t *root = NULL;
    int rc = json_file_read(&text, &bytes, path, CONFIG_BYTES_MAX, e);
    if (rc == ERR_REQ_NOT_FOUND) return 0;
    if (rc == 0) rc = json_read(&root, text, bytes, &bounds, e);
    if (rc == 0) rc = parse_config(out, root, e);
    json_decref(root);
    mem_free(text);
    return rc;
}

int chat_template_load(struct chat_template **out, const char *folder, struct err_text *e) {
    char path[PATH_BYTES_MAX], *text = NULL;
    size_t bytes = 0;
    *out = NULL;
    int n = snprintf(path, sizeof path, "%s/chat_template.jinja", folder);
    if (n < 0 || (size_t)n + 16 >= sizeof path)
        return err_set(e, ERR_FATAL_CONFIG, "the model's path is too long");
    int rc = json_file_read(&text, &bytes, path, TEMPLATE_BYTES_MAX, e);
    if (rc == 0) rc = chat_template_parse(out, text, bytes, e);
    mem_free(text);
    if (rc != ERR_REQ_NOT_FOUND) return rc;
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    return load_config(out, path, e);
}

void chat_template_destroy(struct chat_template *t) {
    if (t == NULL) return;
    jinja_program_finish(&t->program);
    mem_free(t);
}

bool chat_template_mentions(const struct chat_template *t, const char *text) {
    const struct jinja_program *p = &t->program;
    size_t n = strlen(text);
    for (size_t i = 0; i < p->n_code; i++) {
        if (p->code[i].op != OP_CONST) continue;
        const struct jinja_string *s = &p->strings[p->code[i].a];
        if (s->n == n && memcmp(s->bytes, text, n) == 0) return true;
    }
    return false;
}

void chat_output_finish(struct chat_output *o) {
    mem_free(o->text);
    mem_free(o->spans);
    *o = (struct chat_output){0};
}

// Runs of equal taint become spans.
static int make_spans(const struct text_writer *w, struct chat_output *out, struct err_text *e) {
    size_t n = w->bytes.bytes, n_spans = 0;
    const char *taint = w->taint.data;
    for (size_t i = 0; i < n; i++)
        n_spans += i == 0 || taint[i] != taint[i - 1];
    out->spans = mem_array(n_spans, sizeof *out->spans);
    out->text = mem_alloc(n);
    if (out->spans == NULL || out->text == NULL) {
        chat_output_finish(out);
        return err_set(e, ERR_FATAL_NOMEM, "chat template: no memory");
    }
    if (n > 0) memcpy(out->text, w->bytes.data, n);
    out->bytes = n;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || taint[i] != taint[i - 1])
            out->spans[out->n_spans++] = (struct chat_span){.begin = i, .trusted = taint[i] == 0};
        out->spans[out->n_spans - 1].end = i + 1;
    }
    return 0;
}

int chat_template_render(const struct chat_template *t, const struct json_t *variables,
                         int64_t wall_ns, struct chat_output *out, struct err_text *e) {
    check(json_is_object(variables));
    struct text_writer w;
    struct chat_output result = {0};
    text_writer_init(&w, TEMPLATE_RENDER_BYTES_MAX);
    int rc = jinja_run(&t->program, &(struct jinja_input){variables, wall_ns}, &w, NULL, e);
    if (rc == 0) rc = make_spans(&w, &result, e);
    if (rc == 0) *out = result;
    text_writer_finish(&w);
    return rc;
}
