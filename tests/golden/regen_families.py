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

import deepseek_v4
import grok
import numpy as np
import torch
import transformers
from family_configs import CONFIGS
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODELS = ROOT / "tests" / "data" / "models"
GOLDEN = ROOT / "tests" / "golden"

VERSION = "5.24"
PROMPT_TOKENS = 70  # four KV blocks of 16 and a part of the fifth
SHAKE = 1e-4
LOGIT_GAP_MIN = 3e-4

# --- weights

def scale_of(name, shape):
    """How large values are drawn: varied logits and decided routing, whatever the family."""
    fan_in = shape[-1]
    if len(shape) == 3 and TRANSPOSED.search(name):
        fan_in = shape[-2]
    if name.endswith("mlp.w2"):
        fan_in = 32
    if "hc_" in name or "attn_sink" in name or name.endswith(".ape"):
        return deepseek_v4.scale_of(name, fan_in)
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
    if name.endswith(("hc_attn_scale", "hc_ffn_scale", "hc_scale")):
        return 1.0
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
    if config["model_type"] == "deepseek_v4":
        tensors = deepseek_v4.finish(folder, config, tensors, rng)
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
        if type(module).__name__.endswith(("TopKRouter", "TopkRouter", "Llama4Router", "HashRouter")):
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
    n_tokens = deepseek_v4.PROMPT_TOKENS.get(name, PROMPT_TOKENS)
    for seed in range(1, 400):
        write_checkpoint(name, seed)
        ids = [int(i) for i in np.random.default_rng(seed + 1000).integers(0, config["vocab_size"], n_tokens)]
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
