// safetensors.c: a checkpoint's files, its one list of tensors, and reads of their bytes.
#include "common/model/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/model/config.h"

#define SINGLE_FILE "model.safetensors"
#define INDEX_FILE "model.safetensors.index.json"

struct shard {
    char *name;       // owned; within the folder
    struct file file; // fd -1: not open
    struct safetensors_header
        header; // its tensors are copied into the checkpoint's list, its names stay
};

struct safetensors {
    struct shard *shards; // owned, sorted by name
    size_t n_shards;
    struct safetensors_tensor
        *tensors; // owned, sorted by name; the names belong to the shards' headers
    size_t n_tensors;
    uint64_t layout_hash;
    const struct problems *problems; // who hears of errors, or NULL; only while it is opened
    int said;                        // the last of them, 0 = none
};

// Whether to go on behind an error that somebody hears of.
static bool goes_on(struct safetensors *s, int rc, const struct err_text *e) {
    if (s->problems == NULL || rc == ERR_FATAL_NOMEM) return false;
    s->problems->say(s->problems->context, e->text);
    s->said = rc;
    return true;
}

static uint64_t hash_more(uint64_t hash, const void *data, size_t bytes) {
    return XXH3_64bits_withSeed(data, bytes, hash);
}

static int read_header(struct safetensors *s, struct shard *shard, struct err_text *e) {
    const uint64_t file_bytes = shard->file.bytes;
    uint8_t first[8];
    uint64_t json_bytes;
    if (file_bytes < 8)
        return err_set(e, ERR_FATAL_MODEL, "%s has %llu bytes, too few for a header", shard->name,
                       (unsigned long long)file_bytes);
    int rc = file_read_at(&shard->file, 0, first, sizeof first, e);
    if (rc == 0) rc = safetensors_header_bytes(&json_bytes, first, file_bytes, shard->name, e);
    if (rc != 0) return rc;
    char *json = mem_alloc((size_t)json_bytes);
    if (json == NULL)
        return err_set(e, ERR_FATAL_NOMEM, "no memory for the header of %s", shard->name);
    const struct safetensors_source source = {json, (size_t)json_bytes, file_bytes, shard->name};
    rc = file_read_at(&shard->file, 8, json, (size_t)json_bytes, e);
    if (rc == 0) rc = safetensors_header_parse(&shard->header, &source, e);
    if (rc == 0) {
        s->layout_hash = hash_more(s->layout_hash, shard->name, strlen(shard->name) + 1);
        s->layout_hash = hash_more(s->layout_hash, json, (size_t)json_bytes);
    }
    mem_free(json);
    return rc;
}

static int by_name(const void *a, const void *b) {
    const struct safetensors_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

// The shards' lists become one; a name in two shards would make two readers see two models.
static int merge(struct safetensors *s, struct err_text *e) {
    size_t n = 0;
    for (size_t i = 0; i < s->n_shards; i++)
        n += s->shards[i].header.n_tensors;
    if (n > TENSORS_MAX)
        return err_set(e, ERR_FATAL_MODEL, "the checkpoint has %zu tensors, more than %d", n,
                       TENSORS_MAX);
    s->tensors = mem_array(n, sizeof *s->tensors);
    if (s->tensors == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the list of tensors");
    for (size_t i = 0; i < s->n_shards; i++) {
        struct safetensors_header *h = &s->shards[i].header;
        for (size_t j = 0; j < h->n_tensors; j++) {
            s->tensors[s->n_tensors] = h->tensors[j];
            s->tensors[s->n_tensors++].shard = (uint32_t)i;
        }
        mem_free(h->tensors);
        h->tensors = NULL;
    }
    qsort(s->tensors, n, sizeof *s->tensors, by_name);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(s->tensors[i - 1].name, s->tensors[i].name) == 0)
            return err_set(e, ERR_FATAL_MODEL, "tensor %s is in two shards", s->tensors[i].name);
    }
    return 0;
}

static int open_shards(struct safetensors *s, const char *folder, struct err_text *e) {
    for (size_t i = 0; i < s->n_shards; i++) {
        struct shard *shard = &s->shards[i];
        int rc = file_open(&shard->file, folder, shard->name, e);
        if (rc == 0) rc = read_header(s, shard, e);
        if (rc != 0 && !goes_on(s, rc, e)) return rc;
    }
    return s->said != 0 ? s->said : merge(s, e);
}

// A shard lies in the model's folder: a name that could lead out of it, or to a hidden file, is
// refused.
static bool shard_name_is_fine(const char *name) {
    size_t n = strlen(name), suffix = strlen(".safetensors");
    if (n <= suffix || n > 255 || strcmp(name + n - suffix, ".safetensors") != 0) return false;
    return name[0] != '.' && strchr(name, '/') == NULL && strchr(name, '\\') == NULL &&
           strstr(name, "..") == NULL;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// names [n] are sorted; equal neighbours become one shard.
static int make_shards(struct safetensors *s, const char *const *names, size_t n,
                       struct err_text *e) {
    size_t distinct = 0;
    for (size_t i = 0; i < n; i++)
        distinct += i == 0 || strcmp(names[i - 1], names[i]) != 0;
    if (distinct > SHARDS_MAX)
        return err_set(e, ERR_FATAL_MODEL, "%s names %zu shards, more than %d", INDEX_FILE,
                       distinct, SHARDS_MAX);
    s->shards = mem_array(distinct, sizeof *s->shards);
    if (s->shards == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the list of shards");
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && strcmp(names[i - 1], names[i]) == 0) continue;
        struct shard *shard = &s->shards[s->n_shards++];
        shard->file.fd = -1;
        shard->name = mem_strdup(names[i]);
        if (shard->name == NULL)
            return err_set(e, ERR_FATAL_NOMEM, "no memory for the list of shards");
    }
    return 0;
}

static int read_map(struct safetensors *s, const json_t *map, struct err_text *e) {
    size_t n = 0;
    if (!json_is_object(map) || json_object_size(map) == 0)
        return err_set(e, ERR_FATAL_MODEL, "%s: weight_map is missing, empty or not an object",
                       INDEX_FILE);
    const char **names = mem_array(json_object_size(map), sizeof *names);
    if (names == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for %s", INDEX_FILE);
    int rc = 0;
    for (void *i = json_object_iter((json_t *)map); rc == 0 && i != NULL;
         i = json_object_iter_next((json_t *)map, i)) {
        names[n] = json_string_value(json_object_iter_value(i));
        if (names[n] == NULL || !shard_name_is_fine(names[n]))
            rc = err_set(e, ERR_FATAL_MODEL,
                         "%s: tensor %.128s is in \"%.128s\", which is no file name of a shard",
                         INDEX_FILE, json_object_iter_key(i), names[n] == NULL ? "" : names[n]);
        n++;
    }
    if (rc == 0) {
        qsort(names, n, sizeof *names, compare_names);
        rc = make_shards(s, names, n, e);
    }
    mem_free(names);
    return rc;
}

// Index and shards must say the same, both ways.
static int check_map(struct safetensors *s, const json_t *map, struct err_text *e) {
    for (void *i = json_object_iter((json_t *)map); i != NULL;
         i = json_object_iter_next((json_t *)map, i)) {
        const char *name = json_object_iter_key(i),
                   *file = json_string_value(json_object_iter_value(i));
        const struct safetensors_tensor *t = safetensors_find(s, name);
        if (t != NULL && strcmp(s->shards[t->shard].name, file) == 0) continue;
        int rc = err_set(e, ERR_FATAL_MODEL, "%s: tensor %.128s is not in %.128s", INDEX_FILE, name,
                         file);
        if (!goes_on(s, rc, e)) return rc;
    }
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct safetensors_tensor *t = &s->tensors[i];
        if (json_object_get(map, t->name) != NULL) continue;
        int rc = err_set(e, ERR_FATAL_MODEL, "%s: tensor %.128s of %.128s is not listed",
                         INDEX_FILE, t->name, s->shards[t->shard].name);
        if (!goes_on(s, rc, e)) return rc;
    }
    return s->said;
}

static int open_indexed(struct safetensors *s, const char *folder, struct err_text *e) {
    struct file_bytes text = {0};
    json_t *root = NULL;
    int rc = file_read_whole(&text, folder, INDEX_FILE, SAFETENSORS_HEADER_BYTES_MAX, e);
    if (rc != 0) return rc;
    s->layout_hash = hash_more(s->layout_hash, text.data, text.bytes);
    rc = config_parse(&root, text.data, text.bytes, INDEX_FILE, e);
    mem_free(text.data);
    if (rc != 0) return rc;
    const json_t *map = json_object_get(root, "weight_map");
    rc = read_map(s, map, e);
    if (rc == 0) rc = open_shards(s, folder, e);
    if (rc == 0) rc = check_map(s, map, e);
    json_decref(root);
    return rc;
}

int safetensors_open_saying(struct safetensors **out, const char *folder,
                            const struct problems *problems, struct err_text *e) {
    struct safetensors *s = mem_zalloc(sizeof *s);
    if (s == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the list of tensors");
    s->problems = problems;
    int rc;
    if (file_exists(folder, SINGLE_FILE)) {
        const char *name = SINGLE_FILE;
        rc = make_shards(s, &name, 1, e);
        if (rc == 0) rc = open_shards(s, folder, e);
    } else if (file_exists(folder, INDEX_FILE)) {
        rc = open_indexed(s, folder, e);
    } else {
        rc = err_set(e, ERR_FATAL_IO, "%.300s has neither %s nor %s", folder, SINGLE_FILE,
                     INDEX_FILE);
    }
    if (rc != 0) {
        if (s->said == 0) goes_on(s, rc, e);
        safetensors_close(s);
        return rc;
    }
    s->problems = NULL;
    *out = s;
    return 0;
}

int safetensors_open(struct safetensors **out, const char *folder, struct err_text *e) {
    return safetensors_open_saying(out, folder, NULL, e);
}

void safetensors_close(struct safetensors *s) {
    if (s == NULL) return;
    for (size_t i = 0; i < s->n_shards; i++) {
        if (s->shards[i].file.fd >= 0) close(s->shards[i].file.fd);
        safetensors_header_finish(&s->shards[i].header);
        mem_free(s->shards[i].name);
    }
    mem_free(s->shards);
    mem_free(s->tensors);
    mem_free(s);
}

size_t safetensors_count(const struct safetensors *s) {
    return s->n_tensors;
}

const struct safetensors_tensor *safetensors_at(const struct safetensors *s, size_t i) {
    check(i < s->n_tensors);
    return &s->tensors[i];
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *s, const char *name) {
    size_t low = 0, high = s->n_tensors;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, s->tensors[middle].name);
        if (order == 0) return &s->tensors[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

int safetensors_read(const struct safetensors *s, const struct safetensors_tensor *t,
                     struct safetensors_range range, void *buf, struct err_text *e) {
    check(range.offset <= t->bytes && range.bytes <= t->bytes - range.offset);
    return file_read_at(&s->shards[t->shard].file, t->offset + range.offset, buf, range.bytes, e);
}

uint64_t safetensors_layout_hash(const struct safetensors *s) {
    return s->layout_hash;
}
