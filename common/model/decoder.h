// decoder.h: what the families of Hugging Face decoders have in common: keys of config.json and
// names of tensors.
//
// A key that Hugging Face's own class for the architecture does not read cannot change its answer
// and is ignored; one that it reads is either understood here or in the family, or refused by name
// unless it has its neutral value.
#ifndef MOESAIC_COMMON_MODEL_DECODER_H
#define MOESAIC_COMMON_MODEL_DECODER_H

#include "common/model/config.h"
#include "common/model/spec.h"

// What Hugging Face's class assumes when a key is absent.
struct decoder_defaults {
    uint32_t max_position;
    float rope_theta, norm_eps;
    const char *head_dim; // the key, where it is not "head_dim"
    float partial_rotary; // the rotated part of a head; 0 = all, and the class reads no such key
    bool mrope;           // rotary keys that lay out images are taken: of text they change nothing
    bool clamp_position;  // more positions than POSITIONS_MAX are taken, and count as that
    bool gelu;            // the activation is GELU in the form with tanh, not silu
};

// Sizes, norms, rotary settings, activation, tied embeddings; refuses quantised checkpoints. Leaves
// the FFN to the family.
void decoder_read(struct config_reader *r, struct model_spec *spec,
                  const struct decoder_defaults *d);

void decoder_refuse_quantised(struct config_reader *r);
// From a multimodal model's object, which may not say that it is quantised, to that of its text
// model, text_config.
void decoder_enter_text(struct config_reader *r);
// The rotary part of it, once head_dim is known. Old files have rope_theta and rope_scaling, new
// ones the object rope_parameters with both. Of two objects rope_scaling counts.
void decoder_read_rope(struct config_reader *r, struct model_spec *spec,
                       const struct decoder_defaults *d);
// The object under the key alone, where there is one; theta and the rotated part are what they were
// where it does not say.
void decoder_read_rope_object(struct config_reader *r, const char *key, struct model_spec *spec,
                              const struct decoder_defaults *d);
// Which of the two objects counts: rope_scaling unless it is empty, as in the reference.
const char *decoder_rope_key(const struct config_reader *r);
// The scale of queries that some models with YaRN add: the square of 0.1 m log(factor) + 1, where m
// is mscale_all_dim; 1 without it.
float decoder_yarn_scale(const struct config_reader *r, const struct rope_spec *rope);

// Layers with experts: every decoder_sparse_step-th, except those of mlp_only_layers. Reads the
// width of the dense ones, where there are any; whether any have experts.
bool decoder_read_sparse_layers(struct config_reader *r, struct model_spec *spec);
// All layers are of one kind.
void decoder_all_layers(struct model_spec *spec, enum ffn_kind kind);
// The first first_k_dense_replace layers are dense, the others have experts.
void decoder_read_first_dense(struct config_reader *r, struct model_spec *spec, uint32_t fallback);
// How many layers stand behind the last one that is served, under the key; 1 without it.
void decoder_read_later_layers(struct config_reader *r, struct model_spec *spec, const char *key);
// Whether a tensor is in one of them: they predict further tokens.
bool decoder_is_later_layer(const struct model_spec *spec, const char *name);
// Refuses a use_sliding_window that could matter: releases differ in which layers it applies to.
void decoder_refuse_window(struct config_reader *r, const struct model_spec *spec);
bool decoder_has_layer(const struct model_spec *spec, enum ffn_kind kind);
// n_routed_experts and the router of DeepSeek-V3: sigmoid scores, a bias that selects, groups.
// Where keys are absent, n_groups, groups_kept and scale are those of d.
void decoder_read_sigmoid_router(struct config_reader *r, struct model_spec *spec,
                                 const struct router_spec *d);
// moe_intermediate_size, and the width of as many shared experts as the key says.
void decoder_read_shared(struct config_reader *r, struct model_spec *spec, const char *key);
// A shared expert whose weight the row decides, as wide as shared_expert_intermediate_size.
void decoder_read_gated_shared(struct config_reader *r, struct model_spec *spec);
// The number of experts, num_experts_per_tok and weights from a softmax over the chosen logits.
void decoder_read_chosen_router(struct config_reader *r, struct model_spec *spec);
// The number of experts, num_experts_per_tok and a softmax over all, whose chosen weights are
// divided by their sum where renorm says so.
void decoder_read_softmax_router(struct config_reader *r, struct model_spec *spec, bool renorm);
// attention_bias: biases on queries, keys, values and the output.
void decoder_read_attention_bias(struct config_reader *r, struct model_spec *spec, bool fallback);
// The hybrids of gated delta net and attention: which layers are recurrent, sizes of both, the
// output gate, norms stored without their 1.
void decoder_read_hybrid(struct config_reader *r, struct model_spec *spec);
// A multiplier; 1 (and absence) becomes 0, which is none.
float decoder_read_multiplier(struct config_reader *r, const char *key);

// 1 / sqrt(head_dim), the usual scale of scores.
float decoder_head_scale(uint32_t head_dim);
// The number of experts, which Hugging Face writes as num_experts or num_local_experts.
uint32_t decoder_read_experts(struct config_reader *r);

// A family's names where they are not the usual ones: what stands behind "model.layers.N." (also of
// a tensor that holds all experts), and behind "model.layers.N.<experts>.E.", where gate_proj,
// up_proj and down_proj are the usual ones.
struct decoder_names {
    const char *in_layer[TENSOR_KIND_COUNT];
    const char *experts; // "mlp.experts", where each expert has tensors of its own
    const char *in_expert[TENSOR_KIND_COUNT];
    const char *shared;                   // "mlp.shared_experts", which has the usual ones
    const char *whole[TENSOR_KIND_COUNT]; // of tensors outside the layers
    const char *layers;                   // "model.layers" where it is NULL
};

// The name of a tensor, or false when the family has none of its kind. buf too small is false too.
bool decoder_tensor_name(const struct decoder_names *names, const struct tensor_ref *ref, char *buf,
                         uint32_t buf_bytes);
// struct family's tensor_name where experts have the names of Mixtral's ("block_sparse_moe", w1, w3
// and w2), or the usual ones of "mlp.experts" with the router "mlp.gate".
bool decoder_mixtral_name(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                          uint32_t buf_bytes);
bool decoder_mlp_name(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                      uint32_t buf_bytes);

// Places of matrices in checkpoints that hold several together (struct tensor_place). Each takes
// the place of the matrix alone, and says where it is in the larger tensor.
//
// The first or the second of two matrices of one shape, stacked: [2 rows, columns].
void place_half(struct tensor_place *place, bool second);
// Transposed: [columns, rows].
void place_transposed(struct tensor_place *place);
// The first or the second of two transposed matrices of one shape that lie beside each other, or
// whose elements alternate: [columns, 2 rows].
void place_half_transposed(struct tensor_place *place, bool second, bool alternate);
// A tap of a convolution whose channels stand alone: [channels, 1, taps].
void place_tap(struct tensor_place *place, const struct model_spec *spec, uint32_t tap);
// Expert of a tensor that stacks all of them as rows: [n_experts * rows, columns].
void place_expert_rows(struct tensor_place *place, const struct model_spec *spec, uint32_t expert);
// Expert of a tensor that stacks all of them: [n_experts, rows, columns], whatever place was.
void place_expert(struct tensor_place *place, const struct model_spec *spec, uint32_t expert);
// The usual tensors of all experts, one of gates and behind them ups, one of downs; places of other
// kinds than an expert's stay as they are.
void place_stacked(struct tensor_place *place, const struct model_spec *spec,
                   const struct tensor_ref *ref);

#endif
