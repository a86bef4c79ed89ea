#!/usr/bin/env python3
"""regen_families.py: a small random checkpoint and golden logits for every model family beyond regen.py's.

Not part of the build; it wants the environment that regen.py describes.

    python tests/golden/regen_families.py                # all, or names: olmoe granitemoe ...

The checkpoint is what transformers itself writes for its class of the family (save_pretrained, in the format of the
released files), with weights drawn from a fixed seed; config.json is written as the released files have it. Logits
and the number of tokens that each expert of each layer got are computed in float32 with eager attention. A seed is only
taken when shaking all weights by 1e-4 changes neither a chosen expert or key nor a next token, so that a correct implementation
cannot differ.
"""
import json
import pathlib
import re
import shutil
import sys

import grok
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODELS = ROOT / "tests" / "data" / "models"
GOLDEN = ROOT / "tests" / "golden"

VERSION = "5.24"
PROMPT_TOKENS = 70  # four KV blocks of 16 and a part of the fifth
SHAKE = 1e-4
LOGIT_GAP_MIN = 3e-4

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128,
         "max_position_embeddings": 512, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2,
         "torch_dtype": "bfloat16", "tie_word_embeddings": False}

NO_ACTIVATION = {k: v for k, v in SMALL.items() if k not in ("hidden_act", "tie_word_embeddings")}

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


# --- weights

def scale_of(name, shape):
    """How large values are drawn: varied logits and decided routing, whatever the family."""
    fan_in = shape[-1]
    if len(shape) == 3 and TRANSPOSED.search(name):
        fan_in = shape[-2]
    if name.endswith("mlp.w2"):
        fan_in = 32
    if "embed" in name or ".wte." in name:
        return 0.6
    if "norm" in name and len(shape) == 1:
        return 0.15
    if name.endswith("A_log"):
        return 1.0
    if "bias" in name or len(shape) == 1:
        return 0.25
    if "sinks" in name:
        return 1.0
    if ".gate.weight" in name or ".router." in name or "shared_expert_gate" in name:
        return 3.0 * fan_in ** -0.5
    if "weights_proj" in name:
        return 3.0 * fan_in ** -0.5
    return (2.0 if "lm_head" in name else 1.6) * fan_in ** -0.5


TRANSPOSED = re.compile(r"gate_up_proj$|experts\.down_proj$")


def middle_of(config, name, shape):
    """What values are drawn around."""
    hybrid = "linear_key_head_dim" in config
    if name.endswith("A_log"):
        return -1.5  # states that last for tens of tokens
    if "norm" in name and name.endswith(("weight", "scale")) and len(shape) == 1:
        return 0.0 if hybrid and "linear_attn" not in name else 1.0
    return 0.0


def draw(rng, config, name, shape):
    """From 16 levels, because random bytes would not compress."""
    levels = (np.arange(16) - 7.5) / 7.5 * 1.75
    odds = np.exp(-levels * levels / 2)
    x = rng.choice(levels, size=shape, p=odds / odds.sum()).astype(np.float32)
    return x * np.float32(scale_of(name, shape)) + np.float32(middle_of(config, name, shape))


def write_checkpoint(name, seed):
    config = CONFIGS[name]
    folder = MODELS / name
    if "text_config" in config:
        return write_nested(folder, config, seed)
    write_flat(folder, config, seed)


# What stands beside a text model, by the multimodal one's type.
VISION_PARTS = {"llama4": {"vision_model.class_embedding": (8,), "multi_modal_projector.linear_1.weight": (4, 8)},
                "kimi_k25": {"vision_tower.patch_embed.proj.weight": (4, 8), "mm_projector.proj.0.weight": (4, 8)},
                "qwen3_5_moe": {"model.visual.merger.norm.weight": (8,), "mtp.norm.weight": (8,)}}


def text_config(config):
    """As transformers reads it: kimi_k2 is another name of deepseek_v3."""
    text = dict(config["text_config"])
    if text["model_type"] == "kimi_k2":
        text["model_type"] = "deepseek_v3"
    return text


def write_nested(folder, config, seed):
    """A text model's checkpoint under the names of the multimodal one, beside a tensor of its vision part."""
    write_flat(folder, text_config(config), seed)
    tensors = load_file(folder / "model.safetensors")
    if config["model_type"] == "qwen3_5_moe":
        tensors = qwen3_5_tensors(config, tensors)
    else:
        tensors = {f"language_model.{n}": t for n, t in tensors.items()}
    for part, shape in VISION_PARTS[config["model_type"]].items():
        tensors[part] = torch.zeros(shape, dtype=torch.bfloat16)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def qwen3_5_tensors(config, tensors):
    """As the released files: experts stacked."""
    n = config["text_config"]["num_experts"]
    out = {name: t for name, t in tensors.items() if ".experts." not in name}
    for layer in range(config["text_config"]["num_hidden_layers"]):
        at = f"model.layers.{layer}.mlp.experts."
        parts = {p: [tensors[f"{at}{e}.{p}_proj.weight"] for e in range(n)] for p in ("gate", "up", "down")}
        out[at + "gate_up_proj"] = torch.stack([torch.cat(pair) for pair in zip(parts["gate"], parts["up"])])
        out[at + "down_proj"] = torch.stack(parts["down"])
    return {re.sub(r"^model\.", "model.language_model.", name): t for name, t in out.items()}


def write_flat(folder, config, seed):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if config["model_type"] == "deepseek":
        tensors = deepseek_tensors(config)
    elif "Grok" in config["architectures"][0]:
        tensors = grok.empty_tensors(config)
    else:
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder),
                                                              attn_implementation="eager")
        model.save_pretrained(folder)
        tensors = load_file(folder / "model.safetensors")
    for left in folder.iterdir():
        left.unlink()
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    rng = np.random.default_rng(seed)
    dtype = getattr(torch, config["torch_dtype"])
    tensors = {n: torch.from_numpy(draw(rng, config, n, tuple(t.shape))).to(dtype) for n, t in sorted(tensors.items())}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)


# --- what transformers answers

def watch_routers(model):
    """Chosen experts of each MoE layer, in the order of the forward pass."""
    chosen = []

    def keep(module, inputs, output):
        whole = [o for o in output if torch.is_tensor(o) and not o.is_floating_point()]
        chosen.append(whole[0] if whole else output[0].topk(module.top_k, dim=-1).indices)  # Llama 4 returns scores

    def keep_logits(module, inputs, output):
        chosen.append(output.topk(top_k, dim=-1).indices)

    for module in model.modules():
        if type(module).__name__.endswith(("TopKRouter", "TopkRouter", "Llama4Router")):
            module.register_forward_hook(keep)
        if type(module).__name__ == "DbrxRouter":
            top_k = model.config.ffn_config.moe_top_k
            module.register_forward_hook(keep_logits)
    return chosen


def watch_keys(model, chosen):
    """Also the keys that sparse attention chooses, for queries that see more than it takes. Behind a ReLU scores of
    exactly 0 are common; which of equal ones topk takes is open, so here it takes the first, as we do."""
    usual = torch.Tensor.topk

    def first(scores, k, dim):
        return torch.return_types.topk(x[..., :k] for x in scores.sort(dim=dim, descending=True, stable=True))

    def begin(module, inputs):
        torch.Tensor.topk = first

    def end(module, inputs, output):
        torch.Tensor.topk = usual
        most = output.shape[-1]
        chosen.append(output[0, most:].sort(-1).values)

    for module in model.modules():
        if type(module).__name__.endswith("Indexer"):
            module.register_forward_pre_hook(begin)
            module.register_forward_hook(end)


def deepseek_tensors(config):
    """The names of DeepSeekMoE's released files, which are those of Qwen2-MoE with other shared experts."""
    model = transformers.AutoModelForCausalLM.from_config(deepseek_as_qwen2(config), attn_implementation="eager")
    folder = MODELS / "deepseek-moe-draft"
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    shutil.rmtree(folder)
    return {n.replace("shared_expert.", "shared_experts."): t for n, t in tensors.items()
            if "shared_expert_gate" not in n and not n.endswith("_proj.bias")}


def deepseek_as_qwen2(config):
    return transformers.Qwen2MoeConfig(**{
        k: v for k, v in config.items() if k not in ("architectures", "model_type", "torch_dtype", "rope_scaling")},
        num_experts=config["n_routed_experts"], mlp_only_layers=list(range(config["first_k_dense_replace"])), qkv_bias=False,
        shared_expert_intermediate_size=config["n_shared_experts"] * config["moe_intermediate_size"])


def reference_deepseek(folder):
    """transformers has no class for DeepSeekMoE: Qwen2-MoE's, with the shared experts' gate taken out."""
    config = json.loads((folder / "config.json").read_text())
    model = transformers.AutoModelForCausalLM.from_config(deepseek_as_qwen2(config), attn_implementation="eager")
    draft = MODELS / "deepseek-moe-draft"
    model.save_pretrained(draft)
    shape = load_file(draft / "model.safetensors")
    own = {n.replace("shared_experts.", "shared_expert."): t.float()
           for n, t in load_file(folder / "model.safetensors").items()}
    save_file({n: own.get(n, torch.zeros_like(t)) for n, t in shape.items()}, draft / "model.safetensors",
              metadata={"format": "pt"})
    model = transformers.AutoModelForCausalLM.from_pretrained(draft, dtype=torch.float32, attn_implementation="eager")
    shutil.rmtree(draft)

    def forward(self, x):
        flat = x.view(-1, x.shape[-1])
        _, weights, chosen = self.gate(flat)
        return (self.experts(flat, chosen, weights) + self.shared_expert(flat)).reshape(x.shape)

    for module in model.modules():
        if type(module).__name__ == "Qwen2MoeSparseMoeBlock":
            module.forward = forward.__get__(module)
    return model.eval()


def load_nested(folder):
    draft = MODELS / "nested-draft"
    draft.mkdir()
    text = text_config(json.loads((folder / "config.json").read_text()))
    (draft / "config.json").write_text(json.dumps(text))
    tensors = load_file(folder / "model.safetensors")
    save_file({n.removeprefix("language_model."): t for n, t in tensors.items() if n.startswith(("language_", "model.", "lm_"))},
              draft / "model.safetensors", metadata={"format": "pt"})
    model = load(draft)
    shutil.rmtree(draft)
    return model


def load(folder):
    if "text_config" in json.loads((folder / "config.json").read_text()):
        return load_nested(folder)
    if json.loads((folder / "config.json").read_text())["model_type"] == "deepseek":
        return reference_deepseek(folder)
    if "Grok" in json.loads((folder / "config.json").read_text())["architectures"][0]:
        return grok.load(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    recur_token_by_token(model)
    return model.eval()


def recur_token_by_token(model):
    """The gated delta rule as it is defined; a prompt is computed in chunks otherwise, with other roundings."""
    module = sys.modules[type(model).__module__]
    if hasattr(module, "torch_recurrent_gated_delta_rule"):
        module.torch_chunk_gated_delta_rule = module.torch_recurrent_gated_delta_rule


def run(model, ids):
    """Logits [positions, vocab], chosen experts by layer, and keys that sparse attention chose."""
    keys = []
    if isinstance(model, grok.Grok):
        chosen = model.chosen
    else:
        chosen = watch_routers(model)
        watch_keys(model, keys)
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0].float()
    return logits, [c.sort(-1).values for c in chosen], keys


def shaken(model, seed):
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in [*model.parameters(), *model.buffers()]:
            if p.is_floating_point() and p.dim() > 0:
                p.mul_(1 + SHAKE * (2 * torch.rand_like(p) - 1))
    return model


def same_choices(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))


def gap(logits):
    top = logits.double().topk(2, dim=-1).values
    return ((top[:, 0] - top[:, 1]) / top[:, 0].abs().clamp_min(1e-9)).min().item()


def n_experts(config):
    keys = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    return next(({**config, **config.get("ffn_config", {})}[k] for k in keys
                 if k in config or k in config.get("ffn_config", {})), 0)


def make(name):
    folder, config = MODELS / name, CONFIGS[name].get("text_config", CONFIGS[name])
    for seed in range(1, 400):
        write_checkpoint(name, seed)
        ids = [int(i) for i in np.random.default_rng(seed + 1000).integers(0, config["vocab_size"], PROMPT_TOKENS)]
        logits, chosen, keys = run(load(folder), ids)
        other, other_chosen, other_keys = run(shaken(load(folder), seed), ids)
        fine = same_choices(chosen, other_chosen) and same_choices(keys, other_keys) and torch.equal(logits.argmax(-1), other.argmax(-1))
        varied = len(set(logits.argmax(-1).tolist()))
        if fine and gap(logits) >= LOGIT_GAP_MIN and varied > PROMPT_TOKENS // 4:
            break
        print(f"{name}: seed {seed} refused: {'' if fine else 'near-ties, '}gap {gap(logits):.1e}, {varied} tokens")
    else:
        sys.exit(f"{name}: no seed without near-ties")
    kept = logits.numpy().astype("<f4")
    (GOLDEN / f"{name}.bin").write_bytes(kept.tobytes())
    counts = [torch.bincount(c.flatten(), minlength=n_experts(config)).tolist() for c in chosen]
    info = {"model": str(folder.relative_to(ROOT)), "ids": ids, "first_position": 0, "shape": list(kept.shape),
            "max_abs": float(np.abs(kept).max()), "expert_tokens": counts, "note": f"seed {seed}",
            "made_with": {"transformers": transformers.__version__, "torch": torch.__version__}}
    (GOLDEN / f"{name}.json").write_text(json.dumps(info) + "\n")
    print(f"{name}: seed {seed}, logits {kept.shape}, largest {info['max_abs']:.3f}, gap {gap(logits):.1e}, "
          f"{(folder / 'model.safetensors').stat().st_size} bytes")


def main():
    if not transformers.__version__.startswith(VERSION + "."):
        sys.exit(f"needs transformers {VERSION}, this is {transformers.__version__}")
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)  # so that sums have one order
    for name in sys.argv[1:] or CONFIGS:
        make(name)


if __name__ == "__main__":
    main()
