// options_yaml.c: the YAML file of options: one flat mapping of names to scalars, read with
// libyaml's event parser.
#include <errno.h>
#include <string.h>
#include <yaml.h>

#include "common/conf/options.h"

#define OPTIONS_FILE_BYTES_MAX (1u << 20)

struct reader {
    yaml_parser_t parser;
    yaml_event_t event;
    const char *name;
};

static size_t line_of(const struct reader *r) {
    return r->event.start_mark.line + 1;
}

static int next_event(struct reader *r, struct err_text *e) {
    yaml_event_delete(&r->event);
    if (yaml_parser_parse(&r->parser, &r->event)) return 0;
    return err_set(e, ERR_FATAL_CONFIG, "%s:%zu: %s", r->name, r->parser.problem_mark.line + 1,
                   r->parser.problem != NULL ? r->parser.problem : "not YAML");
}

static int expect(struct reader *r, yaml_event_type_t type, const char *what, struct err_text *e) {
    int err = next_event(r, e);
    if (err != 0 || r->event.type == type) return err;
    return err_set(e, ERR_FATAL_CONFIG, "%s:%zu: expected %s", r->name, line_of(r), what);
}

// Copies a scalar; a NUL inside would cut it silently.
static int take_scalar(struct reader *r, char *buf, size_t cap, struct err_text *e) {
    size_t n = r->event.data.scalar.length;
    const unsigned char *value = r->event.data.scalar.value;
    if (n >= cap)
        return err_set(e, ERR_FATAL_CONFIG, "%s:%zu: text is too long", r->name, line_of(r));
    if (memchr(value, '\0', n) != NULL)
        return err_set(e, ERR_FATAL_CONFIG, "%s:%zu: text holds a NUL", r->name, line_of(r));
    memcpy(buf, value, n);
    buf[n] = '\0';
    return 0;
}

static int read_pair(struct reader *r, const struct yaml_sink *sink, struct err_text *e) {
    char key[128], value[4096];
    unsigned line = (unsigned)line_of(r);
    int err = take_scalar(r, key, sizeof key, e);
    if (err == 0) err = expect(r, YAML_SCALAR_EVENT, "a plain value behind the key", e);
    if (err == 0) err = take_scalar(r, value, sizeof value, e);
    return err != 0 ? err : sink->set(sink->context, key, value, line, e);
}

static int read_mapping(struct reader *r, const struct yaml_sink *sink, struct err_text *e) {
    for (;;) {
        int err = next_event(r, e);
        if (err != 0 || r->event.type == YAML_MAPPING_END_EVENT) return err;
        if (r->event.type != YAML_SCALAR_EVENT)
            return err_set(e, ERR_FATAL_CONFIG, "%s:%zu: expected an option's name", r->name,
                           line_of(r));
        if ((err = read_pair(r, sink, e)) != 0) return err;
    }
}

static int read_document(struct reader *r, const struct yaml_sink *sink, struct err_text *e) {
    int err = expect(r, YAML_STREAM_START_EVENT, "a YAML file", e);
    if (err == 0) err = next_event(r, e);
    if (err != 0 || r->event.type == YAML_STREAM_END_EVENT)
        return err; // an empty file sets nothing
    err = expect(r, YAML_MAPPING_START_EVENT, "a mapping of options", e);
    if (err == 0) err = read_mapping(r, sink, e);
    if (err == 0) err = expect(r, YAML_DOCUMENT_END_EVENT, "the end of the document", e);
    return err != 0 ? err : expect(r, YAML_STREAM_END_EVENT, "one document only", e);
}

int options_parse_yaml(const char *text, size_t bytes, const char *name,
                       const struct yaml_sink *sink, struct err_text *e) {
    struct reader r = {.name = name};
    if (!yaml_parser_initialize(&r.parser)) return err_set(e, ERR_FATAL_NOMEM, "out of memory");
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, bytes);
    int err = read_document(&r, sink, e);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    return err;
}

static int read_file(FILE *file, char *text, const struct yaml_sink *sink, const char *path,
                     struct err_text *e) {
    size_t bytes = fread(text, 1, OPTIONS_FILE_BYTES_MAX + 1, file);
    if (ferror(file))
        return err_set(e, ERR_FATAL_CONFIG, "--config: cannot read %s: %s", path, strerror(errno));
    if (bytes > OPTIONS_FILE_BYTES_MAX)
        return err_set(e, ERR_FATAL_CONFIG, "--config: %s is larger than 1 MiB", path);
    return options_parse_yaml(text, bytes, path, sink, e);
}

int options_read_yaml(const char *path, const struct yaml_sink *sink, struct err_text *e) {
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return err_set(e, ERR_FATAL_CONFIG, "--config: cannot open %s: %s", path, strerror(errno));
    char *text = mem_alloc(OPTIONS_FILE_BYTES_MAX + 1);
    int err = text != NULL ? read_file(file, text, sink, path, e)
                           : err_set(e, ERR_FATAL_NOMEM, "out of memory");
    mem_free(text);
    fclose(file);
    return err;
}
