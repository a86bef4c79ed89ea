"""make_model.py: writes a Qwen3-MoE checkpoint of drawn weights, large enough that its experts do not fit in caches: for measuring, not for
reading what it says. The same folder every time.

    python tests/bench/make_model.py FOLDER [LAYERS]

Needs numpy. With 8 layers (the default) it has 0.9 G parameters, 1.75 GB in BF16, of which 0.18 G compute a token. Its tokenizer is the embedded
model's, with words that no text becomes behind, so that every id that is sampled has a text.
"""
import json
import pathlib
import shutil
import struct
import sys

import numpy as np

SEEDLING = pathlib.Path(__file__).resolve().parents[2] / "models" / "seedling"
HIDDEN, INNER, EXPERTS, TOP = 1024, 512, 64, 8
HEADS, KV_HEADS, HEAD_DIM = 16, 4, 128
VOCAB = 32000


def config(layers):
    known = json.loads((SEEDLING / "config.json").read_text())
    return {**known, "hidden_size": HIDDEN, "moe_intermediate_size": INNER, "intermediate_size": 4 * INNER, "num_experts": EXPERTS,
            "num_experts_per_tok": TOP, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
            "num_hidden_layers": layers, "max_window_layers": layers, "vocab_size": VOCAB, "tie_word_embeddings": False,
            "max_position_embeddings": 4096, "rope_theta": 1000000.0}


def shapes(layers):
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for i in range(layers):
        name = f"model.layers.{i}."
        for part, shape in (("q_proj", (HEADS * HEAD_DIM, HIDDEN)), ("k_proj", (KV_HEADS * HEAD_DIM, HIDDEN)),
                            ("v_proj", (KV_HEADS * HEAD_DIM, HIDDEN)), ("o_proj", (HIDDEN, HEADS * HEAD_DIM)),
                            ("q_norm", (HEAD_DIM,)), ("k_norm", (HEAD_DIM,))):
            yield f"{name}self_attn.{part}.weight", shape
        yield f"{name}input_layernorm.weight", (HIDDEN,)
        yield f"{name}post_attention_layernorm.weight", (HIDDEN,)
        yield f"{name}mlp.gate.weight", (EXPERTS, HIDDEN)
        for expert in range(EXPERTS):
            for part, shape in (("gate_proj", (INNER, HIDDEN)), ("up_proj", (INNER, HIDDEN)), ("down_proj", (HIDDEN, INNER))):
                yield f"{name}mlp.experts.{expert}.{part}.weight", shape
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCAB, HIDDEN)


def bfloat16(values):
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()


def weights(name, shape, draw):
    """Of a spread that keeps a row's size from layer to layer."""
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    values = draw.standard_normal(shape, np.float32) * np.float32(shape[1] ** -0.5)
    if name == "lm_head.weight":
        values[:256] = 0  # bytes alone are no text that a stream could show at once
    return values


def write_weights(path, layers):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes(layers):
        end = at + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    draw = np.random.default_rng(1)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes(layers):
            file.write(bfloat16(weights(name, shape, draw)))


def write_tokenizer(folder):
    tokenizer = json.loads((SEEDLING / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    first = 1 + max([*vocab.values(), *(token["id"] for token in tokenizer["added_tokens"])])
    vocab.update({f"\u0120w{i}": i for i in range(first, VOCAB)})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    for name in ("tokenizer_config.json", "generation_config.json"):
        shutil.copyfile(SEEDLING / name, folder / name)


def main(folder, layers=8):
    folder, layers = pathlib.Path(folder), int(layers)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(layers), indent=2))
    write_tokenizer(folder)
    write_weights(folder / "model.safetensors", layers)


if __name__ == "__main__":
    main(*sys.argv[1:])
