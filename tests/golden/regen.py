#!/usr/bin/env python3
"""regen.py: makes the small checkpoints of tests/data/models and the golden logits of tests/golden.

Not part of the build. In a virtual environment outside the tree:

    python3 -m venv ~/golden && . ~/golden/bin/activate
    pip install "torch==2.*" "transformers==5.24.*" "tokenizers" "safetensors" "numpy"
    python tests/golden/regen.py              # all, or names: tiny-qwen3-moe tiny-mixtral awkward seedling

The weights are random with a fixed seed; the same versions on the same machine give the same files. For each model
it writes tests/golden/<name>.json (ids, positions, versions) and <name>.bin: float32 logits, little-endian,
[positions, vocab], as transformers computes them in float32 with eager attention. A seed is only taken when no
position has a near-tie in routing or between its two largest logits, so that a correct implementation cannot differ.
"""
import json
import pathlib
import sys

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODELS = ROOT / "tests" / "data" / "models"
GOLDEN = ROOT / "tests" / "golden"

VERSION = "5.24"
PROMPT_TOKENS = 70       # four KV blocks of 16 and a part of the fifth
SEEDLING_POSITIONS = 48  # its last ones; the vocabulary is large
ROUTER_GAP_MIN = 3e-4    # between the last chosen and the first refused probability, relative
LOGIT_GAP_MIN = 3e-4     # between the two largest logits, relative to the largest

CONFIGS = {
    # Two shards with an index, a dense layer, biases, an untied head, weights not renormalised, head_dim != hidden / heads.
    "tiny-qwen3-moe": {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "attention_bias": True,
        "decoder_sparse_step": 1, "mlp_only_layers": [1], "head_dim": 32, "hidden_act": "silu", "hidden_size": 64,
        "intermediate_size": 96, "max_position_embeddings": 512, "moe_intermediate_size": 48, "norm_topk_prob": False,
        "num_attention_heads": 4, "num_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 3,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_scaling": None, "rope_theta": 10000.0,
        "sliding_window": None, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_sliding_window": False,
        "vocab_size": 320, "bos_token_id": 1, "eos_token_id": 2,
    },
    # A window smaller than the prompt; float32 weights; keys as newer files have them.
    "tiny-mixtral": {
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "dtype": "float32", "hidden_act": "silu",
        "hidden_size": 64, "intermediate_size": 80, "max_position_embeddings": 512, "num_attention_heads": 4,
        "num_experts_per_tok": 2, "num_hidden_layers": 2, "num_key_value_heads": 2, "num_local_experts": 4,
        "rms_norm_eps": 1e-5, "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
        "sliding_window": 24, "tie_word_embeddings": False, "vocab_size": 300, "bos_token_id": 1, "eos_token_id": 2,
    },
    # Sizes that nothing divides well.
    "awkward": {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "attention_bias": False,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "head_dim": 80, "hidden_act": "silu", "hidden_size": 320,
        "intermediate_size": 160, "max_position_embeddings": 2048, "moe_intermediate_size": 160, "norm_topk_prob": True,
        "num_attention_heads": 6, "num_experts": 7, "num_experts_per_tok": 3, "num_hidden_layers": 2,
        "num_key_value_heads": 3, "rms_norm_eps": 1e-6, "rope_scaling": None, "rope_theta": 10000.0,
        "sliding_window": None, "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_sliding_window": False,
        "vocab_size": 1009, "bos_token_id": 1, "eos_token_id": 2,
    },
}
SHARDS = {"tiny-qwen3-moe": 2}


def shapes(c):
    """Yields (name, shape, kind) of every tensor; kind says how its values are drawn."""
    hidden, vocab = c["hidden_size"], c["vocab_size"]
    head = c.get("head_dim") or hidden // c["num_attention_heads"]
    q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    mixtral = c["model_type"] == "mixtral"
    n_experts = c.get("num_experts", c.get("num_local_experts"))
    yield "model.embed_tokens.weight", (vocab, hidden), "embed"
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        yield f"{p}.input_layernorm.weight", (hidden,), "norm"
        for name, n in (("q", q), ("k", kv), ("v", kv)):
            yield f"{p}.self_attn.{name}_proj.weight", (n, hidden), "matrix"
            if c.get("attention_bias"):
                yield f"{p}.self_attn.{name}_proj.bias", (n,), "bias"
        yield f"{p}.self_attn.o_proj.weight", (hidden, q), "matrix"
        if c.get("attention_bias"):
            yield f"{p}.self_attn.o_proj.bias", (hidden,), "bias"
        if not mixtral:
            yield f"{p}.self_attn.q_norm.weight", (head,), "norm"
            yield f"{p}.self_attn.k_norm.weight", (head,), "norm"
        yield f"{p}.post_attention_layernorm.weight", (hidden,), "norm"
        if i in c.get("mlp_only_layers", []):
            inner = c["intermediate_size"]
            yield f"{p}.mlp.gate_proj.weight", (inner, hidden), "matrix"
            yield f"{p}.mlp.up_proj.weight", (inner, hidden), "matrix"
            yield f"{p}.mlp.down_proj.weight", (hidden, inner), "matrix"
            continue
        moe = f"{p}.block_sparse_moe" if mixtral else f"{p}.mlp"
        inner = c["intermediate_size"] if mixtral else c["moe_intermediate_size"]
        gate, up, down = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
        yield f"{moe}.gate.weight", (n_experts, hidden), "router"
        for x in range(n_experts):
            yield f"{moe}.experts.{x}.{gate}.weight", (inner, hidden), "matrix"
            yield f"{moe}.experts.{x}.{up}.weight", (inner, hidden), "matrix"
            yield f"{moe}.experts.{x}.{down}.weight", (hidden, inner), "matrix"
    yield "model.norm.weight", (hidden,), "norm"
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (vocab, hidden), "head"


def draw(rng, shape, kind):
    """Values large enough for varied logits and decided routing, from 16 levels: random bytes would not compress."""
    levels = (np.arange(16) - 7.5) / 7.5 * 1.75
    odds = np.exp(-levels * levels / 2)
    x = rng.choice(levels, size=shape, p=odds / odds.sum()).astype(np.float32)
    scale = {"embed": 0.6, "norm": 0.15, "bias": 0.25, "router": 3.0 * shape[-1] ** -0.5, "head": 2.0 * shape[-1] ** -0.5,
             "matrix": 1.6 * shape[-1] ** -0.5}[kind]
    return x * np.float32(scale) + np.float32(1.0 if kind == "norm" else 0.0)


def save_shard(tensors, path):
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)


def write_checkpoint(name, seed):
    config = CONFIGS[name]
    folder = MODELS / name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.safetensors*"):
        old.unlink()
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    rng = np.random.default_rng(seed)
    dtype = getattr(torch, config.get("torch_dtype", config.get("dtype")))
    tensors = {n: torch.from_numpy(draw(rng, shape, kind)).to(dtype) for n, shape, kind in shapes(config)}
    n_shards = SHARDS.get(name, 1)
    if n_shards == 1:
        save_shard(tensors, folder / "model.safetensors")
        return
    weight_map = {n: f"model-{i * n_shards // len(tensors) + 1:05d}-of-{n_shards:05d}.safetensors"
                  for i, n in enumerate(tensors)}
    for file in sorted(set(weight_map.values())):
        save_shard({n: t for n, t in tensors.items() if weight_map[n] == file}, folder / file)
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def relative_gap(values, k):
    """The smallest relative distance between the k-th and the next largest value over all rows."""
    top = torch.topk(values.double(), k + 1, dim=-1).values
    return ((top[..., k - 1] - top[..., k]).abs() / top[..., 0].abs().clamp_min(1e-9)).min().item()


def run(folder, ids):
    """Logits [positions, vocab] and the smallest routing gap."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    probabilities = []
    for name, module in model.named_modules():
        if name.endswith(".gate"):
            module.register_forward_hook(lambda m, i, o: probabilities.append(torch.softmax(o[0].float(), -1)))
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0].float()
    gap = min(relative_gap(p.reshape(-1, p.shape[-1]), model.config.num_experts_per_tok) for p in probabilities)
    return logits, gap


def write_golden(name, folder, ids, first, note):
    logits, gap = run(folder, ids)
    kept = logits[first:].contiguous().numpy().astype("<f4")
    (GOLDEN / f"{name}.bin").write_bytes(kept.tobytes())
    info = {"model": str(folder.relative_to(ROOT)), "ids": ids, "first_position": first, "shape": list(kept.shape),
            "max_abs": float(np.abs(kept).max()), "routing_gap": gap, "note": note,
            "made_with": {"transformers": transformers.__version__, "torch": torch.__version__}}
    (GOLDEN / f"{name}.json").write_text(json.dumps(info) + "\n")
    print(f"{name}: logits {kept.shape}, largest {info['max_abs']:.3f}, routing gap {gap:.2e}")


def make_random(name):
    for seed in range(1, 200):
        write_checkpoint(name, seed)
        ids = [int(i) for i in np.random.default_rng(seed + 1000).integers(0, CONFIGS[name]["vocab_size"], PROMPT_TOKENS)]
        logits, gap = run(MODELS / name, ids)
        logit_gap = relative_gap(logits, 1)
        varied = len(set(logits.argmax(-1).tolist()))
        if gap >= ROUTER_GAP_MIN and logit_gap >= LOGIT_GAP_MIN and varied > PROMPT_TOKENS // 3:
            write_golden(name, MODELS / name, ids, 0, f"seed {seed}")
            return
        print(f"{name}: seed {seed} refused: routing {gap:.1e}, logits {logit_gap:.1e}, {varied} different tokens")
    sys.exit(f"{name}: no seed without near-ties")


def make_seedling():
    folder = ROOT / "models" / "seedling"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    turns = [("user", "What is the capital of Kenya?"), ("assistant", "The capital of Kenya is Nairobi."),
             ("user", "What is expert prefetch?")]
    text = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns) + "<|im_start|>assistant\n"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    write_golden("seedling", folder, ids, max(0, len(ids) - SEEDLING_POSITIONS), text)


def main():
    if not transformers.__version__.startswith(VERSION + "."):
        sys.exit(f"needs transformers {VERSION}, this is {transformers.__version__}")
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)  # so that sums have one order
    for name in sys.argv[1:] or [*CONFIGS, "seedling"]:
        if name == "seedling":
            make_seedling()
        else:
            make_random(name)


if __name__ == "__main__":
    main()
