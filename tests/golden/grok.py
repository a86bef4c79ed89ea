"""grok.py: Grok-1 and Grok-2 in float32, as a reference where transformers has no class.

Written from what their own programs compute: xAI's model.py for Grok-1 (jax.nn.gelu is the form with tanh; a softmax over
all experts, whose two largest weights are taken as they are), and for Grok-2 the SGLang model that its release names as its
server: soft caps of router, scores and logits, (experts + dense network) / sqrt(2), scores of far queries multiplied behind
the soft cap, rope_type "original" being a plain rotary embedding. Tensor names are those of hpcai-tech/grok-1 and
xai-org/grok-2.
"""
import json
import math

import torch
from safetensors.torch import load_file
from torch.nn.functional import gelu

NAMES = {
    True: {"norm": "{}.scale", "attn": "attn", "gate": "moe_block.gate.weight", "expert": "moe_block.experts.{}.{}.weight",
           "parts": ("linear", "linear_v", "linear_1")},
    False: {"norm": "{}.weight", "attn": "self_attn", "gate": "block_sparse_moe.gate.weight",
            "expert": "block_sparse_moe.experts.{}.{}.weight", "parts": ("w1", "w3", "w2")},
}


def is_first(config):
    return config["architectures"][0] == "Grok1ModelForCausalLM"


def n_experts(config):
    return config["num_experts" if is_first(config) else "num_local_experts"]


def head_dim(config):
    return config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])


def empty_tensors(config):
    """A tensor of each name and shape."""
    names, hidden, dim = NAMES[is_first(config)], config["hidden_size"], head_dim(config)
    inner = config.get("moe_intermediate_size", config["intermediate_size"])
    heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"], "v": config["num_key_value_heads"]}
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden), names["norm"].format("model.norm"): (hidden,)}
    if not is_first(config):
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        for norm in ("pre_attn_norm", "post_attn_norm", "pre_moe_norm", "post_moe_norm"):
            shapes[layer + names["norm"].format(norm)] = (hidden,)
        for part, n in heads.items():
            shapes[f"{layer}{names['attn']}.{part}_proj.weight"] = (n * dim, hidden)
        shapes[f"{layer}{names['attn']}.o_proj.weight"] = (hidden, heads["q"] * dim)
        shapes[layer + names["gate"]] = (n_experts(config), hidden)
        for e in range(n_experts(config)):
            for part, shape in zip(names["parts"], ((inner, hidden), (inner, hidden), (hidden, inner))):
                shapes[layer + names["expert"].format(e, part)] = shape
        if config.get("residual_moe"):
            wide = config["intermediate_size"]
            for part, shape in (("gate", (wide, hidden)), ("up", (wide, hidden)), ("down", (hidden, wide))):
                shapes[f"{layer}mlp.{part}_proj.weight"] = shape
    return {n: torch.zeros(s) for n, s in shapes.items()}


def capped(x, cap):
    return cap * torch.tanh(x / cap) if cap else x


class Grok(torch.nn.Module):
    def __init__(self, config, tensors):
        super().__init__()
        self.config, self.names, self.chosen = config, NAMES[is_first(config)], []
        self.weights = torch.nn.ParameterDict({n.replace(".", "/"): torch.nn.Parameter(t) for n, t in tensors.items()})

    def w(self, name):
        return self.weights[name.replace(".", "/")]

    def norm(self, x, name):
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"])
        return y * self.w(self.names["norm"].format(name))

    def rotate(self, x):
        """x: [heads, positions, dim], pairs are halves."""
        dim = x.shape[-1]
        theta = float(int(self.config.get("rope_theta", 10000)))
        inv_freq = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
        angle = torch.outer(torch.arange(x.shape[1], dtype=torch.float32), inv_freq)
        cos, sin, a, b = angle.cos(), angle.sin(), x[..., :dim // 2], x[..., dim // 2:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def attention(self, x, layer):
        c, n, dim = self.config, x.shape[0], head_dim(self.config)
        q, k, v = (torch.nn.functional.linear(x, self.w(f"{layer}{self.names['attn']}.{p}_proj.weight"))
                   .view(n, -1, dim).transpose(0, 1) for p in "qkv")
        q, k = self.rotate(q), self.rotate(k)
        group = q.shape[0] // k.shape[0]
        k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
        scores = q @ k.transpose(1, 2) * c.get("attn_output_multiplier", dim ** -0.5)
        scores = capped(scores, c["max_attn_value"] if is_first(c) else c["attn_logit_softcapping"])
        length = c.get("attn_temperature_len", -1)
        if length > 0:
            at = torch.arange(n, dtype=torch.float32)
            scores = scores * torch.where(at > length, at.clamp_min(1).log2() / math.log2(length), 1.0)[:, None]
        scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
        out = (scores.softmax(-1) @ v).transpose(0, 1).reshape(n, -1)
        return torch.nn.functional.linear(out, self.w(f"{layer}{self.names['attn']}.o_proj.weight"))

    def network(self, x, gate, up, down):
        linear = torch.nn.functional.linear
        return linear(gelu(linear(x, self.w(gate)), approximate="tanh") * linear(x, self.w(up)), self.w(down))

    def experts(self, x, layer):
        c = self.config
        logits = capped(torch.nn.functional.linear(x, self.w(layer + self.names["gate"])), c.get("router_logit_softcapping"))
        weights, chosen = logits.softmax(-1).topk(c["num_experts_per_tok"], -1)
        self.chosen.append(chosen)
        y = torch.zeros_like(x)
        for e in range(n_experts(c)):
            row, slot = torch.where(chosen == e)
            names = [layer + self.names["expert"].format(e, part) for part in self.names["parts"]]
            y[row] += weights[row, slot, None] * self.network(x[row], *names)
        if not c.get("residual_moe"):
            return y
        dense = self.network(x, *(f"{layer}mlp.{part}_proj.weight" for part in ("gate", "up", "down")))
        return (dense + y) / math.sqrt(2)

    def forward(self, ids, use_cache=False):
        c = self.config
        x = self.w("model.embed_tokens.weight")[ids[0]] * c["embedding_multiplier_scale"]
        for i in range(c["num_hidden_layers"]):
            layer = f"model.layers.{i}."
            x = x + self.norm(self.attention(self.norm(x, layer + "pre_attn_norm"), layer), layer + "post_attn_norm")
            x = x + self.norm(self.experts(self.norm(x, layer + "pre_moe_norm"), layer), layer + "post_moe_norm")
        head = self.w("model.embed_tokens.weight" if is_first(c) else "lm_head.weight")
        logits = torch.nn.functional.linear(self.norm(x, "model.norm"), head) * c["output_multiplier_scale"]
        logits = capped(logits, c.get("final_logit_softcapping"))
        return type("Output", (), {"logits": logits[None]})


def load(folder):
    tensors = {n: t.float() for n, t in load_file(folder / "model.safetensors").items()}
    return Grok(json.loads((folder / "config.json").read_text()), tensors).eval()
