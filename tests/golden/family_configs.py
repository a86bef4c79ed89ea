"""family_configs.py: config.json of the small checkpoints that regen_families.py makes, as the released files have it."""

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128,
         "max_position_embeddings": 512, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2,
         "torch_dtype": "bfloat16", "tie_word_embeddings": False}

NO_ACTIVATION = {k: v for k, v in SMALL.items() if k not in ("hidden_act", "tie_word_embeddings")}

V4 = {**SMALL, "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "num_attention_heads": 4,
      "num_key_value_heads": 1, "head_dim": 16, "q_lora_rank": 16, "moe_intermediate_size": 16, "n_routed_experts": 6,
      "n_shared_experts": 1, "num_experts_per_tok": 3, "norm_topk_prob": True, "scoring_func": "sqrtsoftplus",
      "routed_scaling_factor": 1.5, "swiglu_limit": 1.0, "sliding_window": 24, "o_groups": 2, "o_lora_rank": 16,
      "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "index_n_heads": 2, "index_head_dim": 16, "index_topk": 6,
      "rms_norm_eps": 1e-6, "num_nextn_predict_layers": 1, "attention_bias": False}
V4_YARN = {"type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 64}

CONFIGS = {
    # A gated shared expert, biases on queries, keys and values, a dense layer.
    "qwen2-moe": {
        **SMALL, "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "decoder_sparse_step": 1,
        "mlp_only_layers": [1], "num_hidden_layers": 3, "intermediate_size": 48, "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 3, "norm_topk_prob": False,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "use_sliding_window": False, "sliding_window": 16,
        "max_window_layers": 2,
    },
    # Norms over all heads, values clipped where it can be seen.
    "olmoe": {
        **SMALL, "architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "intermediate_size": 16,
        "num_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": False, "clip_qkv": 1.25, "attention_bias": False,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": None,
    },
    # Multipliers; all experts of a layer in one tensor; a tied head.
    "granitemoe": {
        **SMALL, "architectures": ["GraniteMoeForCausalLM"], "model_type": "granitemoe", "intermediate_size": 32,
        "num_local_experts": 8, "num_experts_per_tok": 3, "attention_multiplier": 0.3, "embedding_multiplier": 3.0,
        "logits_scaling": 1.5, "residual_multiplier": 0.6, "attention_bias": False, "rms_norm_eps": 1e-6,
        "rope_theta": 10000, "rope_scaling": None, "tie_word_embeddings": True,
    },
    "granitemoeshared": {
        **SMALL, "architectures": ["GraniteMoeSharedForCausalLM"], "model_type": "granitemoeshared",
        "intermediate_size": 16, "shared_intermediate_size": 24, "num_local_experts": 6, "num_experts_per_tok": 2,
        "attention_multiplier": 0.25, "embedding_multiplier": 2.0, "logits_scaling": 2.0, "residual_multiplier": 0.7,
        "attention_bias": True, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    },
    # Half of each head rotates, a dense layer, groups of experts, biases on queries, keys and values.
    "glm4-moe": {
        **SMALL, "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "num_hidden_layers": 3,
        "intermediate_size": 48, "moe_intermediate_size": 16, "n_routed_experts": 8, "n_shared_experts": 1,
        "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
        "first_k_dense_replace": 1, "use_qk_norm": True, "attention_bias": True, "partial_rotary_factor": 0.5,
        "head_dim": 16, "rms_norm_eps": 1e-5, "rope_theta": 1000000, "rope_scaling": None,
        "num_nextn_predict_layers": 1,
    },
    # Norms over all heads, rotary_dim.
    "minimax-m2": {
        **SMALL, "architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2", "intermediate_size": 16,
        "num_local_experts": 8, "num_experts_per_tok": 3, "head_dim": 16, "rotary_dim": 8, "use_qk_norm": True,
        "rms_norm_eps": 1e-6, "rope_theta": 5000000,
    },
    # Neighbours rotate, experts in some layers, two shared ones, a tied head.
    "ernie4-5-moe": {
        **SMALL, "architectures": ["Ernie4_5_MoeForCausalLM"], "model_type": "ernie4_5_moe", "num_hidden_layers": 3,
        "intermediate_size": 48, "moe_intermediate_size": 16, "moe_num_experts": 8, "moe_k": 3,
        "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 1,
        "moe_norm_min": 1e-12, "use_bias": False, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
        "tie_word_embeddings": True,
    },
    # LayerNorm without biases, clipped values, one tensor for queries, keys and values, stacked experts.
    "dbrx": {
        "architectures": ["DbrxForCausalLM"], "model_type": "dbrx", "d_model": 32, "n_heads": 4, "n_layers": 2,
        "max_seq_len": 512, "vocab_size": 128, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
        "rope_theta": 500000.0,
        "attn_config": {"clip_qkv": 1.5, "kv_n_heads": 2, "rope_theta": 500000.0},
        "ffn_config": {"ffn_act_fn": {"name": "silu"}, "ffn_hidden_size": 32, "moe_num_experts": 6, "moe_top_k": 2,
                       "moe_normalize_expert_weights": 1.0, "moe_jitter_eps": 0.01},
    },
    # LayerNorm with biases, biases of attention and head, the sparse mixer, longrope.
    "phimoe": {
        **SMALL, "architectures": ["PhimoeForCausalLM"], "model_type": "phimoe", "intermediate_size": 16,
        "num_local_experts": 8, "num_experts_per_tok": 2, "attention_bias": True, "lm_head_bias": True,
        "router_jitter_noise": 0.01, "input_jitter_noise": 0.01, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "sliding_window": 512, "original_max_position_embeddings": 256,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.7],
                         "long_factor": [1.0, 2.0, 4.0, 8.0], "short_mscale": 1.2, "long_mscale": 1.3,
                         "original_max_position_embeddings": 256},
    },
    # Sinks, a window in every other layer, biases everywhere, the clamped activation, YaRN.
    "gpt-oss": {
        **SMALL, "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "intermediate_size": 64,
        "num_local_experts": 6, "num_experts_per_tok": 2, "head_dim": 16, "attention_bias": True, "sliding_window": 24,
        "layer_types": ["sliding_attention", "full_attention"], "swiglu_limit": 1.5, "rms_norm_eps": 1e-5,
        "rope_theta": 150000,
        "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                         "original_max_position_embeddings": 64},
    },
    # Chunks, layers without rotation that look sharper from far away, weights on the experts' input, Llama 3's RoPE.
    "llama4": {
        **SMALL, "architectures": ["Llama4ForCausalLM"], "model_type": "llama4_text", "num_hidden_layers": 4,
        "intermediate_size": 16, "intermediate_size_mlp": 48, "num_local_experts": 4, "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2, "no_rope_layers": [1, 1, 1, 0], "attention_chunk_size": 24, "use_qk_norm": True,
        "attn_temperature_tuning": True, "floor_scale": 8, "attn_scale": 0.1, "head_dim": 16, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 64},
    },
    # The same inside a multimodal checkpoint, whose vision parts are left out.
    "llama4-nested": {
        "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "torch_dtype": "bfloat16",
        "vision_config": {"model_type": "llama4_vision_model"},
        "text_config": {
            **SMALL, "architectures": ["Llama4ForCausalLM"], "model_type": "llama4_text", "intermediate_size": 32,
            "intermediate_size_mlp": 48, "num_local_experts": 4, "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 1, "no_rope_layers": [1, 0], "attention_chunk_size": 8192, "use_qk_norm": False,
            "attn_temperature_tuning": False, "head_dim": 16, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
        },
    },
    # Latent attention with compressed queries, groups by the best expert.
    "deepseek-v2": {
        **SMALL, "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "num_hidden_layers": 2,
        "num_key_value_heads": 4, "intermediate_size": 48, "moe_intermediate_size": 16, "n_routed_experts": 8,
        "n_shared_experts": 2, "num_experts_per_tok": 3, "topk_method": "group_limited_greedy", "n_group": 4,
        "topk_group": 2, "norm_topk_prob": False, "routed_scaling_factor": 4.0, "scoring_func": "softmax",
        "first_k_dense_replace": 1, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8, "v_head_dim": 12, "attention_bias": False, "rms_norm_eps": 1e-6, "rope_theta": 10000,
        "rope_scaling": {"type": "yarn", "factor": 4, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707,
                         "mscale_all_dim": 0.707, "original_max_position_embeddings": 128},
    },
    "deepseek-v2-lite": {
        **SMALL, "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "num_key_value_heads": 4,
        "intermediate_size": 48, "moe_intermediate_size": 16, "n_routed_experts": 6, "n_shared_experts": 1,
        "num_experts_per_tok": 2, "topk_method": "greedy", "n_group": 1, "topk_group": 1, "norm_topk_prob": False,
        "routed_scaling_factor": 1.0, "scoring_func": "softmax", "first_k_dense_replace": 0, "q_lora_rank": None,
        "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "attention_bias": False,
        "rms_norm_eps": 1e-6, "rope_theta": 10000,
    },
    # The bias that selects, groups by the two best, weights renormalised and scaled.
    "deepseek-v3": {
        **SMALL, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_hidden_layers": 2,
        "num_key_value_heads": 4, "intermediate_size": 48, "moe_intermediate_size": 16, "n_routed_experts": 8,
        "n_shared_experts": 1, "num_experts_per_tok": 3, "topk_method": "noaux_tc", "n_group": 4, "topk_group": 2,
        "norm_topk_prob": True, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "first_k_dense_replace": 1,
        "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 12,
        "attention_bias": False, "rms_norm_eps": 1e-6, "rope_theta": 10000, "num_nextn_predict_layers": 1,
        "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
                         "mscale_all_dim": 1.0, "original_max_position_embeddings": 128},
    },
    # The same class inside a multimodal checkpoint, without groups and with a long stretch.
    "kimi-k25": {
        "architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25", "torch_dtype": "bfloat16",
        "tie_word_embeddings": False, "media_placeholder_token_id": 100,
        "vision_config": {"model_type": "kimi_k25_vision", "vt_hidden_size": 16, "vt_num_hidden_layers": 1},
        "text_config": {
            **SMALL, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2", "num_key_value_heads": 4,
            "intermediate_size": 48, "moe_intermediate_size": 16, "n_routed_experts": 6, "n_shared_experts": 1,
            "num_experts_per_tok": 2, "topk_method": "noaux_tc", "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
            "routed_scaling_factor": 2.827, "scoring_func": "sigmoid", "first_k_dense_replace": 1, "moe_layer_freq": 1,
            "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
            "attention_bias": False, "rms_norm_eps": 1e-5, "rope_theta": 50000.0, "num_nextn_predict_layers": 0,
            "rope_scaling": {"type": "yarn", "factor": 64.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
                             "mscale_all_dim": 1.0, "original_max_position_embeddings": 128},
        },
    },
    # Sparse attention: of 70 tokens each query attends to 24.
    "deepseek-v32": {
        **SMALL, "architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "num_hidden_layers": 2,
        "num_key_value_heads": 4, "intermediate_size": 48, "moe_intermediate_size": 16, "n_routed_experts": 8,
        "n_shared_experts": 1, "num_experts_per_tok": 3, "topk_method": "noaux_tc", "n_group": 4, "topk_group": 2,
        "norm_topk_prob": True, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "first_k_dense_replace": 1,
        "q_lora_rank": 24, "kv_lora_rank": 20, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 12,
        "index_n_heads": 3, "index_head_dim": 14, "index_topk": 24, "max_position_embeddings": 4096,
        "attention_bias": False, "rms_norm_eps": 1e-6, "rope_theta": 10000, "num_nextn_predict_layers": 1,
        "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
                         "mscale_all_dim": 1.0, "original_max_position_embeddings": 128},
    },
    # The same with neighbours that rotate in the index; the last layer attends to what the one before it chose.
    "glm5": {
        **SMALL, "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "num_hidden_layers": 4,
        "num_key_value_heads": 4, "intermediate_size": 48, "moe_intermediate_size": 16, "n_routed_experts": 8,
        "n_shared_experts": 1, "num_experts_per_tok": 2, "topk_method": "noaux_tc", "n_group": 1, "topk_group": 1,
        "norm_topk_prob": True, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "first_k_dense_replace": 2,
        "q_lora_rank": 20, "kv_lora_rank": 16, "qk_nope_head_dim": 9, "qk_rope_head_dim": 8, "v_head_dim": 11,
        "index_n_heads": 5, "index_head_dim": 16, "index_topk": 19, "index_topk_freq": 2, "indexer_rope_interleave": True,
        "attention_bias": False, "rms_norm_eps": 1e-5, "num_nextn_predict_layers": 1,
        "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"},
    },
    # Hyper-connections, keys that are values under a window, groups of heads in the output, first layers whose experts
    # a table of tokens has: the released spelling and names.
    "deepseek-v4-sliding": {
        **V4, "num_hidden_layers": 3, "num_hash_layers": 2, "qk_rope_head_dim": 8, "compress_ratios": [0, 0, 0, 0],
        "compress_rope_theta": 160000, "rope_theta": 10000, "rope_scaling": V4_YARN,
    },
    # All kinds of layers, as transformers writes both.
    "deepseek-v4": {
        **V4, "num_hidden_layers": 5, "moe_intermediate_size": 32,
        "mlp_layer_types": ["hash_moe", "moe", "moe", "moe", "hash_moe"],
        "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention",
                        "compressed_sparse_attention", "heavily_compressed_attention"],
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
        "partial_rotary_factor": 0.5, "index_topk": 6,
        "rope_parameters": {
            "main": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
            "compress": {"rope_type": "yarn", "rope_theta": 160000.0, "partial_rotary_factor": 0.5, "factor": 16.0,
                         "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 64,
                         "attention_factor": 1.0}},
    },
    # The released rates, under the names of transformers' modules.
    "deepseek-v4-128": {
        **V4, "num_hidden_layers": 2, "num_hash_layers": 1, "qk_rope_head_dim": 8, "compress_ratios": [128, 4, 0],
        "compress_rope_theta": 160000, "rope_theta": 10000, "rope_scaling": V4_YARN, "index_topk": 20,
    },
    # Dense first layer, shared experts; transformers has no class for it, see reference_deepseek.
    "deepseek-moe": {
        **SMALL, "architectures": ["DeepseekForCausalLM"], "model_type": "deepseek", "intermediate_size": 48,
        "moe_intermediate_size": 16, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3,
        "first_k_dense_replace": 1, "moe_layer_freq": 1, "norm_topk_prob": False, "scoring_func": "softmax",
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "rope_scaling": None, "attention_bias": False,
    },
    # Norms on both sides, GeGLU, a soft cap, multipliers, a tied head; see grok.py beside this file.
    "grok-1": {
        **NO_ACTIVATION, "architectures": ["Grok1ModelForCausalLM"], "model_type": "grok-1", "intermediate_size": 24,
        "num_experts": 6, "num_experts_per_tok": 2, "attn_output_multiplier": 0.4, "max_attn_value": 3.0,
        "embedding_multiplier_scale": 1.7, "output_multiplier_scale": 0.57, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
    },
    # The same and more: a dense network beside the experts, soft caps everywhere, scores that grow with the position.
    # With a small eps the norm behind it would hide the factor of the experts' sum.
    "grok-2": {
        **NO_ACTIVATION, "architectures": ["Grok1ForCausalLM"], "model_type": "git", "intermediate_size": 48,
        "moe_intermediate_size": 24, "num_local_experts": 6, "num_experts_per_tok": 2, "residual_moe": True,
        "head_dim": 16, "embedding_multiplier_scale": 1.9, "output_multiplier_scale": 0.5,
        "final_logit_softcapping": 8, "attn_logit_softcapping": 2.5, "router_logit_softcapping": 1.5,
        "rms_norm_eps": 0.02, "rope_theta": 208533496, "attn_temperature_len": 20, "sliding_window_size": -1,
        "global_attn_every_n": 1, "rope_type": "original", "original_max_position_embeddings": 64,
        "scaling_factor": 16.0, "extrapolation_factor": 1.0, "attn_factor": 1.0, "beta_fast": 8, "beta_slow": 1,
    },
    # Gated delta nets with heads of odd sizes, stored key head by key head; an output gate, a dense layer.
    "qwen3-next": {
        **SMALL, "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "num_hidden_layers": 4,
        "hidden_size": 40, "intermediate_size": 48, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24,
        "num_experts": 8, "num_experts_per_tok": 3, "norm_topk_prob": True, "decoder_sparse_step": 1,
        "mlp_only_layers": [1], "full_attention_interval": 2, "head_dim": 16, "partial_rotary_factor": 0.25,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 12, "linear_value_head_dim": 21, "linear_num_key_heads": 2,
        "linear_num_value_heads": 6, "attention_bias": False, "rms_norm_eps": 1e-6, "rope_theta": 10000000,
        "rope_scaling": None,
    },
    # The same inside a multimodal checkpoint that stacks experts; positions laid out for images; a longer convolution.
    "qwen3-5-moe": {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "image_token_id": 126,
        "tie_word_embeddings": False, "vision_config": {"model_type": "qwen3_5_moe_vision", "depth": 1},
        "text_config": {
            **SMALL, "model_type": "qwen3_5_moe_text", "num_hidden_layers": 4, "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16, "num_experts": 6, "num_experts_per_tok": 2, "head_dim": 24,
            "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
            "full_attention_interval": 4, "attn_output_gate": True, "mtp_num_hidden_layers": 1,
            "linear_conv_kernel_dim": 5, "linear_key_head_dim": 17, "linear_value_head_dim": 40,
            "linear_num_key_heads": 3, "linear_num_value_heads": 3, "attention_bias": True, "rms_norm_eps": 1e-6,
            "rope_parameters": {"mrope_interleaved": True, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.35,
                                "rope_theta": 10000000, "rope_type": "default"},
        },
    },
    # The text model alone, as transformers itself writes it: experts one by one.
    "qwen3-5-moe-text": {
        **SMALL, "architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text",
        "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2,
        "head_dim": 16, "layer_types": ["linear_attention", "full_attention"], "linear_conv_kernel_dim": 2,
        "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "rms_norm_eps": 1e-6, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    },
    # Dense, with a tied head.
    "qwen3-5": {
        **SMALL, "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "intermediate_size": 48,
        "head_dim": 16, "layer_types": ["linear_attention", "full_attention"], "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 8, "linear_value_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "rms_norm_eps": 1e-6, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "tie_word_embeddings": True,
    },
    "llama": {
        **SMALL, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "intermediate_size": 48,
        "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "attention_bias": False, "mlp_bias": False,
        "rope_scaling": {"rope_type": "linear", "factor": 4.0},
    },
    "mistral": {
        **SMALL, "architectures": ["MistralForCausalLM"], "model_type": "mistral", "intermediate_size": 48,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "sliding_window": 24,
    },
    "qwen2": {
        **SMALL, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "intermediate_size": 48,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "use_sliding_window": False, "tie_word_embeddings": True,
    },
    "qwen3": {
        **SMALL, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "intermediate_size": 48,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "head_dim": 16, "attention_bias": False,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
    },
}
