// decoder_rope.c: the rotary settings of Hugging Face decoders: rope_theta, rope_scaling,
// rope_parameters, partial_rotary_factor.
//
// A key is known for the kinds that read it; everything else is refused by name, because a rotary
// embedding that is nearly right answers nearly right.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/model/decoder.h"
#include "kernels/ops.h"

// What every kind may carry, and what one kind reads beyond.
static const char *const common_keys[] = {"rope_type", "type", "rope_theta",
                                          "partial_rotary_factor", NULL};
static const struct rope_names {
    const char *name;
    enum rope_kind kind;
    const char *keys[8];
} kinds[] = {
    {"default", ROPE_PLAIN, {NULL}},
    {"linear", ROPE_LINEAR, {"factor", NULL}},
    // It changes frequencies only beyond max_position_embeddings, where nothing is served.
    {"dynamic", ROPE_PLAIN, {"factor", "original_max_position_embeddings", NULL}},
    {"llama3",
     ROPE_LLAMA3,
     {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings", NULL}},
    {"yarn",
     ROPE_YARN,
     {"factor", "beta_fast", "beta_slow", "original_max_position_embeddings", "attention_factor",
      "mscale", "mscale_all_dim", "truncate"}},
    {"longrope",
     ROPE_LONG,
     {"factor", "short_factor", "long_factor", "original_max_position_embeddings",
      "attention_factor", "short_mscale", "long_mscale", NULL}},
};
#define N_KINDS (sizeof kinds / sizeof *kinds)

static bool is_known(const char *const *keys, size_t n_max, const char *key) {
    for (size_t i = 0; i < n_max && keys[i] != NULL; i++)
        if (strcmp(keys[i], key) == 0) return true;
    return false;
}

static const struct rope_names *find_kind(struct config_reader *r, const char *in) {
    const char *name = config_text_or(r, "rope_type", config_text_or(r, "type", "default"));
    for (size_t i = 0; i < N_KINDS; i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    config_refuse(r, "%s.rope_type \"%.64s\" is not supported", in, name);
    return &kinds[0];
}

// Where a position has three coordinates, whose turn each pair is; text has the same one three
// times.
static const char *const image_keys[] = {"mrope_section", "mrope_interleaved", NULL};

// kind's, the common ones, and also those of more, which may be NULL.
static void refuse_unknown_keys(struct config_reader *r, const struct rope_names *kind,
                                const char *in, const char *const *more) {
    json_t *o = (json_t *)r->object; // jansson's iterators want it so; nothing is changed
    for (void *i = json_object_iter(o); i != NULL; i = json_object_iter_next(o, i)) {
        const char *key = json_object_iter_key(i);
        if (json_is_null(json_object_iter_value(i))) continue;
        if (is_known(common_keys, SIZE_MAX, key) || is_known(kind->keys, 8, key)) continue;
        if (more != NULL && is_known(more, SIZE_MAX, key)) continue;
        config_refuse(r, "%s.%.64s is not supported", in, key);
    }
}

static float positive(struct config_reader *r, const char *key, float fallback) {
    if (config_value(r, key) == NULL && fallback == 0) config_refuse(r, "%s is missing", key);
    float x = config_real_or(r, key, fallback);
    if (!(x > 0)) config_refuse(r, "%s is %g, not above 0", key, (double)x);
    return x > 0 ? x : 1;
}

static void read_factors(struct config_reader *r, const char *key, float *out, uint32_t n) {
    const json_t *list = config_value(r, key);
    if (n > HEAD_DIM_MAX / 2 || json_array_size(list) != n) {
        config_refuse(r, "%s must be a list of %u numbers, one for each rotated pair", key, n);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        out[i] = json_is_number(v) ? (float)json_number_value(v) : 0;
        if (!(out[i] > 0) || !isfinite(out[i]))
            config_refuse(r, "%s has an entry that is no number above 0", key);
    }
}

static float log_mscale(float factor, float m) {
    return factor <= 1 ? 1.0f : 0.1f * m * elementary_log(factor) + 1.0f;
}

static void read_yarn(struct config_reader *r, struct rope_spec *rope) {
    // Zero is as good as absent in the reference.
    float fast = config_real_or(r, "beta_fast", 0), slow = config_real_or(r, "beta_slow", 0);
    rope->high = fast == 0 ? 32.0f : fast;
    rope->low = slow == 0 ? 1.0f : slow;
    if (!(rope->low > 0) || !(rope->high > 0))
        config_refuse(r, "beta_fast and beta_slow must not be below 0");
    rope->truncate = config_flag_or(r, "truncate", true);
    float m = config_real_or(r, "mscale", 0), all = config_real_or(r, "mscale_all_dim", 0);
    float by_factor = m != 0 && all != 0
                          ? log_mscale(rope->factor, m) / log_mscale(rope->factor, all)
                          : log_mscale(rope->factor, 1);
    rope->attention = positive(r, "attention_factor", by_factor > 0 ? by_factor : 1);
}

static void read_llama3(struct config_reader *r, struct rope_spec *rope) {
    rope->low = positive(r, "low_freq_factor", 0);
    rope->high = positive(r, "high_freq_factor", 0);
    if (!(rope->high >= rope->low))
        config_refuse(r, "high_freq_factor must be at least low_freq_factor");
}

static void read_long(struct config_reader *r, struct rope_spec *rope) {
    read_factors(r, "short_factor", rope->short_factors, rope->dim / 2);
    read_factors(r, "long_factor", rope->long_factors, rope->dim / 2);
    float by_factor = 1;
    if (rope->factor > 1 && rope->original_position > 1)
        by_factor = sqrtf(1.0f + elementary_log(rope->factor) /
                                     elementary_log((float)rope->original_position));
    float both = positive(r, "attention_factor", by_factor);
    rope->attention = positive(r, "short_mscale", both);
    rope->long_attention = positive(r, "long_mscale", both);
}

// The context before it was stretched; outside of the object it counts first.
static uint32_t original_position(struct config_reader *whole, struct config_reader *r,
                                  const struct model_spec *spec) {
    const char *key = "original_max_position_embeddings";
    uint32_t n = config_size_or(r, key, POSITIONS_MAX, spec->max_position);
    return config_size_or(whole, key, POSITIONS_MAX, n);
}

static void read_kind(struct config_reader *whole, struct config_reader *r, struct model_spec *spec,
                      const struct rope_names *kind) {
    struct rope_spec *rope = &spec->rope;
    rope->kind = kind->kind;
    if (rope->kind == ROPE_PLAIN || r->rc != 0) return;
    rope->original_position = original_position(whole, r, spec);
    // YaRN and longrope may leave it to the two lengths.
    float by_length = rope->kind == ROPE_YARN || rope->kind == ROPE_LONG
                          ? (float)spec->max_position / (float)rope->original_position
                          : 0;
    rope->factor = positive(r, "factor", by_length);
    if (rope->kind == ROPE_YARN) read_yarn(r, rope);
    if (rope->kind == ROPE_LLAMA3) read_llama3(r, rope);
    if (rope->kind == ROPE_LONG) read_long(r, rope);
}

// The rotated part of a head, from the place that has the key.
static void read_part(struct config_reader *r, struct model_spec *spec,
                      const struct decoder_defaults *d) {
    const char *key = "partial_rotary_factor";
    if (config_value(r, key) == NULL) return;
    double part = config_double_or(r, key, 1);
    if (d->partial_rotary == 0 && part != 1)
        config_refuse(r, "%s other than 1 is not supported", key);
    else if (!(part > 0 && part <= 1))
        config_refuse(r, "%s is %g, not within 0 and 1", key, part);
    else
        spec->rope.dim = (uint32_t)(spec->head_dim * part);
}

void decoder_read_rope_object(struct config_reader *r, const char *key, struct model_spec *spec,
                              const struct decoder_defaults *d) {
    const json_t *o = config_value(r, key);
    if (o == NULL) return;
    if (!json_is_object(o)) {
        config_refuse(r, "%s must be an object", key);
        return;
    }
    char file[64]; // so that messages say where the key stands
    snprintf(file, sizeof file, "%s: %s", r->file, key);
    struct config_reader inner = {.object = o, .file = r->file, .e = r->e, .rc = r->rc};
    const struct rope_names *kind = find_kind(&inner, key);
    refuse_unknown_keys(&inner, kind, key, d->mrope ? image_keys : NULL);
    float theta = config_real_or(&inner, "rope_theta", spec->rope.theta);
    if (theta != spec->rope.theta && config_value(r, "rope_theta") != NULL)
        config_refuse(&inner, "rope_theta and %s.rope_theta differ", key);
    spec->rope.theta = theta;
    inner.file = file;
    read_part(&inner, spec, d);
    read_kind(r, &inner, spec, kind);
    if (r->rc == 0) r->rc = inner.rc;
}

const char *decoder_rope_key(const struct config_reader *r) {
    const json_t *old = config_value(r, "rope_scaling");
    bool empty = old == NULL || (json_is_object(old) && json_object_size(old) == 0);
    return empty ? "rope_parameters" : "rope_scaling";
}

void decoder_read_rope(struct config_reader *r, struct model_spec *spec,
                       const struct decoder_defaults *d) {
    spec->rope.theta = config_real_or(r, "rope_theta", d->rope_theta);
    float part = d->partial_rotary == 0 ? 1.0f : d->partial_rotary;
    spec->rope.dim = (uint32_t)((float)spec->head_dim * part);
    read_part(r, spec, d);
    decoder_read_rope_object(r, decoder_rope_key(r), spec, d);
}

float decoder_yarn_scale(const struct config_reader *r, const struct rope_spec *rope) {
    if (r->rc != 0 || rope->kind != ROPE_YARN) return 1.0f;
    const json_t *o = config_value(r, decoder_rope_key(r));
    float all = (float)json_number_value(json_object_get(o, "mscale_all_dim"));
    float m = all == 0 ? 1.0f : log_mscale(rope->factor, all);
    return m * m;
}
