#!/usr/bin/env python3
"""regen_families.py: a small random checkpoint and golden logits for every model family beyond regen.py's.

Not part of the build; it wants the environment that regen.py describes.

    python tests/golden/regen_families.py                # all, or names: olmoe granitemoe ...

The checkpoint is what transformers itself writes for its class of the family (save_pretrained, in the format of the
released files), with weights drawn from a fixed seed; config.json is written as the released files have it. Logits
and the number of tokens that each expert of each layer got are computed in float32 with eager attention. A seed is only
taken when shaking all weights by 1e-4 changes neither a chosen expert nor a next token, so that a correct implementation
cannot differ.
"""
import json
import pathlib
import shutil
import sys

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
        **SMALL, "architectures": ["GraniteMoeForCausalLM"], "model_type": "granitemoe", "intermediate_size": 16,
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
}


# --- weights

def scale_of(name, shape):
    """How large values are drawn: varied logits and decided routing, whatever the family."""
    fan_in = shape[-1]
    if len(shape) == 3 and TRANSPOSED.search(name):
        fan_in = shape[-2]
    if "embed" in name:
        return 0.6
    if "norm" in name and len(shape) == 1:
        return 0.15
    if "bias" in name or len(shape) == 1:
        return 0.25
    if ".gate.weight" in name or ".router." in name or "shared_expert_gate" in name:
        return 3.0 * fan_in ** -0.5
    return (2.0 if "lm_head" in name else 1.6) * fan_in ** -0.5


import re
TRANSPOSED = re.compile(r"gate_up_proj$|experts\.down_proj$")


def draw(rng, name, shape):
    """From 16 levels, because random bytes would not compress."""
    levels = (np.arange(16) - 7.5) / 7.5 * 1.75
    odds = np.exp(-levels * levels / 2)
    x = rng.choice(levels, size=shape, p=odds / odds.sum()).astype(np.float32)
    norm = "norm" in name and name.endswith("weight") and len(shape) == 1
    return x * np.float32(scale_of(name, shape)) + np.float32(1.0 if norm else 0.0)


def write_checkpoint(name, seed):
    config = CONFIGS[name]
    folder = MODELS / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder),
                                                          attn_implementation="eager")
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    for left in folder.iterdir():
        left.unlink()
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    rng = np.random.default_rng(seed)
    dtype = getattr(torch, config["torch_dtype"])
    tensors = {n: torch.from_numpy(draw(rng, n, tuple(t.shape))).to(dtype) for n, t in sorted(tensors.items())}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)


# --- what transformers answers

def watch_routers(model):
    """Chosen experts of each MoE layer, in the order of the forward pass."""
    chosen = []

    def keep(module, inputs, output):
        whole = [o for o in output if torch.is_tensor(o) and not o.is_floating_point()]
        chosen.append(whole[0])

    for module in model.modules():
        if type(module).__name__.endswith(("TopKRouter", "TopkRouter")):
            module.register_forward_hook(keep)
    return chosen


def load(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return model.eval()


def run(model, ids):
    """Logits [positions, vocab] and chosen experts by layer."""
    chosen = watch_routers(model)
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0].float()
    return logits, [c.sort(-1).values for c in chosen]


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
    return next(config[k] for k in ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
                if k in config)


def make(name):
    folder, config = MODELS / name, CONFIGS[name]
    for seed in range(1, 400):
        write_checkpoint(name, seed)
        ids = [int(i) for i in np.random.default_rng(seed + 1000).integers(0, config["vocab_size"], PROMPT_TOKENS)]
        logits, chosen = run(load(folder), ids)
        other, other_chosen = run(shaken(load(folder), seed), ids)
        fine = same_choices(chosen, other_chosen) and torch.equal(logits.argmax(-1), other.argmax(-1))
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
