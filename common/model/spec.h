// spec.h: one plain struct that describes any supported decoder. A family fills it; one forward
// pass reads it.
//
// Every number was checked against limits.h and against the others before a spec leaves
// spec_load(), so readers need no checks of their own.
#ifndef MOESAIC_COMMON_MODEL_SPEC_H
#define MOESAIC_COMMON_MODEL_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/dtype.h"
#include "common/base/err.h"
#include "common/base/limits.h"

enum ffn_kind { FFN_DENSE, FFN_MOE };

// --- the router: how a token's experts are chosen and weighted (docs/arithmetic.md, Experts)

enum router_score { ROUTER_SOFTMAX, ROUTER_SIGMOID, ROUTER_RAW };
enum router_groups { GROUPS_NONE, GROUPS_MAX, GROUPS_TOP2 };
enum router_weights {
    WEIGHTS_SCORE,   // of the chosen
    WEIGHTS_SOFTMAX, // over the chosen scores
    WEIGHTS_SIGMOID, // of the chosen scores
    WEIGHTS_MIXER,   // sparse mixer: each choice against the scores near it; jitter says how near
};
enum router_renorm {
    RENORM_NONE,
    RENORM_L1,    // weights are divided by their sum + renorm_least
    RENORM_FLOOR, // by the larger of their sum and renorm_least
};

// Logits become scores; scores (with a bias that only selects) choose groups, then experts; the
// chosen scores become weights. Ties go to the lowest id.
struct router_spec {
    uint32_t n_experts, top_k;
    enum router_score score;
    bool bias;           // on the logits
    bool selection_bias; // on the scores, for the choice alone
    enum router_groups groups;
    uint32_t n_groups, groups_kept; // experts of the other groups are never chosen
    enum router_weights weights;
    enum router_renorm renorm;
    float renorm_least;
    float scale;   // applied to the weights last
    float jitter;  // of the sparse mixer
    bool on_input; // the weight multiplies what the expert reads, not what it returns; top_k is 1
};

// --- feed-forward networks

// An expert that every token visits, beside the chosen ones.
struct shared_spec {
    uint32_t inner; // 0 = none
    bool gated;     // weighted by the sigmoid of a product with the row
};

// --- norms and attention

enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEAD, // over each head
    QK_NORM_WIDE, // over all query heads, and all key heads
};

// Numbers that some families multiply by; 0 = not.
struct scale_spec {
    float embedding; // rows of the embedding
    float residual;  // what a block adds to the residual stream
    float logits;
};

struct model_spec {
    char family[32];       // "qwen3_moe"
    char architecture[64]; // "Qwen3MoeForCausalLM"
    uint32_t n_layers, hidden, vocab;
    uint32_t n_heads, n_kv_heads, head_dim;
    uint32_t max_position;   // the model's context length
    uint32_t sliding_window; // 0 = none; a query at p sees keys in (p - window, p]
    uint32_t rotary_dim;
    float rope_theta, norm_eps, attn_scale;
    enum qk_norm qk_norm; // RMSNorm on queries and keys
    float clip_qkv;       // queries, keys and values are clamped to +- this; 0 = not
    bool attn_bias;       // biases on q, k, v (and o when attn_out_bias)
    bool attn_out_bias;
    bool tied_embeddings; // the head is the embedding table
    uint32_t inner_dense; // FFN width of dense layers
    uint32_t inner_expert;
    struct router_spec router;
    struct shared_spec shared; // in every MoE layer
    struct scale_spec scale;
    enum dtype dtype; // of the checkpoint ("torch_dtype" / "dtype"; else of its embedding tensor)
    uint8_t ffn[LAYERS_MAX]; // enum ffn_kind of each layer
    uint32_t bos_id;         // UINT32_MAX = none
    uint32_t n_stop_ids;     // eos ids of generation_config.json, else config.json
    uint32_t stop_ids[STOP_IDS_MAX];
};

// What a tensor is for; a family names each in its checkpoint's words.
enum tensor_kind {
    TENSOR_EMBED,
    TENSOR_FINAL_NORM,
    TENSOR_HEAD,
    TENSOR_ATTN_NORM,
    TENSOR_FFN_NORM,
    TENSOR_Q,
    TENSOR_K,
    TENSOR_V,
    TENSOR_O,
    TENSOR_Q_BIAS,
    TENSOR_K_BIAS,
    TENSOR_V_BIAS,
    TENSOR_O_BIAS,
    TENSOR_Q_NORM,
    TENSOR_K_NORM,
    TENSOR_ROUTER,
    TENSOR_ROUTER_BIAS,
    TENSOR_SELECTION_BIAS,
    TENSOR_GATE,
    TENSOR_UP,
    TENSOR_DOWN, // of a dense layer
    TENSOR_SHARED_GATE,
    TENSOR_SHARED_UP,
    TENSOR_SHARED_DOWN,   // of the shared expert
    TENSOR_SHARED_WEIGHT, // [1, hidden] the gate of the whole shared expert
    TENSOR_EXPERT_GATE,
    TENSOR_EXPERT_UP,
    TENSOR_EXPERT_DOWN, // of one expert
    TENSOR_KIND_COUNT
};

// Which tensor: layer and expert are read only where the kind has them.
struct tensor_ref {
    enum tensor_kind kind;
    uint32_t layer, expert;
};

// Where in its checkpoint's tensor a matrix [rows, columns] stands, in elements: element (r, c) is
// at offset + r * row_stride + c * column_stride. A vector has one column.
struct tensor_place {
    uint64_t dims[3]; // the whole tensor's shape
    uint32_t n_dims;
    uint64_t offset, row_stride, column_stride;
};

struct json_t;

// How config.json names a model.
struct model_name {
    const char *architecture, *type; // "Qwen3MoeForCausalLM", "qwen3_moe"
};

// One file under families/ defines one of these.
struct family {
    const struct model_name *names; // ends with an empty one
    // Fills spec from config.json's object. Ranges are checked afterwards by spec_check();
    // unsupported settings are refused here by key name.
    int (*read)(struct model_spec *spec, const struct json_t *config, struct err_text *e);
    // The tensor's name in the checkpoint, or false when this family has none of the kind.
    bool (*tensor_name)(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                        uint32_t buf_bytes);
    // Changes where a matrix [rows, columns] stands; place comes as a tensor of just this matrix.
    // NULL when all tensors are such.
    void (*tensor_place)(const struct model_spec *spec, const struct tensor_ref *ref,
                         struct tensor_place *place);
};

extern const struct family *const family_table[];           // ends with NULL
const struct family *family_find(const char *architecture); // NULL when unknown
// The model types of all families, comma-separated, for messages.
const char *family_names(void);

// The bytes of config.json and, if generation is not NULL, of generation_config.json.
struct spec_source {
    const char *config, *generation;
    size_t config_bytes, generation_bytes;
};
int spec_parse(struct model_spec *out, const struct spec_source *source, struct err_text *e);
// Reads both files of a Hugging Face folder.
int spec_load(struct model_spec *out, const char *folder, struct err_text *e);
// Refuses sizes that do not fit each other, by name.
int spec_check(const struct model_spec *spec, struct err_text *e);

// S of a row-parallel product (docs/arithmetic.md): the largest power of two <= 8 that divides
// units.
uint32_t spec_segments(uint32_t units);
uint32_t spec_attn_segments(const struct model_spec *spec); // units = heads
uint32_t spec_inner_segments(uint32_t inner); // units = inner / 16, 1 when 16 does not divide it

// Bytes of one token's KV over all layers.
uint64_t spec_kv_token_bytes(const struct model_spec *spec, enum dtype kv_dtype);

#endif
