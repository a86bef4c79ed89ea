// spec.c: config.json and generation_config.json to struct model_spec, and the checks that every
// reader of a spec relies on.
//
// A family (families/) reads the keys of its architecture; what follows here is the same for all.
#include "common/model/spec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/model/config.h"
#include "common/model/families/families.h"
#include "common/model/safetensors.h"
#include "kernels/ops.h"

#define IN_TABLE(name, types) &family_##name,
const struct family *const family_table[] = {FAMILIES(IN_TABLE) NULL};

// The first name that fits what is known of it; NULL stands for anything.
static const struct family *find(const char *architecture, const char *type,
                                 const struct model_name **name) {
    for (const struct family *const *f = family_table; *f != NULL; f++) {
        for (*name = (*f)->names; (*name)->architecture != NULL; ++*name) {
            if (architecture != NULL && strcmp((*name)->architecture, architecture) != 0) continue;
            if (type == NULL || strcmp((*name)->type, type) == 0) return *f;
        }
    }
    return NULL;
}

const struct family *family_find(const char *architecture) {
    const struct model_name *name;
    return find(architecture, NULL, &name);
}

const struct family *spec_family(const struct model_spec *spec) {
    const struct family *family = family_find(spec->architecture);
    for (uint32_t i = 0; i < spec->form; i++)
        family = family->other_form;
    return family;
}

// One literal, because a list made at run time would be state; a unit test compares it with the
// table. Each name brings a comma, so the first two characters are left out.
const char *family_names(void) {
#define IN_LIST(name, types) ", " types
    static const char names[] = FAMILIES(IN_LIST);
    return names + 2;
}

static void refuse_name(struct config_reader *r, const char *architecture, const char *type) {
    if (architecture == NULL && type == NULL)
        config_refuse(r, "architectures is missing");
    else if (architecture == NULL)
        config_refuse(r, "model_type \"%.64s\" is not supported (supported: %s)", type,
                      family_names());
    else if (family_find(architecture) == NULL)
        config_refuse(r, "architecture \"%.64s\" is not supported (supported model types: %s)",
                      architecture, family_names());
    else
        config_refuse(r, "model_type \"%.64s\" does not belong to architecture \"%.64s\"", type,
                      architecture);
}

// architectures decides; model_type must agree with it, and stands in when it is absent.
static const struct family *read_family(struct config_reader *r, struct model_spec *spec) {
    const json_t *list = config_value(r, "architectures");
    const char *type = config_text_or(r, "model_type", NULL), *architecture = NULL;
    if (list != NULL) {
        architecture = json_string_value(json_array_get(list, 0));
        if (architecture == NULL || json_array_size(list) != 1)
            config_refuse(r, "architectures must be a list of one name");
    }
    if (r->rc != 0) return NULL;
    const struct model_name *name = NULL;
    const struct family *family =
        architecture == NULL && type == NULL ? NULL : find(architecture, type, &name);
    if (family == NULL) {
        refuse_name(r, architecture, type);
        return NULL;
    }
    snprintf(spec->family, sizeof spec->family, "%s", name->type);
    snprintf(spec->architecture, sizeof spec->architecture, "%s", name->architecture);
    return family;
}

// DTYPE_COUNT when the file does not say. Newer files write dtype, older ones torch_dtype.
static enum dtype read_dtype(struct config_reader *r) {
    const char *key = config_value(r, "dtype") != NULL ? "dtype" : "torch_dtype";
    const char *name = config_text_or(r, key, NULL);
    if (name == NULL) return DTYPE_COUNT;
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (strcmp(name, dtype_name((enum dtype)t)) == 0) return (enum dtype)t;
    config_refuse(r, "%s \"%.64s\" is not supported", key, name);
    return DTYPE_COUNT;
}

static uint32_t read_id(struct config_reader *r, const char *key, const json_t *v) {
    if (!json_is_integer(v)) {
        config_refuse(r, "%s must be a token id", key);
        return 0;
    }
    json_int_t id = json_integer_value(v);
    if (id < 0 || id >= VOCAB_MAX) {
        config_refuse(r, "%s %lld is no token id", key, (long long)id);
        return 0;
    }
    return (uint32_t)id;
}

static void read_stop_ids(struct config_reader *r, struct model_spec *spec) {
    const char *key = "eos_token_id";
    const json_t *v = config_value(r, key);
    if (v == NULL || spec->n_stop_ids != 0) return;
    if (!json_is_array(v)) {
        spec->stop_ids[0] = read_id(r, key, v);
        spec->n_stop_ids = 1;
        return;
    }
    if (json_array_size(v) > STOP_IDS_MAX) {
        config_refuse(r, "%s has %zu entries, more than %d", key, json_array_size(v), STOP_IDS_MAX);
        return;
    }
    for (size_t i = 0; i < json_array_size(v); i++)
        spec->stop_ids[spec->n_stop_ids++] = read_id(r, key, json_array_get(v, i));
}

// generation_config.json is asked first: models whose chat ends with another token than their base
// model say so there.
static void read_special_ids(struct config_reader *r, struct model_spec *spec) {
    const json_t *bos = config_value(r, "bos_token_id");
    if (bos != NULL && spec->bos_id == UINT32_MAX) spec->bos_id = read_id(r, "bos_token_id", bos);
    read_stop_ids(r, spec);
}

// Of a model inside a multimodal checkpoint, which may have them beside its sizes only.
static void read_nested(struct config_reader *r, struct model_spec *spec) {
    const json_t *text = config_value(r, "text_config");
    if (!json_is_object(text)) return;
    struct config_reader nested = {
        .object = text, .file = "config.json: text_config", .e = r->e, .rc = r->rc};
    if (spec->dtype == DTYPE_COUNT) spec->dtype = read_dtype(&nested);
    read_special_ids(&nested, spec);
    r->rc = nested.rc;
}

static int read_generation(struct model_spec *spec, const struct spec_source *source,
                           struct err_text *e) {
    json_t *root;
    int rc = config_parse(&root, source->generation, source->generation_bytes,
                          "generation_config.json", e);
    if (rc != 0) return rc;
    struct config_reader r = {.object = root, .file = "generation_config.json", .e = e};
    read_special_ids(&r, spec);
    json_decref(root);
    return r.rc;
}

static int read_config(struct model_spec *spec, const struct spec_source *source,
                       struct err_text *e) {
    json_t *root;
    int rc = config_parse(&root, source->config, source->config_bytes, "config.json", e);
    if (rc != 0) return rc;
    struct config_reader r = {.object = root, .file = "config.json", .e = e};
    const struct family *family = read_family(&r, spec);
    if (family != NULL) r.rc = family->read(spec, root, e);
    if (r.rc == 0) {
        spec->dtype = read_dtype(&r);
        read_special_ids(&r, spec);
        read_nested(&r, spec);
    }
    json_decref(root);
    return r.rc;
}

// spec->dtype may still be DTYPE_COUNT afterwards.
static int parse(struct model_spec *out, const struct spec_source *source, struct err_text *e) {
    struct model_spec spec = {.bos_id = UINT32_MAX};
    int rc = 0;
    if (source->generation != NULL) rc = read_generation(&spec, source, e);
    if (rc == 0) rc = read_config(&spec, source, e);
    if (rc == 0) rc = spec_check(&spec, e);
    if (rc == 0) *out = spec;
    return rc;
}

int spec_parse(struct model_spec *out, const struct spec_source *source, struct err_text *e) {
    int rc = parse(out, source, e);
    if (rc == 0 && out->dtype == DTYPE_COUNT) out->dtype = DTYPE_F32; // as Hugging Face takes it
    return rc;
}

int spec_take_dtype(struct model_spec *spec, const struct safetensors *st, struct err_text *e) {
    if (spec->dtype != DTYPE_COUNT) return 0;
    char name[TENSOR_NAME_MAX];
    const struct tensor_ref ref = {.kind = TENSOR_EMBED};
    check(spec_family(spec)->tensor_name(spec, &ref, name, sizeof name));
    const struct safetensors_tensor *t = safetensors_find(st, name);
    if (t == NULL) return err_set(e, ERR_FATAL_MODEL, "tensor %s is missing", name);
    if (safetensors_dtype(t, &spec->dtype)) return 0;
    return err_set(e, ERR_FATAL_MODEL, "tensor %s has type %s, which is not supported", name,
                   safetensors_type_name(t));
}

static int dtype_of_embedding(struct model_spec *spec, const char *folder, struct err_text *e) {
    struct safetensors *st;
    int rc = safetensors_open(&st, folder, e);
    if (rc != 0) return rc;
    rc = spec_take_dtype(spec, st, e);
    safetensors_close(st);
    return rc;
}

// The first of the family's other forms whose name of the first expert the checkpoint has. A folder
// without any is told of by whoever needs it.
static void find_form(struct model_spec *spec, const char *folder) {
    const struct tensor_ref ref = {.kind = TENSOR_EXPERT_GATE};
    const struct family *form = family_find(spec->architecture)->other_form;
    char name[TENSOR_NAME_MAX];
    struct safetensors *st;
    struct err_text ignored;
    if (form == NULL || spec->router.n_experts == 0) return;
    if (safetensors_open(&st, folder, &ignored) != 0) return;
    for (uint32_t i = 1; form != NULL && spec->form == 0; form = form->other_form, i++) {
        check(form->tensor_name(spec, &ref, name, sizeof name));
        if (safetensors_find(st, name) != NULL) spec->form = i;
    }
    safetensors_close(st);
}

#define COMPARE_BYTES ((size_t)1 << 20)

// Whether two tensors hold the same; what cannot be read is told of by whoever loads it.
static bool are_equal(const struct safetensors *st, const struct safetensors_tensor *a,
                      const struct safetensors_tensor *b) {
    struct err_text ignored;
    if (a->type != b->type || a->bytes != b->bytes) return false;
    uint8_t *both = mem_alloc(2 * COMPARE_BYTES);
    bool equal = both != NULL;
    for (uint64_t at = 0; equal && at < a->bytes; at += COMPARE_BYTES) {
        uint64_t left = a->bytes - at;
        struct safetensors_range range = {at, left < COMPARE_BYTES ? (size_t)left : COMPARE_BYTES};
        equal = safetensors_read(st, a, range, both, &ignored) != 0 ||
                safetensors_read(st, b, range, both + COMPARE_BYTES, &ignored) != 0 ||
                memcmp(both, both + COMPARE_BYTES, range.bytes) == 0;
    }
    mem_free(both);
    return equal;
}

// A checkpoint with a head that differs from its embedding means it, whatever config.json says of
// tying them (so does transformers).
static void find_head(struct model_spec *spec, const char *folder) {
    const struct family *family = spec_family(spec);
    const struct tensor_ref embed = {.kind = TENSOR_EMBED}, head = {.kind = TENSOR_HEAD};
    char embed_name[TENSOR_NAME_MAX], head_name[TENSOR_NAME_MAX];
    struct safetensors *st;
    struct err_text ignored;
    if (!spec->tied_embeddings || safetensors_open(&st, folder, &ignored) != 0) return;
    check(family->tensor_name(spec, &embed, embed_name, sizeof embed_name));
    check(family->tensor_name(spec, &head, head_name, sizeof head_name));
    const struct safetensors_tensor *of_embed = safetensors_find(st, embed_name);
    const struct safetensors_tensor *of_head = safetensors_find(st, head_name);
    if (of_embed != NULL && of_head != NULL)
        spec->tied_embeddings = are_equal(st, of_embed, of_head);
    safetensors_close(st);
}

int spec_load_configs(struct model_spec *out, const char *folder, struct err_text *e) {
    struct file_bytes config = {0}, generation = {0};
    struct model_spec spec;
    int rc = file_read_whole(&config, folder, "config.json", CONFIG_BYTES_MAX, e);
    if (rc == 0 && file_exists(folder, "generation_config.json"))
        rc = file_read_whole(&generation, folder, "generation_config.json", CONFIG_BYTES_MAX, e);
    const struct spec_source source = {config.data, generation.data, config.bytes,
                                       generation.bytes};
    if (rc == 0) rc = parse(&spec, &source, e);
    if (rc == 0) find_form(&spec, folder);
    if (rc == 0) find_head(&spec, folder);
    if (rc == 0) *out = spec;
    mem_free(config.data);
    mem_free(generation.data);
    return rc;
}

int spec_load(struct model_spec *out, const char *folder, struct err_text *e) {
    struct model_spec spec;
    int rc = spec_load_configs(&spec, folder, e);
    if (rc == 0 && spec.dtype == DTYPE_COUNT) rc = dtype_of_embedding(&spec, folder, e);
    if (rc == 0) *out = spec;
    return rc;
}

uint32_t spec_segments(uint32_t units) {
    uint32_t s = SEGMENTS_MAX;
    while (s > 1 && units % s != 0)
        s /= 2;
    return units == 0 ? 1 : s;
}

uint32_t spec_attn_segments(const struct model_spec *spec) {
    return spec_segments(spec->joint.q_rank != 0 ? spec->joint.o_groups : spec->n_heads);
}

uint32_t spec_inner_segments(uint32_t inner) {
    return inner % 16 == 0 ? spec_segments(inner / 16) : 1;
}

static const char *const mla_forms[] = {[MLA_ABSORBED] = "absorbed", [MLA_EXPANDED] = "expanded"};

bool mla_form_parse(const char *name, enum mla_form *out) {
    for (int i = MLA_ABSORBED; i <= MLA_EXPANDED; i++) {
        if (strcmp(name, mla_forms[i]) != 0) continue;
        *out = (enum mla_form)i;
        return true;
    }
    return false;
}

const char *mla_form_name(enum mla_form form) {
    return mla_forms[form];
}

int spec_take_mla_form(struct model_spec *spec, enum mla_form form, struct err_text *e) {
    if (spec->indexer.top_k != 0 && form == MLA_EXPANDED)
        return err_set(e, ERR_FATAL_CONFIG,
                       "mla-form expanded: the sparse attention of %s chooses among latents, and "
                       "runs absorbed only",
                       spec->architecture);
    spec->mla.expanded = spec->mla.kv_rank != 0 && form == MLA_EXPANDED;
    return 0;
}

// Of one token's keys and values.
static uint64_t token_bytes(const struct model_spec *spec, enum dtype kv_dtype) {
    uint32_t key_dim = spec_key_dim(spec);
    if (spec_has_rows(spec)) return latent_row_bytes(kv_dtype, key_dim);
    return kv_row_bytes(kv_dtype, key_dim) + kv_row_bytes(kv_dtype, spec_value_dim(spec));
}

uint64_t spec_index_row_bytes(const struct model_spec *spec, uint32_t layer, enum dtype kv_dtype) {
    return spec_layer_chooses(spec, layer) ? kv_row_bytes(kv_dtype, spec->indexer.dim) : 0;
}

// Of what a page has beside its tokens: entries, and those of them that an index scores.
static uint64_t entries_bytes(const struct model_spec *spec, uint32_t layer, enum dtype kv_dtype) {
    if (!spec_layer_compressed(spec, layer)) return 0;
    uint64_t bytes = latent_row_bytes(kv_dtype, spec->head_dim);
    if (spec->layer_flags[layer] & LAYER_CSA)
        bytes += latent_row_bytes(kv_dtype, spec->compress.dim);
    return bytes * latent_page_rows(spec_compress_rate(spec, layer));
}

uint64_t spec_page_bytes(const struct model_spec *spec, uint32_t layer, enum dtype kv_dtype) {
    if (spec_layer_recurrent(spec, layer)) return 0;
    uint64_t token = token_bytes(spec, kv_dtype) + spec_index_row_bytes(spec, layer, kv_dtype);
    return KV_BLOCK_TOKENS * token + entries_bytes(spec, layer, kv_dtype);
}

uint64_t spec_kv_token_bytes(const struct model_spec *spec, enum dtype kv_dtype) {
    uint64_t n = 0;
    for (uint32_t layer = 0; layer < spec->n_layers; layer++)
        n += spec_page_bytes(spec, layer, kv_dtype) * spec_kv_heads(spec);
    return (n + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}

struct delta_rows spec_delta_rows(const struct model_spec *spec) {
    uint32_t channels = spec_delta_channels(spec), values = spec_delta_values(spec);
    uint32_t n = spec->delta.n_v_heads;
    if (spec->delta.by_head) return (struct delta_rows){.qkv = channels + values, .b = 2 * n};
    return (struct delta_rows){channels, values, n, n};
}

uint32_t spec_recurrent_layers(const struct model_spec *spec) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < spec->n_layers; i++)
        n += spec_layer_recurrent(spec, i) ? 1 : 0;
    return n;
}

// Of the tokens that are kept: what they give and its gates, also for the index.
static uint64_t compress_state_bytes(const struct model_spec *spec, uint32_t layer) {
    bool csa = (spec->layer_flags[layer] & LAYER_CSA) != 0;
    uint64_t channels = spec->head_dim + (csa ? spec->compress.dim : 0);
    return spec_compress_kept(spec, layer) * 2 * spec_compress_series(spec, layer) * channels *
           sizeof(float);
}

uint64_t spec_layer_state_bytes(const struct model_spec *spec, uint32_t layer, uint32_t tp) {
    const struct delta_spec *d = &spec->delta;
    if (spec_layer_compressed(spec, layer)) return compress_state_bytes(spec, layer);
    if (!spec_layer_recurrent(spec, layer)) return 0;
    uint64_t inputs = (d->kernel - 1) * (uint64_t)spec_delta_channels(spec);
    uint64_t state = (uint64_t)spec_delta_values(spec) * d->k_dim;
    return (inputs + state) / tp * sizeof(float); // whole heads on each rank
}

uint32_t spec_state_layers(const struct model_spec *spec) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < spec->n_layers; i++)
        n += spec_layer_state_bytes(spec, i, 1) != 0 ? 1 : 0;
    return n;
}

uint64_t spec_state_bytes(const struct model_spec *spec) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < spec->n_layers; i++)
        n += spec_layer_state_bytes(spec, i, 1);
    return n;
}
