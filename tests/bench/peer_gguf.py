"""peer_gguf.py: writes the weights of a Qwen3-MoE folder (one safetensors file of BF16, such as make_model.py's or models/seedling) as GGUF, for
peer.py: the same numbers, in the type that is named (f16 keeps all of bf16 but what is below 6e-5; q8_0 rounds).

    python tests/bench/peer_gguf.py FOLDER FILE.gguf bf16|f16|f32|q8_0

Needs the packages numpy and gguf. Text is no matter here (prompts are ids), so the merges of the tokenizer are left as they are found.
"""
import json
import pathlib
import struct
import sys

import gguf
import numpy as np

TYPES = {"bf16": gguf.GGMLQuantizationType.BF16, "f16": gguf.GGMLQuantizationType.F16, "f32": gguf.GGMLQuantizationType.F32,
         "q8_0": gguf.GGMLQuantizationType.Q8_0}
FILES = {"bf16": gguf.LlamaFileType.MOSTLY_BF16, "f16": gguf.LlamaFileType.MOSTLY_F16, "f32": gguf.LlamaFileType.ALL_F32,
         "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}
LAYER = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm", "mlp.gate": "ffn_gate_inp"}


def read_folder(folder):
    """A function that reads a tensor by name, as float32."""
    path = folder / "model.safetensors"
    with open(path, "rb") as file:
        n = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(n))
    data = np.memmap(path, np.uint8, "r", 8 + n)

    def read(name):
        tensor = header[name]
        begin, end = tensor["data_offsets"]
        if tensor["dtype"] != "BF16":
            raise SystemExit(f"{path}: {name} is {tensor['dtype']}, not BF16")
        return (data[begin:end].view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(tensor["shape"])
    return read


def write_head(out, config):
    out.add_name("bench")
    out.add_block_count(config["num_hidden_layers"])
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_expert_feed_forward_length(config["moe_intermediate_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv(config["num_key_value_heads"])
    out.add_key_length(config["head_dim"])
    out.add_value_length(config["head_dim"])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_rope_freq_base(config["rope_theta"])
    out.add_expert_count(config["num_experts"])
    out.add_expert_used_count(config["num_experts_per_tok"])
    out.add_vocab_size(config["vocab_size"])


def write_tokenizer(out, folder, config):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    texts = {i: text for text, i in tokenizer["model"]["vocab"].items()}
    added = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    texts.update(added)
    merges = tokenizer["model"]["merges"]
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_list([texts.get(i, f"[unused {i}]") for i in range(config["vocab_size"])])
    out.add_token_types([gguf.TokenType.CONTROL if i in added else gguf.TokenType.NORMAL for i in range(config["vocab_size"])])
    out.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    out.add_eos_token_id(config["eos_token_id"])
    out.add_add_bos_token(False)


def tensors(read, config):
    """Their names there, and what they hold; norms and routers are always float32 there."""
    yield "token_embd", read("model.embed_tokens.weight")
    for i in range(config["num_hidden_layers"]):
        for ours, theirs in LAYER.items():
            yield f"blk.{i}.{theirs}", read(f"model.layers.{i}.{ours}.weight")
        for part in ("gate", "up", "down"):
            experts = [read(f"model.layers.{i}.mlp.experts.{e}.{part}_proj.weight") for e in range(config["num_experts"])]
            yield f"blk.{i}.ffn_{part}_exps", np.stack(experts)
    yield "output_norm", read("model.norm.weight")
    if not config["tie_word_embeddings"]:
        yield "output", read("lm_head.weight")


def main(folder, path, kind):
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    out = gguf.GGUFWriter(path, "qwen3moe", use_temp_file=False)
    write_head(out, config)
    write_tokenizer(out, folder, config)
    out.add_file_type(FILES[kind])
    for name, values in tensors(read_folder(folder), config):
        plain = values.ndim == 1 or name.endswith("ffn_gate_inp")
        to = TYPES["f32"] if plain else TYPES[kind]
        out.add_tensor(name + ".weight", gguf.quants.quantize(values, to), raw_dtype=to)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
