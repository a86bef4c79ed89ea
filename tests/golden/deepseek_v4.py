"""deepseek_v4.py: what regen_families.py needs for DeepSeek-V4 alone: ids of experts by token, tensors that stay float32,
and the three forms in which its checkpoints name their tensors."""
import re

import torch
import transformers
from safetensors.torch import save_file

# How a fixture's checkpoint names its tensors; "saved" is what save_pretrained writes.
FORMS = {"deepseek-v4-sliding": "released", "deepseek-v4": "saved", "deepseek-v4-128": "modules"}
PROMPT_TOKENS = {"deepseek-v4-128": 150}  # closes a window of 128
PRECISE = ("hc_", "attn_sink", ".ape", "gate.bias")


def scale_of(name, fan_in):
    if "fn" in name:
        return 1.6 * fan_in ** -0.5
    return 1.0 if "attn_sink" in name else 0.5


def expert_ids(rng, shape, n_experts, repeats):
    """Of each token different experts; or of every third one expert only, as tables have it for ids that pad."""
    rows = [rng.permutation(n_experts)[: shape[1]] for _ in range(shape[0])]
    for row in rows[::3] if repeats else []:
        row[1:] = row[0]
    return torch.tensor([[int(i) for i in row] for row in rows], dtype=torch.int64)


def released(name):
    name = name.removeprefix("model.").replace("embed_tokens.", "embed.").replace(".attn.norm.", ".attn.kv_norm.")
    return re.sub(r"^hc_head\.hc_", "hc_head_", name)


def by_modules(folder, tensors):
    """As transformers names them after loading."""
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    if any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        raise SystemExit(f"{folder}: {info}")
    types = {"fn", "base", "scale", "hc_fn", "hc_base", "hc_scale", "sinks", "position_bias", "e_score_correction_bias"}
    return {n: t.clone() if n.rsplit(".", 1)[1] in types or not t.is_floating_point() else t.to(torch.bfloat16)
            for n, t in model.state_dict().items()}


def finish(folder, config, tensors, rng):
    """tensors as save_pretrained names them."""
    out = {}
    for name, t in tensors.items():
        if name.endswith("tid2eid"):
            t = expert_ids(rng, t.shape, config["n_routed_experts"], folder.name == "deepseek-v4")
        out[name] = t.float() if any(p in name for p in PRECISE) else t
    form = FORMS[folder.name]
    if form == "modules":
        return by_modules(folder, out)
    return {released(n): t for n, t in out.items()} if form == "released" else out
