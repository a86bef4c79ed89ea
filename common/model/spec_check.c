// spec_check.c: which numbers a spec may hold, and how they must fit each other.
//
// Families check single numbers while they read them, so that the message has the file's own key;
// this is the last gate for specs from anywhere, and the only place for relations.
#include <math.h>
#include <stddef.h>

#include "common/model/rope.h"
#include "common/model/spec.h"

struct size_rule {
    const char *key;
    uint32_t value, min, max;
};

static int check_sizes(const struct size_rule *rules, size_t n, struct err_text *e) {
    for (size_t i = 0; i < n; i++) {
        if (rules[i].value < rules[i].min || rules[i].value > rules[i].max)
            return err_set(e, ERR_FATAL_MODEL, "%s is %u, not within %u to %u", rules[i].key,
                           rules[i].value, rules[i].min, rules[i].max);
    }
    return 0;
}

static int check_shapes(const struct model_spec *s, struct err_text *e) {
    bool latent = s->mla.kv_rank != 0;
    const struct size_rule rules[] = {
        {"num_hidden_layers", s->n_layers, 1, LAYERS_MAX},
        {"hidden_size", s->hidden, 1, HIDDEN_MAX},
        {"vocab_size", s->vocab, 1, VOCAB_MAX},
        {"num_attention_heads", s->n_heads, 1, HEADS_MAX},
        {"num_key_value_heads", s->n_kv_heads, 1, HEADS_MAX},
        {"head_dim", s->head_dim, 1, HEAD_DIM_MAX},
        {"q_lora_rank", s->mla.q_rank, 0, LATENT_DIM_MAX},
        {"kv_lora_rank", s->mla.kv_rank, 0, LATENT_DIM_MAX},
        {"qk_nope_head_dim", s->mla.nope_dim, latent ? 1 : 0, HEAD_DIM_MAX},
        {"v_head_dim", s->mla.value_dim, latent ? 1 : 0, HEAD_DIM_MAX},
        {"max_position_embeddings", s->max_position, 1, POSITIONS_MAX},
        {"sliding_window", s->sliding_window, 0, POSITIONS_MAX},
        {"attn_temperature_len", s->temperature.length == 0 ? 2 : s->temperature.length, 2,
         POSITIONS_MAX},
        {"the number of end-of-text ids", s->n_stop_ids, 0, STOP_IDS_MAX},
    };
    return check_sizes(rules, sizeof rules / sizeof *rules, e);
}

static int check_attention(const struct model_spec *s, struct err_text *e) {
    bool latent = s->mla.kv_rank != 0;
    if (s->n_heads % s->n_kv_heads != 0)
        return err_set(e, ERR_FATAL_MODEL,
                       "num_attention_heads %u is not a multiple of num_key_value_heads %u",
                       s->n_heads, s->n_kv_heads);
    if (s->rope.dim == 0 || s->rope.dim % 2 != 0 || s->rope.dim > s->head_dim)
        return err_set(
            e, ERR_FATAL_MODEL,
            "head_dim %u with %u rotary dimensions (partial_rotary_factor, rotary_dim or "
            "qk_rope_head_dim): rotary embedding needs an even number, at most head_dim",
            s->head_dim, s->rope.dim);
    if (!(s->norm_eps > 0 && s->norm_eps < 1))
        return err_set(e, ERR_FATAL_MODEL, "rms_norm_eps is %g, not between 0 and 1",
                       (double)s->norm_eps);
    if (latent && (s->sliding_window != 0 || s->attn_chunk != 0 || s->sinks || s->attn_cap != 0 ||
                   s->temperature.length != 0))
        return err_set(
            e, ERR_FATAL_MODEL,
            "kv_lora_rank %u: latent attention has no windows, chunks, sinks, caps or factors",
            s->mla.kv_rank);
    if (latent && s->head_dim != s->mla.nope_dim + s->rope.dim)
        return err_set(e, ERR_FATAL_MODEL,
                       "head_dim %u is not qk_nope_head_dim %u + %u rotary dimensions", s->head_dim,
                       s->mla.nope_dim, s->rope.dim);
    if (!isfinite(s->attn_scale) || s->attn_scale <= 0)
        return err_set(
            e, ERR_FATAL_MODEL,
            "the attention scale (attention_multiplier or attn_output_multiplier) is %g, not "
            "above 0",
            (double)s->attn_scale);
    return 0;
}

static int check_indexer(const struct model_spec *s, struct err_text *e) {
    const struct indexer_spec *x = &s->indexer;
    const struct size_rule rules[] = {
        {"index_n_heads", x->n_heads, 1, HEADS_MAX},
        {"index_head_dim", x->dim, s->rope.dim, HEAD_DIM_MAX},
        {"index_topk", x->top_k, 1, POSITIONS_MAX},
        {"q_lora_rank", s->mla.q_rank, 1, LATENT_DIM_MAX},
        {"kv_lora_rank", s->mla.kv_rank, 1, LATENT_DIM_MAX},
    };
    if (x->top_k == 0) return 0;
    if (s->layer_flags[0] & LAYER_SAME_KEYS)
        return err_set(e, ERR_FATAL_MODEL, "indexer_types: the first layer has none before it");
    return check_sizes(rules, sizeof rules / sizeof *rules, e);
}

static int check_joint(const struct model_spec *s, struct err_text *e) {
    const struct joint_spec *j = &s->joint;
    const struct size_rule rules[] = {
        {"num_key_value_heads", s->n_kv_heads, 1, 1},
        {"q_lora_rank", j->q_rank, 1, LATENT_DIM_MAX},
        {"o_groups", j->o_groups, 1, HEADS_MAX},
        {"o_lora_rank", j->o_rank, 1, LATENT_DIM_MAX},
        {"sliding_window", s->sliding_window, 1, POSITIONS_MAX},
    };
    if (j->q_rank == 0) return 0;
    int rc = check_sizes(rules, sizeof rules / sizeof *rules, e);
    if (rc == 0 && s->n_heads % j->o_groups != 0)
        return err_set(e, ERR_FATAL_MODEL,
                       "num_attention_heads %u is not a multiple of o_groups %u", s->n_heads,
                       j->o_groups);
    return rc;
}

// Pages hold whole entries, or every so many of them one.
static bool rate_fits(uint32_t rate) {
    return rate != 0 && (KV_BLOCK_TOKENS % rate == 0 || rate % KV_BLOCK_TOKENS == 0);
}

static int check_compress(const struct model_spec *s, struct err_text *e) {
    const struct compress_spec *c = &s->compress;
    const struct size_rule rules[] = {
        {"compress_rates.compressed_sparse_attention", c->csa_rate, 1, COMPRESS_RATE_MAX},
        {"compress_rates.heavily_compressed_attention", c->hca_rate, 1, COMPRESS_RATE_MAX},
        {"index_n_heads", c->n_heads, 1, HEADS_MAX},
        {"index_head_dim", c->dim, s->rope.dim, HEAD_DIM_MAX},
        {"index_topk", c->top_k, 1, POSITIONS_MAX},
    };
    if (c->csa_rate == 0) return 0;
    if (!rate_fits(c->csa_rate))
        return err_set(e, ERR_FATAL_MODEL,
                       "compress_rates.compressed_sparse_attention (compress_rate_csa) %u must "
                       "divide %d or be a multiple of it",
                       c->csa_rate, KV_BLOCK_TOKENS);
    if (!rate_fits(c->hca_rate))
        return err_set(e, ERR_FATAL_MODEL,
                       "compress_rates.heavily_compressed_attention (compress_rate_hca) %u must "
                       "divide %d or be a multiple of it",
                       c->hca_rate, KV_BLOCK_TOKENS);
    if (c->rope.dim != s->rope.dim)
        return err_set(e, ERR_FATAL_MODEL,
                       "the two rotary embeddings rotate %u and %u dimensions of a head "
                       "(partial_rotary_factor, qk_rope_head_dim)",
                       s->rope.dim, c->rope.dim);
    return check_sizes(rules, sizeof rules / sizeof *rules, e);
}

static int check_hyper(const struct model_spec *s, struct err_text *e) {
    const struct hyper_spec *h = &s->hyper;
    const struct size_rule rules[] = {
        {"hc_mult", h->n, 1, HYPER_STREAMS_MAX},
        {"hc_sinkhorn_iters", h->rounds, 1, SINKHORN_ROUNDS_MAX},
    };
    if (h->n == 0) return 0;
    if (spec_recurrent_layers(s) > 0)
        return err_set(e, ERR_FATAL_MODEL, "hc_mult %u goes with no recurrent layers", h->n);
    if (!(h->eps >= 0 && h->eps < 1))
        return err_set(e, ERR_FATAL_MODEL, "hc_eps is %g, not within 0 and 1", (double)h->eps);
    return check_sizes(rules, sizeof rules / sizeof *rules, e);
}

// Extreme settings could make frequencies that are no numbers, and answers with them.
// theta names the key of its base.
static int check_rope(const struct rope_spec *rope, const char *theta, uint32_t max_position,
                      struct err_text *e) {
    float inv_freq[HEAD_DIM_MAX / 2];
    const uint32_t lengths[] = {1, max_position};
    if (!isfinite(rope->theta) || rope->theta <= 0)
        return err_set(e, ERR_FATAL_MODEL, "%s is %g, not above 0", theta, (double)rope->theta);
    if (rope->kind == ROPE_YARN && rope->theta <= 1)
        return err_set(e, ERR_FATAL_MODEL, "%s is %g; YaRN needs more than 1", theta,
                       (double)rope->theta);
    if (!isfinite(rope->attention) || !isfinite(rope->long_attention))
        return err_set(e, ERR_FATAL_MODEL, "the factor of the rotary embedding is not finite");
    for (int l = 0; l < 2; l++) {
        bool finite = isfinite(rope_frequencies(inv_freq, rope, lengths[l]));
        for (uint32_t i = 0; i < rope->dim / 2; i++)
            finite = finite && isfinite(inv_freq[i]);
        if (!finite)
            return err_set(e, ERR_FATAL_MODEL,
                           "%s %g and the settings beside it give frequencies that are not finite",
                           theta, (double)rope->theta);
    }
    return 0;
}

static int check_ropes(const struct model_spec *s, struct err_text *e) {
    int rc = check_rope(&s->rope, "rope_theta", s->max_position, e);
    if (rc != 0 || s->compress.csa_rate == 0) return rc;
    return check_rope(&s->compress.rope,
                      "compress_rope_theta (or rope_parameters.compress.rope_theta)",
                      s->max_position, e);
}

// Enough experts must be left when groups are out.
static int check_groups(const struct router_spec *r, struct err_text *e) {
    if (r->groups == GROUPS_NONE) return 0;
    if (r->n_groups == 0 || r->n_experts % r->n_groups != 0)
        return err_set(e, ERR_FATAL_MODEL,
                       "the number of experts %u is not a multiple of n_group %u", r->n_experts,
                       r->n_groups);
    uint32_t size = r->n_experts / r->n_groups;
    if (r->groups == GROUPS_TOP2 && size < 2)
        return err_set(e, ERR_FATAL_MODEL, "n_group %u leaves less than two experts a group",
                       r->n_groups);
    if (r->groups_kept == 0 || r->groups_kept > r->n_groups)
        return err_set(e, ERR_FATAL_MODEL, "topk_group %u is not within 1 to n_group %u",
                       r->groups_kept, r->n_groups);
    if (r->top_k > r->groups_kept * size)
        return err_set(e, ERR_FATAL_MODEL,
                       "num_experts_per_tok %u is more than the %u experts that topk_group %u of "
                       "n_group %u leaves",
                       r->top_k, r->groups_kept * size, r->groups_kept, r->n_groups);
    return 0;
}

static int check_weights(const struct router_spec *r, struct err_text *e) {
    if (!isfinite(r->scale) || r->scale <= 0)
        return err_set(e, ERR_FATAL_MODEL,
                       "the router's scale (routed_scaling_factor) is %g, not above 0",
                       (double)r->scale);
    if (!(r->renorm_least >= 0 && r->renorm_least < 1))
        return err_set(e, ERR_FATAL_MODEL,
                       "the least sum of weights (moe_norm_min) is %g, not within 0 and 1",
                       (double)r->renorm_least);
    if (!(r->jitter >= 0 && r->jitter < 1))
        return err_set(e, ERR_FATAL_MODEL, "router_jitter_noise is %g, not within 0 and 1",
                       (double)r->jitter);
    if (r->on_input && r->top_k != 1)
        return err_set(e, ERR_FATAL_MODEL, "num_experts_per_tok is %u; weights on the input need 1",
                       r->top_k);
    return 0;
}

static int check_experts(const struct model_spec *s, struct err_text *e) {
    const struct router_spec *r = &s->router;
    const struct size_rule rules[] = {
        {"num_experts", r->n_experts, 1, EXPERTS_MAX},
        {"num_experts_per_tok", r->top_k, 1, TOP_K_MAX},
        {"moe_intermediate_size", s->inner_expert, 1, INNER_MAX},
    };
    if (r->n_experts > 0 && r->top_k > r->n_experts) // before any bound of ours, which says less
        return err_set(e, ERR_FATAL_MODEL,
                       "num_experts_per_tok %u is above the number of experts %u", r->top_k,
                       r->n_experts);
    int rc = check_sizes(rules, sizeof rules / sizeof *rules, e);
    if (rc == 0) rc = check_groups(r, e);
    return rc == 0 ? check_weights(r, e) : rc;
}

static int check_recurrent(const struct model_spec *s, struct err_text *e) {
    const struct delta_spec *d = &s->delta;
    uint32_t n = spec_recurrent_layers(s);
    if (n == 0) return 0;
    const struct size_rule rules[] = {
        {"linear_conv_kernel_dim", d->kernel, 2, CONV_KERNEL_MAX},
        {"linear_num_key_heads", d->n_k_heads, 1, HEADS_MAX},
        {"linear_num_value_heads", d->n_v_heads, 1, HEADS_MAX},
        {"linear_key_head_dim", d->k_dim, 1, HEAD_DIM_MAX},
        {"linear_value_head_dim", d->v_dim, 1, HEAD_DIM_MAX},
    };
    int rc = check_sizes(rules, sizeof rules / sizeof *rules, e);
    if (rc != 0) return rc;
    if (d->n_v_heads % d->n_k_heads != 0)
        return err_set(e, ERR_FATAL_MODEL,
                       "linear_num_value_heads %u is not a multiple of linear_num_key_heads %u",
                       d->n_v_heads, d->n_k_heads);
    if (n == s->n_layers)
        return err_set(
            e, ERR_FATAL_MODEL,
            "layer_types or full_attention_interval leaves no layer with full_attention");
    return 0;
}

// None (0), or a finite factor.
static int check_scales(const struct model_spec *s, struct err_text *e) {
    const struct {
        const char *key;
        float value;
    } factors[] = {{"embedding_multiplier", s->scale.embedding},
                   {"residual_multiplier", s->scale.residual},
                   {"the factor of the logits (1 / logits_scaling)", s->scale.logits}};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        if (!isfinite(factors[i].value))
            return err_set(e, ERR_FATAL_MODEL, "%s is not finite", factors[i].key);
    const struct {
        const char *key;
        float value;
    } caps[] = {{"max_attn_value or attn_logit_softcapping", s->attn_cap},
                {"router_logit_softcapping", s->router.logit_cap},
                {"final_logit_softcapping", s->scale.logits_cap},
                {"the factor of the experts' sum", s->shared.sum}};
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++)
        if (!isfinite(caps[i].value) || caps[i].value < 0)
            return err_set(e, ERR_FATAL_MODEL, "%s is %g, not above 0", caps[i].key,
                           (double)caps[i].value);
    if (!isfinite(s->clip_qkv) || s->clip_qkv < 0)
        return err_set(e, ERR_FATAL_MODEL, "clip_qkv is %g, not above 0", (double)s->clip_qkv);
    return 0;
}

static int check_layers(const struct model_spec *s, struct err_text *e) {
    bool moe = false, dense = false;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        moe = moe || s->ffn[i] == FFN_MOE;
        dense = dense || s->ffn[i] == FFN_DENSE;
    }
    const struct size_rule inner[] = {
        {"the shared expert's width", s->shared.inner, 0, INNER_MAX},
        {"intermediate_size", s->inner_dense, 1, INNER_MAX},
    };
    int rc = check_sizes(inner, dense ? 2 : 1, e);
    return rc == 0 && moe ? check_experts(s, e) : rc;
}

static int check_ids(const struct model_spec *s, struct err_text *e) {
    if (s->bos_id != UINT32_MAX && s->bos_id >= s->vocab)
        return err_set(e, ERR_FATAL_MODEL, "bos_token_id %u is not below vocab_size %u", s->bos_id,
                       s->vocab);
    for (uint32_t i = 0; i < s->n_stop_ids; i++) {
        if (s->stop_ids[i] >= s->vocab)
            return err_set(e, ERR_FATAL_MODEL, "eos_token_id %u is not below vocab_size %u",
                           s->stop_ids[i], s->vocab);
    }
    return 0;
}

int spec_check(const struct model_spec *spec, struct err_text *e) {
    int rc = check_shapes(spec, e);
    if (rc == 0) rc = check_attention(spec, e);
    if (rc == 0) rc = check_indexer(spec, e);
    if (rc == 0) rc = check_joint(spec, e);
    if (rc == 0) rc = check_compress(spec, e);
    if (rc == 0) rc = check_hyper(spec, e);
    if (rc == 0) rc = check_ropes(spec, e);
    if (rc == 0) rc = check_layers(spec, e);
    if (rc == 0) rc = check_recurrent(spec, e);
    if (rc == 0) rc = check_scales(spec, e);
    if (rc == 0) rc = check_ids(spec, e);
    return rc;
}
