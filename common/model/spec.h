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

enum router_score { ROUTER_SOFTMAX, ROUTER_SIGMOID, ROUTER_SQRT_SOFTPLUS, ROUTER_RAW };
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
    RENORM_L2,    // by the root of the sum of their squares
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
    float scale;     // applied to the weights last
    float jitter;    // of the sparse mixer
    bool on_input;   // the weight multiplies what the expert reads, not what it returns; top_k is 1
    float logit_cap; // soft cap of the logits; 0 = none
};

// --- feed-forward networks

// An expert that every token visits, beside the chosen ones.
struct shared_spec {
    uint32_t inner; // 0 = none
    bool gated;     // weighted by the sigmoid of a product with the row
    float sum;      // what the sum of chosen and shared experts is multiplied by; 0 = not
};

enum activation {
    ACT_SWIGLU,  // silu(gate) * up
    ACT_GEGLU,   // gelu(gate) * up, the form with tanh
    ACT_CLAMPED, // gpt-oss: gate and up are clamped, (up + 1) * gate * sigmoid(alpha * gate)
    ACT_LIMITED, // silu(min(gate, limit)) * (up within [-limit, limit])
};

// --- norms and attention

enum norm_kind { NORM_RMS, NORM_LAYER };

enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEAD,       // over each head
    QK_NORM_WIDE,       // over all query heads, and all key heads
    QK_NORM_AFTER_ROPE, // over each head behind the rotation, without weights
};

enum rope_kind { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_LONG };

// Rotary embedding, and how its frequencies are stretched (common/model/rope.h).
struct rope_spec {
    uint32_t dim; // rotated dimensions of a head
    float theta;
    bool interleaved; // the checkpoint's pairs are neighbours, not halves
    enum rope_kind kind;
    float factor;
    uint32_t original_position; // context length before it was stretched
    float low, high;            // frequency factors (llama3), slow and fast rotations (yarn)
    bool truncate;              // yarn: whole dimensions
    float attention;            // cosines and sines are multiplied by it; 0 = not
    float long_attention;       // the same of a context beyond original_position (longrope)
    float short_factors[HEAD_DIM_MAX / 2], long_factors[HEAD_DIM_MAX / 2];
};

// Latent attention: keys and values of all heads come from one compressed vector a token and
// per-head matrices. kv_rank 0 = none.
struct mla_spec {
    uint32_t q_rank; // 0 = queries are not compressed
    uint32_t kv_rank, nope_dim, value_dim;
    float norm_eps;
    bool expanded; // pages hold each head's keys and values, else the vector: spec_take_mla_form
};

// Gated delta net: recurrent layers, whose memory is one state for each sequence instead of keys
// and values (LAYER_RECURRENT). Each key head serves n_v_heads / n_k_heads value heads. kernel 0 =
// the model has no such layers.
struct delta_spec {
    uint32_t kernel; // tokens that the convolution in front of it sees
    uint32_t n_k_heads, n_v_heads, k_dim, v_dim;
    bool by_head; // the checkpoint stores what one key head needs together
};

// Sparse attention over latents: a small attention of its own scores all keys of a query's range,
// and the query attends to the top_k best (docs/arithmetic.md, Attention). top_k 0 = none.
struct indexer_spec {
    uint32_t n_heads, dim; // the first rope.dim of dim rotate
    uint32_t top_k;
    bool interleaved; // as rope_spec's, but of the index's queries and keys
    float norm_eps;   // of the keys' LayerNorm
};

// Attention whose one head's keys are its values, too: compressed queries whose heads are normed
// without weights, rotation of the trailing part of each head, which is taken back from the
// outputs, and an output projection in two steps, the first one by groups of heads. q_rank 0 =
// none.
struct joint_spec {
    uint32_t q_rank;
    uint32_t o_groups, o_rank; // o_rank for each group
};

// Layers that attend, beside a sliding window, to entries that each stand for a window of as many
// tokens as rate says (LAYER_CSA, LAYER_HCA). In the former a small attention of its own chooses
// the top_k entries a query sees; in the latter it sees all. csa_rate 0 = the model has none.
struct compress_spec {
    uint32_t csa_rate, hca_rate;
    uint32_t n_heads, dim, top_k; // of the choice; the last rope.dim of dim rotate
    struct rope_spec rope;        // of these layers, in place of the model's; of equal dim
};

// Hyper-connections: the residual is n streams, which are mixed into one before each block and
// take in what it returns (docs/arithmetic.md, Hyper-connections). n 0 = one plain stream.
struct hyper_spec {
    uint32_t n;
    uint32_t rounds; // of the Sinkhorn iteration
    float eps;
};

// Layers without rotary embedding may sharpen queries by 1 + scale * log(1 + (p + 1) / floor).
struct temperature_spec {
    uint32_t floor; // 0 = none
    float scale;
    // Of all layers: scores of queries at positions p beyond it are multiplied by log(p) /
    // log(length), behind the soft cap; 0 = none.
    uint32_t length;
};

// What is special about a layer's attention.
enum layer_flag {
    LAYER_FULL = 1,      // it sees all keys, although the model has a window
    LAYER_NO_ROPE = 2,   // and no rotary embedding
    LAYER_RECURRENT = 4, // a gated delta net stands in its place
    LAYER_SAME_KEYS = 8, // it attends to the keys that the layer before it chose
    LAYER_CSA = 16,      // it also attends to chosen entries of compress.csa_rate tokens each,
    LAYER_HCA = 32,      // or to all entries of compress.hca_rate tokens
    LAYER_HASH = 64,     // its experts are those that a table has for the row's token
};

// Numbers that some families multiply by; 0 = not.
struct scale_spec {
    float embedding; // rows of the embedding
    float residual;  // what a block adds to the residual stream
    float logits;
    float logits_cap; // soft cap of the logits, behind that; 0 = none
};

struct model_spec {
    char family[32];       // "qwen3_moe"
    char architecture[64]; // "Qwen3MoeForCausalLM"
    uint32_t form;         // of the family's forms, the checkpoint's (spec_load sees it)
    uint32_t n_layers, hidden, vocab;
    uint32_t n_later_layers; // of a checkpoint, behind the last one that is served
    uint32_t n_heads, n_kv_heads, head_dim;
    uint32_t max_position;   // the model's context length
    uint32_t sliding_window; // 0 = none; a query at p sees keys in (p - window, p]
    uint32_t attn_chunk;     // 0 = none; a query sees keys of its own chunk only
    struct rope_spec rope;
    struct mla_spec mla;
    struct delta_spec delta;
    struct indexer_spec indexer;
    struct joint_spec joint;
    struct compress_spec compress;
    struct hyper_spec hyper;
    struct temperature_spec temperature;
    float norm_eps, attn_scale;
    float attn_cap; // soft cap of the scores; 0 = none
    enum norm_kind norm;
    bool norm_bias;
    bool post_norms;      // norms on what attention and feed-forward network return
    bool norm_from_one;   // norms' weights, but that of the delta net, are stored without their 1
    enum qk_norm qk_norm; // RMSNorm on queries and keys
    bool attn_gate;       // each head's queries bring a gate of its output with them
    bool sinks;           // a logit a head that only takes weight
    float clip_qkv;       // queries, keys and values are clamped to +- this; 0 = not
    bool attn_bias;       // biases on q, k, v (and o when attn_out_bias)
    bool attn_out_bias;
    bool tied_embeddings; // the head is the embedding table
    uint32_t inner_dense; // FFN width of dense layers
    uint32_t inner_expert;
    enum activation activation;
    float act_alpha, act_limit;
    bool expert_bias; // on gate, up and down of the experts
    bool head_bias;
    struct router_spec router;
    struct shared_spec shared; // in every MoE layer
    struct scale_spec scale;
    enum dtype dtype; // of the checkpoint ("torch_dtype" / "dtype"; else of its embedding tensor)
    uint8_t ffn[LAYERS_MAX];         // enum ffn_kind of each layer
    uint8_t layer_flags[LAYERS_MAX]; // enum layer_flag
    uint32_t bos_id;                 // UINT32_MAX = none
    uint32_t n_stop_ids;             // eos ids of generation_config.json, else config.json
    uint32_t stop_ids[STOP_IDS_MAX];
};

// What a tensor is for; a family names each in its checkpoint's words.
enum tensor_kind {
    TENSOR_EMBED,
    TENSOR_FINAL_NORM,
    TENSOR_HEAD,
    TENSOR_HEAD_BIAS,
    TENSOR_FINAL_NORM_BIAS,
    TENSOR_ATTN_NORM_BIAS,
    TENSOR_FFN_NORM_BIAS,
    TENSOR_ATTN_NORM,
    TENSOR_FFN_NORM,
    TENSOR_ATTN_POST_NORM,
    TENSOR_FFN_POST_NORM,
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
    TENSOR_SINKS,
    TENSOR_Q_A, // latent attention
    TENSOR_Q_A_NORM,
    TENSOR_KV_A,
    TENSOR_KV_A_NORM,
    TENSOR_UK, // of one head (expert): latent to key, transposed, and latent to value
    TENSOR_UV,
    TENSOR_DELTA_QKV, // gated delta net; with z where the checkpoint stores by key heads
    TENSOR_DELTA_Z,
    TENSOR_DELTA_B, // with a where the checkpoint stores by key heads
    TENSOR_DELTA_A,
    TENSOR_DELTA_CONV, // one tap of all channels: the tensor_ref's expert says which
    TENSOR_DELTA_A_LOG,
    TENSOR_DELTA_DT_BIAS,
    TENSOR_DELTA_NORM,
    TENSOR_DELTA_OUT,
    TENSOR_KV_B,    // both of all heads, as one matrix
    TENSOR_INDEX_Q, // sparse attention: from the compressed query, and from the hidden row
    TENSOR_INDEX_K,
    TENSOR_INDEX_K_NORM,
    TENSOR_INDEX_K_NORM_BIAS,
    TENSOR_INDEX_WEIGHTS, // [n_heads, hidden]
    TENSOR_O_A,           // joint attention: of one group (expert), [o_rank, its heads]
    TENSOR_ENTRY_KV,      // compressed layers: [head_dim, or in CSA two of them, hidden]
    TENSOR_ENTRY_GATE,
    TENSOR_ENTRY_BIAS, // of gates, as one vector: [rate][as many as ENTRY_KV has rows]
    TENSOR_ENTRY_NORM,
    TENSOR_INDEX_ENTRY_KV, // CSA: the same of the entries that are scored, [two dims, hidden]
    TENSOR_INDEX_ENTRY_GATE,
    TENSOR_INDEX_ENTRY_BIAS,
    TENSOR_INDEX_ENTRY_NORM,
    TENSOR_HYPER_ATTN_MIX, // [2 n + n * n, n * hidden] of the hyper-connection around attention
    TENSOR_HYPER_ATTN_BASE,
    TENSOR_HYPER_ATTN_SCALE,
    TENSOR_HYPER_FFN_MIX,
    TENSOR_HYPER_FFN_BASE,
    TENSOR_HYPER_FFN_SCALE,
    TENSOR_HYPER_HEAD_MIX, // [n, n * hidden] before the final norm
    TENSOR_HYPER_HEAD_BASE,
    TENSOR_HYPER_HEAD_SCALE,
    TENSOR_ROUTER,
    TENSOR_ROUTER_BIAS,
    TENSOR_SELECTION_BIAS,
    TENSOR_HASH, // [vocab, top_k] whole numbers: the experts of each token (LAYER_HASH)
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
    TENSOR_EXPERT_GATE_BIAS,
    TENSOR_EXPERT_UP_BIAS,
    TENSOR_EXPERT_DOWN_BIAS,
    TENSOR_KIND_COUNT
};

// Weights of a norm over hidden values, queries or keys.
static inline bool tensor_is_norm(enum tensor_kind kind) {
    return kind == TENSOR_FINAL_NORM || kind == TENSOR_ATTN_NORM || kind == TENSOR_FFN_NORM ||
           kind == TENSOR_Q_NORM || kind == TENSOR_K_NORM;
}

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
struct safetensors;

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
    // Whether a tensor that nothing asks for belongs to a part that is not served (layers that
    // predict further tokens, a vision tower). NULL when there are none.
    bool (*leaves_out)(const struct model_spec *spec, const char *name);
    // How the same model's tensors are named and placed in checkpoints that store them in another
    // way, which shows in the name of the first expert; of it only the functions for tensors and
    // the next form count. NULL when there is no other way.
    const struct family *other_form;
};

extern const struct family *const family_table[];           // ends with NULL
const struct family *family_find(const char *architecture); // NULL when unknown
// Of a spec that was read: in the form that its checkpoint has.
const struct family *spec_family(const struct model_spec *spec);
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
// The two steps of it, for who tells what is wrong with which. dtype is DTYPE_COUNT where
// config.json does not say, until it is taken from the embedding.
int spec_load_configs(struct model_spec *out, const char *folder, struct err_text *e);
int spec_take_dtype(struct model_spec *spec, const struct safetensors *st, struct err_text *e);
// Refuses sizes that do not fit each other, by name.
int spec_check(const struct model_spec *spec, struct err_text *e);

// How latent attention is computed; models without it have one form only.
enum mla_form { MLA_ABSORBED, MLA_EXPANDED };
bool mla_form_parse(const char *name, enum mla_form *out);
const char *mla_form_name(enum mla_form form);
// Before anything is sized by the spec. Refuses a form that the model does not have.
int spec_take_mla_form(struct model_spec *spec, enum mla_form form, struct err_text *e);

// S of a row-parallel product (docs/arithmetic.md): the largest power of two <= 8 that divides
// units.
uint32_t spec_segments(uint32_t units);
uint32_t spec_attn_segments(const struct model_spec *spec); // units = heads
uint32_t spec_inner_segments(uint32_t inner); // units = inner / 16, 1 when 16 does not divide it

// Whether pages hold latents: one row a token, whose beginning is the value.
static inline bool spec_has_latents(const struct model_spec *s) {
    return s->mla.kv_rank != 0 && !s->mla.expanded;
}
// Whether pages hold such rows: latents, or those of a head whose keys are its values.
static inline bool spec_has_rows(const struct model_spec *s) {
    return spec_has_latents(s) || s->joint.q_rank != 0;
}
// What a page holds of one token in one layer: keys and values of so many heads.
static inline uint32_t spec_kv_heads(const struct model_spec *s) {
    return spec_has_latents(s) ? 1 : s->mla.expanded ? s->n_heads : s->n_kv_heads;
}
static inline uint32_t spec_key_dim(const struct model_spec *s) {
    return spec_has_latents(s) ? s->mla.kv_rank + s->rope.dim : s->head_dim;
}
static inline uint32_t spec_value_dim(const struct model_spec *s) {
    return spec_has_latents(s) ? s->mla.kv_rank : s->mla.expanded ? s->mla.value_dim : s->head_dim;
}
// The width of one head's output.
static inline uint32_t spec_out_dim(const struct model_spec *s) {
    return s->mla.kv_rank != 0 ? s->mla.value_dim : s->head_dim;
}

// What the query projection gives for one head: the query, and its output's gate.
static inline uint32_t spec_query_dim(const struct model_spec *s) {
    return s->attn_gate ? 2 * s->head_dim : s->head_dim;
}

// --- layers of several kinds

// Whether a layer attends to compressed entries beside its window.
static inline bool spec_layer_compressed(const struct model_spec *s, uint32_t layer) {
    return (s->layer_flags[layer] & (LAYER_CSA | LAYER_HCA)) != 0;
}
// Tokens of one of its entries; 0 = it has none.
static inline uint32_t spec_compress_rate(const struct model_spec *s, uint32_t layer) {
    return s->layer_flags[layer] & LAYER_CSA   ? s->compress.csa_rate
           : s->layer_flags[layer] & LAYER_HCA ? s->compress.hca_rate
                                               : 0;
}
// Parts of what a token gives to its layer's entries: one for each window it is about.
static inline uint32_t spec_compress_series(const struct model_spec *s, uint32_t layer) {
    return s->layer_flags[layer] & LAYER_CSA ? 2 : 1;
}
// Tokens whose parts the layer may still need: those of its open window, and of the one before.
static inline uint32_t spec_compress_kept(const struct model_spec *s, uint32_t layer) {
    return spec_compress_series(s, layer) * spec_compress_rate(s, layer);
}
// Whether the experts of a layer's rows are looked up by their tokens.
static inline bool spec_layer_hash(const struct model_spec *s, uint32_t layer) {
    return (s->layer_flags[layer] & LAYER_HASH) != 0;
}
// The width of the residual: all its streams.
static inline uint32_t spec_stream_dim(const struct model_spec *s) {
    return s->hyper.n == 0 ? s->hidden : s->hyper.n * s->hidden;
}
// What the output projection reads of a row.
static inline uint32_t spec_out_width(const struct model_spec *s) {
    return s->joint.q_rank != 0 ? s->joint.o_groups * s->joint.o_rank
                                : s->n_heads * spec_out_dim(s);
}

// Whether a layer of sparse attention chooses its keys, and so keeps index keys of all tokens.
static inline bool spec_layer_chooses(const struct model_spec *s, uint32_t layer) {
    return s->indexer.top_k != 0 && !(s->layer_flags[layer] & LAYER_SAME_KEYS);
}

// --- recurrent layers

static inline bool spec_layer_recurrent(const struct model_spec *s, uint32_t layer) {
    return (s->layer_flags[layer] & LAYER_RECURRENT) != 0;
}
uint32_t spec_recurrent_layers(const struct model_spec *spec); // how many there are
// Of all heads: keys (and queries), values, and the channels of the convolution.
static inline uint32_t spec_delta_keys(const struct model_spec *s) {
    return s->delta.n_k_heads * s->delta.k_dim;
}
static inline uint32_t spec_delta_values(const struct model_spec *s) {
    return s->delta.n_v_heads * s->delta.v_dim;
}
static inline uint32_t spec_delta_channels(const struct model_spec *s) {
    return 2 * spec_delta_keys(s) + spec_delta_values(s);
}
// Rows of the checkpoint's projections; 0: the one before has them.
struct delta_rows {
    uint32_t qkv, z, b, a;
};
struct delta_rows spec_delta_rows(const struct model_spec *spec);

// --- what a sequence is made of

// Bytes of what a layer knows of one sequence beside its pages, on each rank of a TP group: a
// recurrent layer that of the rank's heads, another all; 0 = nothing.
uint64_t spec_layer_state_bytes(const struct model_spec *spec, uint32_t layer, uint32_t tp);
// How many layers have such a state; 0: a sequence is what its pages hold, and may begin behind
// pages of another.
uint32_t spec_state_layers(const struct model_spec *spec);
uint64_t spec_state_bytes(const struct model_spec *spec); // over all layers, of one rank

// Bytes of a token's index key in a layer; 0 where it has none.
uint64_t spec_index_row_bytes(const struct model_spec *spec, uint32_t layer, enum dtype kv_dtype);
// Bytes of a page of one layer and KV head; 0 of a recurrent layer.
uint64_t spec_page_bytes(const struct model_spec *spec, uint32_t layer, enum dtype kv_dtype);
// Bytes of one token's KV over all layers that keep any.
uint64_t spec_kv_token_bytes(const struct model_spec *spec, enum dtype kv_dtype);

#endif
