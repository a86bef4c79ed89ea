// descriptors.c: see descriptors.h. All names are written out once, sorted, and then searched.
#include "common/net/descriptors.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/net/pb_arena.h"
#include "descriptor.pb-c.h"

// Real files have two or three levels.
#define NESTING_LEVELS_MAX 16

typedef Moesaic__Descriptor__File File;
typedef Moesaic__Descriptor__Message Message;
typedef Moesaic__Descriptor__Enum Enum;
typedef Moesaic__Descriptor__Named Named;

struct symbol {
    const char *name; // in the arena
    uint32_t file;
    bool is_message;
};

struct descriptors {
    struct arena arena; // everything below and all names
    Moesaic__Descriptor__FileSet *set;
    File *files[DESCRIPTOR_FILES_MAX];
    uint32_t n_files;
    struct symbol *symbols; // sorted by name
    size_t n_symbols, capacity;
    bool failed; // no memory, or deeper than anything we write
};

// --- collecting names

static const char *full_name(struct descriptors *d, const char *scope, const char *name) {
    size_t n_scope = strlen(scope), n_name = strlen(name), dot = n_scope > 0 ? 1 : 0;
    char *full = arena_alloc(&d->arena, n_scope + dot + n_name + 1);
    if (full == NULL) return NULL;
    memcpy(full, scope, n_scope);
    if (dot != 0) full[n_scope] = '.';
    memcpy(full + n_scope + dot, name, n_name + 1);
    return full;
}

static bool make_room(struct descriptors *d) {
    if (d->n_symbols < d->capacity) return true;
    size_t capacity = d->capacity == 0 ? 256 : d->capacity * 2;
    struct symbol *more = mem_resize(d->symbols, capacity * sizeof *more);
    if (more == NULL) return false;
    d->symbols = more;
    d->capacity = capacity;
    return true;
}

// The full name, "" when there is no memory for it.
static const char *add(struct descriptors *d, const char *scope, const char *name) {
    const char *full = full_name(d, scope, name);
    if (full == NULL || !make_room(d)) {
        d->failed = true;
        return "";
    }
    d->symbols[d->n_symbols++] = (struct symbol){.name = full, .file = d->n_files};
    return full;
}

static void add_all(struct descriptors *d, const char *scope, Named *const *named, size_t n) {
    for (size_t i = 0; i < n; i++)
        add(d, scope, named[i]->name);
}

static void add_enums(struct descriptors *d, const char *scope, Enum *const *enums, size_t n) {
    for (size_t i = 0; i < n; i++) {
        add(d, scope, enums[i]->name);
        add_all(d, scope, enums[i]->value, enums[i]->n_value);
    }
}

static void add_messages(struct descriptors *d, const char *scope, Message *const *messages,
                         size_t n, int level) {
    d->failed |= level >= NESTING_LEVELS_MAX;
    for (size_t i = 0; i < n && !d->failed; i++) {
        const Message *m = messages[i];
        const char *full = add(d, scope, m->name);
        if (!d->failed) d->symbols[d->n_symbols - 1].is_message = true;
        add_all(d, full, m->field, m->n_field);
        add_all(d, full, m->oneof_decl, m->n_oneof_decl);
        add_enums(d, full, m->enum_type, m->n_enum_type);
        add_messages(d, full, m->nested_type, m->n_nested_type, level + 1);
    }
}

static void add_file(struct descriptors *d, File *f) {
    d->files[d->n_files] = f;
    add_messages(d, f->package, f->message_type, f->n_message_type, 0);
    add_enums(d, f->package, f->enum_type, f->n_enum_type);
    for (size_t i = 0; i < f->n_service; i++) {
        const char *full = add(d, f->package, f->service[i]->name);
        add_all(d, full, f->service[i]->method, f->service[i]->n_method);
    }
    d->n_files++;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct symbol *)a)->name, ((const struct symbol *)b)->name);
}

static int build(struct descriptors *d, const uint8_t *data, size_t bytes, struct err_text *e) {
    ProtobufCAllocator allocator = pb_arena_allocator(&d->arena);
    d->set = moesaic__descriptor__file_set__unpack(&allocator, bytes, data);
    if (d->set == NULL || d->set->n_file > DESCRIPTOR_FILES_MAX)
        return err_set(e, ERR_FATAL_CONFIG, "the embedded descriptors cannot be read");
    for (size_t i = 0; i < d->set->n_file; i++) {
        const ProtobufCBinaryData *file = &d->set->file[i];
        File *f = moesaic__descriptor__file__unpack(&allocator, file->len, file->data);
        if (f == NULL)
            return err_set(e, ERR_FATAL_CONFIG, "the embedded descriptors cannot be read");
        add_file(d, f);
    }
    if (d->failed) return err_set(e, ERR_FATAL_NOMEM, "no memory for descriptors");
    if (d->n_symbols > 0) qsort(d->symbols, d->n_symbols, sizeof *d->symbols, by_name);
    return 0;
}

int descriptors_create(struct descriptors **out, const uint8_t *data, size_t bytes,
                       struct err_text *e) {
    struct descriptors *d = mem_zalloc(sizeof *d);
    if (d == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for descriptors");
    arena_init(&d->arena, 0);
    int rc = build(d, data, bytes, e);
    if (rc != 0)
        descriptors_destroy(d);
    else
        *out = d;
    return rc;
}

void descriptors_destroy(struct descriptors *d) {
    if (d == NULL) return;
    arena_finish(&d->arena);
    mem_free(d->symbols);
    mem_free(d);
}

// --- looking up

uint32_t descriptors_by_name(const struct descriptors *d, const char *file) {
    for (uint32_t i = 0; i < d->n_files; i++) {
        if (strcmp(d->files[i]->name, file) == 0) return i;
    }
    return DESCRIPTOR_NO_FILE;
}

static const struct symbol *find(const struct descriptors *d, const char *name) {
    const struct symbol key = {.name = name};
    if (d->n_symbols == 0) return NULL;
    return bsearch(&key, d->symbols, d->n_symbols, sizeof key, by_name);
}

uint32_t descriptors_by_symbol(const struct descriptors *d, const char *symbol) {
    const struct symbol *s = find(d, symbol);
    return s == NULL ? DESCRIPTOR_NO_FILE : s->file;
}

bool descriptors_is_message(const struct descriptors *d, const char *symbol) {
    const struct symbol *s = find(d, symbol);
    return s != NULL && s->is_message;
}

static void mark_imports(const struct descriptors *d, const File *f, bool *wanted) {
    for (size_t k = 0; k < f->n_dependency; k++) {
        uint32_t import = descriptors_by_name(d, f->dependency[k]);
        if (import != DESCRIPTOR_NO_FILE) wanted[import] = true;
    }
}

// Imports stand before who imports them, so one way back finds them all.
uint32_t descriptors_closure(const struct descriptors *d, uint32_t file,
                             uint32_t out[DESCRIPTOR_FILES_MAX]) {
    bool wanted[DESCRIPTOR_FILES_MAX] = {false};
    uint32_t n = 0;
    check(file < d->n_files);
    wanted[file] = true;
    for (uint32_t i = file + 1; i-- > 0;) {
        if (!wanted[i]) continue;
        out[n++] = i;
        mark_imports(d, d->files[i], wanted);
    }
    return n;
}

const uint8_t *descriptors_bytes(const struct descriptors *d, uint32_t file, size_t *bytes) {
    check(file < d->n_files);
    *bytes = d->set->file[file].len;
    return d->set->file[file].data;
}
