// verify.c: see verify.h. Each part of the folder is looked at whatever the others are like, as far
// as it can be.
#include "ctl/verify.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/plural.h"
#include "common/model/checkpoint.h"
#include "common/model/generation.h"
#include "common/model/tensors.h"
#include "common/text/chat.h"
#include "common/text/tokenizer.h"
#include "ctl/cell.h"
#include "ctl/ctl.h"
#include "ctl/json_text.h"

// Problems of one part that are shown; a folder of another model may have a hundred thousand.
#define SHOWN_MAX 20
#define LABEL_COLUMNS 24

struct part {
    const char *name, *note; // what stands behind it when it is fine
    uint32_t n_problems;
    bool skipped, absent;
};

enum part_kind {
    PART_CONFIG,
    PART_GENERATION,
    PART_CHECKPOINT,
    PART_TOKENIZER,
    PART_TEMPLATE,
    PARTS
};

struct verify {
    const struct verify_order *order;
    struct buf problems; // lines
    json_t *list;        // the same for programs; NULL: text is wanted
    struct part parts[PARTS];
    enum part_kind now;
    struct model_spec spec; // where config.json is fine
    struct tokenizer *tokenizer;
    size_t n_tensors, n_files, n_left_out;
    uint64_t file_bytes;
    char note[ERR_TEXT_MAX]; // of the template
};

static bool is_fine(const struct verify *v, enum part_kind kind) {
    return v->parts[kind].n_problems == 0 && !v->parts[kind].skipped;
}

// As a person would see it: no text of a file is no UTF-8 then, or drives a terminal.
static json_t *shown(const char *text) {
    struct buf out = {0};
    cell_text(&out, text, 0);
    json_t *s = out.failed ? NULL : json_stringn(out.bytes > 0 ? (char *)out.data : "", out.bytes);
    buf_finish(&out);
    return s != NULL ? s : json_null();
}

static void hear(void *context, const char *text) {
    struct verify *v = context;
    struct part *part = &v->parts[v->now];
    if (part->n_problems++ >= SHOWN_MAX) return;
    buf_text(&v->problems, "  ");
    cell_text(&v->problems, text, 0);
    buf_text(&v->problems, "\n");
    if (v->list == NULL) return;
    json_t *problem = json_pack("{s:s, s:o}", "part", part->name, "text", shown(text));
    if (json_array_append_new(v->list, problem) != 0) v->problems.failed = true;
}

static void begin(struct verify *v, enum part_kind kind, const char *name) {
    v->now = kind;
    v->parts[kind].name = name;
}

static void absent(struct verify *v, const char *note) {
    v->parts[v->now].absent = true;
    v->parts[v->now].note = note;
}

static void end(struct verify *v) {
    const struct part *part = &v->parts[v->now];
    if (part->n_problems > SHOWN_MAX)
        buf_format(&v->problems, "  ... and %u more like these\n", part->n_problems - SHOWN_MAX);
}

// --- the parts

static void check_config(struct verify *v) {
    struct err_text e;
    begin(v, PART_CONFIG, "config.json");
    if (spec_load_configs(&v->spec, v->order->folder, &e) != 0) hear(v, e.text);
    end(v);
}

static void check_generation(struct verify *v) {
    struct generation_defaults defaults;
    struct err_text e;
    begin(v, PART_GENERATION, "generation_config.json");
    if (!file_exists(v->order->folder, "generation_config.json"))
        absent(v, "sampling is neutral");
    else if (generation_load(&defaults, v->order->folder, &e) != 0)
        hear(v, e.text);
    end(v);
}

static void check_tensors(struct verify *v, const struct safetensors *st) {
    const struct problems problems = {hear, v};
    struct err_text e;
    // An embedding that does not say the type is missing or has none, which is said below.
    if (spec_take_dtype(&v->spec, st, &e) != 0) v->spec.dtype = DTYPE_COUNT;
    int rc = checkpoint_check(&v->spec, st, &problems, &e);
    if (rc == 0 && v->order->values) rc = checkpoint_check_values(&v->spec, st, &problems, &e);
    if (rc != 0) hear(v, e.text);
    for (size_t i = 0; i < v->n_tensors; i++)
        v->n_left_out += tensor_is_left_out(&v->spec, safetensors_at(st, i)->name);
    v->parts[PART_CHECKPOINT].note =
        v->order->values ? "all values are finite" : "weights not read (--values reads them)";
}

static void check_checkpoint(struct verify *v) {
    const struct problems problems = {hear, v};
    struct safetensors *st = NULL;
    struct err_text e;
    begin(v, PART_CHECKPOINT, "checkpoint");
    if (safetensors_open_saying(&st, v->order->folder, &problems, &e) != 0) {
        end(v);
        return;
    }
    v->n_tensors = safetensors_count(st);
    for (size_t i = 0; i < v->n_tensors; i++) {
        const struct safetensors_tensor *t = safetensors_at(st, i);
        v->file_bytes += t->bytes;
        if (t->shard >= v->n_files) v->n_files = t->shard + 1;
    }
    if (is_fine(v, PART_CONFIG)) {
        check_tensors(v, st);
    } else {
        v->parts[PART_CHECKPOINT].skipped = true;
        v->parts[PART_CHECKPOINT].note = "headers are sound; the rest waits for config.json";
    }
    safetensors_close(st);
    end(v);
}

static void check_tokenizer(struct verify *v) {
    struct err_text e;
    begin(v, PART_TOKENIZER, "tokenizer");
    if (tokenizer_load(&v->tokenizer, v->order->folder, &e) != 0) {
        hear(v, e.text);
    } else if (is_fine(v, PART_CONFIG) && tokenizer_vocab(v->tokenizer) > v->spec.vocab) {
        err_set(&e, ERR_FATAL_MODEL,
                "the tokenizer has ids up to %u, config.json's vocab_size is %u",
                tokenizer_vocab(v->tokenizer) - 1, v->spec.vocab);
        hear(v, e.text);
    }
    end(v);
}

// One message of a user: what a template cannot do shows only when it runs. A template may refuse
// messages in its own words: such a folder is served all the same, and who asks with a system
// message first may be answered.
static void render_one(struct verify *v, const struct chat_template *t) {
    struct err_text e;
    struct chat_output out = {0};
    json_t *variables =
        json_pack("{s:[{s:s, s:s}], s:b, s:s, s:s}", "messages", "role", "user", "content", "Hello",
                  "add_generation_prompt", 1, "bos_token", "", "eos_token", "");
    if (variables == NULL) return;
    int rc = chat_template_render(t, variables, v->order->wall_ns, &out, &e);
    if (rc == 0) chat_output_finish(&out);
    json_decref(variables);
    if (rc == 0) return;
    struct err_text told;
    if (rc == ERR_REQ_REFUSED) {
        snprintf(v->note, sizeof v->note, "it refuses one message of a user: %.300s", e.text);
        v->parts[v->now].note = v->note;
        return;
    }
    err_set(&told, rc, "the chat template does not take one message of a user: %.300s", e.text);
    hear(v, told.text);
}

static void check_template(struct verify *v) {
    struct err_text e;
    struct chat_template *t = NULL;
    begin(v, PART_TEMPLATE, "chat template");
    if (chat_template_load(&t, v->order->folder, &e) != 0)
        hear(v, e.text);
    else if (t == NULL)
        absent(v, "chats are refused");
    else
        render_one(v, t);
    chat_template_destroy(t);
    end(v);
}

// --- the report

static void label(struct buf *out, const char *text) {
    buf_text(out, "  ");
    cell_text(out, text, LABEL_COLUMNS);
}

// Three digits and a unit, for parameters and bytes.
static void amount(struct buf *out, double n, const char *unit) {
    static const char *const prefixes[] = {"", "k", "M", "G", "T"};
    int p = 0;
    for (; n >= 999.5 && p < 4; p++)
        n /= 1000;
    buf_format(out, "%.*f %s%s", p == 0 || n >= 100 ? 0 : n >= 10 ? 1 : 2, n, prefixes[p], unit);
}

static uint32_t count_layers(const struct model_spec *s, enum ffn_kind kind) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_layers; i++)
        n += s->ffn[i] == kind;
    return n;
}

static void write_attention(struct buf *out, const struct model_spec *s) {
    label(out, "attention");
    if (s->mla.kv_rank != 0)
        buf_format(out, "%u head%s, latents of %u + %u", s->n_heads, plural(s->n_heads),
                   s->mla.kv_rank, s->rope.dim);
    else
        buf_format(out, "%u head%s, %u of keys and values, %u wide", s->n_heads, plural(s->n_heads),
                   s->n_kv_heads, s->head_dim);
    if (s->sliding_window != 0) buf_format(out, ", window %u", s->sliding_window);
    if (s->attn_chunk != 0) buf_format(out, ", chunks of %u", s->attn_chunk);
    buf_text(out, "\n");
}

static uint32_t count_flag(const struct model_spec *s, uint32_t flag) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_layers; i++)
        n += (s->layer_flags[i] & flag) != 0;
    return n;
}

// Layers that attend to entries beside a window of tokens.
static void write_compressed(struct buf *out, const struct model_spec *s) {
    const struct compress_spec *c = &s->compress;
    uint32_t n_chosen = count_flag(s, LAYER_CSA), n_all = count_flag(s, LAYER_HCA);
    if (n_chosen + n_all == 0) return;
    label(out, "compressed layers");
    buf_format(out, "%u of %u: ", n_chosen + n_all, s->n_layers);
    if (n_chosen > 0)
        buf_format(out, "%u with the best %u entries of %u tokens, by %u head%s, %u wide%s",
                   n_chosen, c->top_k, c->csa_rate, c->n_heads, plural(c->n_heads), c->dim,
                   n_all > 0 ? "; " : "");
    if (n_all > 0) buf_format(out, "%u with all entries of %u tokens", n_all, c->hca_rate);
    buf_text(out, "\n");
}

// What a sequence has beside its pages.
static void write_state(struct buf *out, const struct model_spec *s) {
    uint64_t bytes = spec_state_bytes(s);
    if (bytes == 0) return;
    label(out, "state of a sequence");
    amount(out, (double)bytes, "B");
    buf_text(out, "\n");
}

// What stands in the place of attention in recurrent layers.
static void write_recurrent(struct buf *out, const struct model_spec *s) {
    const struct delta_spec *d = &s->delta;
    uint32_t n = spec_recurrent_layers(s);
    if (n == 0) return;
    label(out, "recurrent layers");
    buf_format(out, "%u of %u: %u heads of keys, %u of values, %u and %u wide, kernel %u\n", n,
               s->n_layers, d->n_k_heads, d->n_v_heads, d->k_dim, d->v_dim, d->kernel);
}

static void write_index(struct buf *out, const struct model_spec *s) {
    const struct indexer_spec *x = &s->indexer;
    if (x->top_k == 0) return;
    label(out, "sparse index");
    buf_format(out, "%u head%s, %u wide; the best %u keys of a query\n", x->n_heads,
               plural(x->n_heads), x->dim, x->top_k);
}

static void write_experts(struct buf *out, const struct model_spec *s) {
    uint32_t n = count_layers(s, FFN_MOE);
    label(out, "experts");
    if (n == 0) {
        buf_text(out, "none: a dense model\n");
        return;
    }
    buf_format(out, "%u a layer, %u a token, %u wide", s->router.n_experts, s->router.top_k,
               s->inner_expert);
    if (s->shared.inner != 0) buf_format(out, "; shared: %u wide", s->shared.inner);
    if (n < s->n_layers) buf_format(out, "; in %u of %u layers", n, s->n_layers);
    buf_text(out, "\n");
}

static void write_memory(struct buf *out, const struct model_spec *s,
                         const struct checkpoint_sizes *sizes) {
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_E4M3};
    label(out, "KV cache of a token");
    for (int i = 0; i < 2; i++) {
        amount(out, (double)spec_kv_token_bytes(s, types[i]), "B");
        buf_format(out, " %s%s", dtype_name(types[i]), i == 0 ? ", " : "\n");
    }
    label(out, "weights of a worker");
    if (s->dtype == DTYPE_COUNT) {
        buf_text(out, "unknown, as is their type\n");
        return;
    }
    for (uint32_t n = 1; n <= 8; n *= 2) {
        if (n > 1 && n > s->router.n_experts) break;
        buf_format(out, "%s%u: ", n == 1 ? "of " : ", ", n);
        amount(out, (double)checkpoint_rank_bytes(sizes, s, n), "B");
    }
    buf_text(out, "\n");
}

static void write_model(struct buf *out, const struct verify *v) {
    const struct model_spec *s = &v->spec;
    struct checkpoint_sizes sizes;
    checkpoint_sizes(&sizes, s);
    label(out, "family");
    buf_format(out, "%s (%s)\n", s->family, s->architecture);
    label(out, "parameters");
    amount(out, (double)sizes.parameters, "");
    buf_text(out, ", of which a token uses ");
    amount(out, (double)sizes.active, "");
    buf_text(out, "\n");
    label(out, "layers");
    buf_format(out, "%u, %u wide; vocabulary %u, context %u\n", s->n_layers, s->hidden, s->vocab,
               s->max_position);
    write_attention(out, s);
    write_index(out, s);
    write_compressed(out, s);
    write_recurrent(out, s);
    write_state(out, s);
    write_experts(out, s);
    write_memory(out, s, &sizes);
}

static void write_parts(struct buf *out, const struct verify *v) {
    for (int i = 0; i < PARTS; i++) {
        const struct part *part = &v->parts[i];
        label(out, part->name);
        if (part->n_problems != 0)
            buf_format(out, "%u problem%s", part->n_problems, plural(part->n_problems));
        else
            buf_text(out, part->skipped ? "not checked" : part->absent ? "none" : "fine");
        if (i == PART_CHECKPOINT && v->n_tensors != 0) {
            buf_format(out, ": %zu tensor%s in %zu file%s, ", v->n_tensors, plural(v->n_tensors),
                       v->n_files, plural(v->n_files));
            amount(out, (double)v->file_bytes, "B");
            if (v->n_left_out != 0)
                buf_format(out, ", %zu of parts that are not served", v->n_left_out);
        }
        if (i == PART_TOKENIZER && v->tokenizer != NULL)
            buf_format(out, ": %u ids", tokenizer_vocab(v->tokenizer));
        if (part->n_problems == 0 && part->note != NULL) {
            buf_text(out, "; ");
            cell_text(out, part->note, 0);
        }
        buf_text(out, "\n");
    }
}

static const char *state_of(const struct part *part) {
    if (part->n_problems != 0) return "problems";
    return part->skipped ? "not checked" : part->absent ? "none" : "fine";
}

static json_t *parts_json(const struct verify *v) {
    json_t *parts = json_array();
    for (int i = 0; i < PARTS; i++) {
        const struct part *part = &v->parts[i];
        bool told = part->n_problems == 0 && part->note != NULL;
        json_array_append_new(parts,
                              json_pack("{s:s, s:s, s:I, s:o}", "part", part->name, "state",
                                        state_of(part), "n_problems", (json_int_t)part->n_problems,
                                        "note", told ? shown(part->note) : json_null()));
    }
    return parts;
}

static json_t *model_json(const struct verify *v) {
    if (!is_fine(v, PART_CONFIG)) return json_null();
    return json_pack("{s:I, s:I, s:I, s:I}", "layers", (json_int_t)v->spec.n_layers, "experts",
                     (json_int_t)v->spec.router.n_experts, "vocab", (json_int_t)v->spec.vocab,
                     "context", (json_int_t)v->spec.max_position);
}

static void write_json(struct buf *out, const struct verify *v, uint32_t n_problems) {
    json_t *report = json_pack(
        "{s:s, s:o, s:b, s:I, s:O, s:o, s:o, s:{s:I, s:I, s:I}}", "object", "moesaic.verify",
        "folder", json_text(v->order->folder), "served", n_problems == 0, "n_problems",
        (json_int_t)n_problems, "problems", v->list, "parts", parts_json(v), "model", model_json(v),
        "checkpoint", "tensors", (json_int_t)v->n_tensors, "files", (json_int_t)v->n_files, "bytes",
        v->file_bytes < INT64_MAX ? (json_int_t)v->file_bytes : INT64_MAX);
    char *text = report == NULL ? NULL : json_dumps(report, JSON_COMPACT);
    if (text == NULL)
        out->failed = true;
    else
        buf_format(out, "%s\n", text);
    mem_free(text);
    json_decref(report);
}

static void write_text(struct buf *out, const struct verify *v, uint32_t n_problems) {
    cell_text(out, v->order->folder, 0);
    buf_text(out, "\n");
    if (is_fine(v, PART_CONFIG)) write_model(out, v);
    write_parts(out, v);
    if (n_problems == 0)
        buf_text(out, "It can be served.\n");
    else
        buf_format(out, "It would be refused:\n%.*s", (int)v->problems.bytes, v->problems.data);
}

uint32_t verify_folder(struct buf *out, const struct verify_order *order) {
    struct verify v = {.order = order, .list = order->json ? json_array() : NULL};
    check_config(&v);
    check_generation(&v);
    check_checkpoint(&v);
    check_tokenizer(&v);
    check_template(&v);
    uint32_t n_problems = 0;
    for (int i = 0; i < PARTS; i++)
        n_problems += v.parts[i].n_problems;
    if (order->json)
        write_json(out, &v, n_problems);
    else
        write_text(out, &v, n_problems);
    if (v.problems.failed) out->failed = true;
    tokenizer_destroy(v.tokenizer);
    buf_finish(&v.problems);
    json_decref(v.list);
    return n_problems;
}

int verify_command(struct ctl *c, const char *folder) {
    const struct verify_order order = {folder, c->options.values, c->options.json,
                                       env_wall_ns(c->env)};
    struct buf out = {0};
    uint32_t n_problems = verify_folder(&out, &order);
    if (out.failed)
        fprintf(stderr, "moectl: no memory for the report\n");
    else
        fwrite(out.data, 1, out.bytes, stdout);
    bool fine = n_problems == 0 && !out.failed;
    buf_finish(&out);
    return fine ? 0 : 1;
}
