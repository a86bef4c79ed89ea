"""Makes tests/data/tokenizers: a small tokenizer of each kind that the served families have, and digests of what Hugging Face (for
tiktoken.model and tokenizer.tok.json: tiktoken) makes of ten thousand lines.

    python make_tokenizer_kinds.py train                     # tokenizer.json and tokenizer_config.json of each kind
    python make_tokenizer_kinds.py digest PROGRAM FOLDER...  # digests.bin in each folder; PROGRAM is unit_text_tokenizer_kinds

digest also takes folders of real models; TOKENIZER_FOLDERS then runs the test on them. Needs the packages tokenizers and tiktoken.
The small tokenizers are trained on this project's own documents. Their components are those of the released models, by name and value.
"""
import base64
import json
import pathlib
import struct
import subprocess
import sys

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[3]
OUT = ROOT / "tests/data/tokenizers"
N_RANDOM = 2000
MASK = (1 << 64) - 1
TEXTS = """naïve café Ångström straße ñandú Ελλάδα καλημέρα Привет мир שלום עולם مرحبا بالعالم नमस्ते दुनिया สวัสดีชาวโลก こんにちは カタカナ 漢字
一只小熊在森林里找到了钥匙 안녕하세요 세계 ქართული հայերեն don't we're I'll it's they've 123 456 7890 3.14 😀 👍 foo_bar fooBar HTTPServer"""

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL
QWEN_MARKS = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + TAIL
CL100K = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + CONTRACTIONS + r"?|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*" + CONTRACTIONS +
         r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL)
DEEPSEEK = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|""" + TAIL
KIMI = "|".join([r"[\p{Han}]+",
                 r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+" + CONTRACTIONS + "?",
                 r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*" + CONTRACTIONS + "?",
                 r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", TAIL])


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def level(regex=False, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def pre(*parts):
    return sequence("pretokenizers", *parts) if len(parts) > 1 else parts[0]


def added(content, special=True, **flags):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": not special, "special": special, **flags}


def template(before=(), after=()):
    def part(token):
        return {"SpecialToken": {"id": token, "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [*map(part, before), {"Sequence": {"id": "A", "type_id": 0}}, *map(part, after)], "pair": [],
            "special_tokens": {t: {"id": t, "ids": [t], "tokens": [t]} for t in (*before, *after)}}


SP_DECODER = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
SP_NORMALIZER = sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
SP_ADDED = [added("<unk>"), added("<s>"), added("</s>")]
NFC = {"type": "NFC"}
KINDS = {
    "qwen": dict(normalizer=NFC, pre_tokenizer=pre(split(QWEN), level()), added=[added("<|endoftext|>"), added("<|im_start|>"), added("<|im_end|>"),
                 added("<think>", False, normalized=False), added("</think>", False, normalized=False)], config={"add_bos_token": False, "add_prefix_space": False}),
    "qwen-marks": dict(normalizer=NFC, pre_tokenizer=pre(split(QWEN_MARKS), level()), added=[added("<|endoftext|>"), added("<|im_start|>"), added("<|im_end|>")]),
    "llama3": dict(pre_tokenizer=pre(split(CL100K), level()), ignore_merges=True,
                   post=sequence("processors", level(True, True), template(["<|begin_of_text|>"])),
                   added=[added("<|begin_of_text|>"), added("<|eot_id|>"), added("<|start_header_id|>"), added("<|end_header_id|>")]),
    "deepseek-v3": dict(normalizer=sequence("normalizers"), pre_tokenizer=pre(split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK), level()), post=level(True, True),
                        added=[added("<｜begin▁of▁sentence｜>"), added("<｜end▁of▁sentence｜>"), added("<｜User｜>", False, normalized=False), added("<｜Assistant｜>", False, normalized=False)],
                        config={"add_bos_token": True, "add_eos_token": False, "bos_token": {"__type": "AddedToken", "content": "<｜begin▁of▁sentence｜>"},
                                "eos_token": {"__type": "AddedToken", "content": "<｜end▁of▁sentence｜>"}}),
    "deepseek-moe": dict(pre_tokenizer=pre(split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"), {"type": "Digits", "individual_digits": True}, level()),
                         added=[added("<｜begin▁of▁sentence｜>"), added("<｜end▁of▁sentence｜>"), added("ø", False)], post=template(["<｜begin▁of▁sentence｜>"])),
    "o200k": dict(pre_tokenizer=pre(split(O200K), level()), ignore_merges=True, added=[added("<|start|>"), added("<|message|>"), added("<|channel|>"), added("<|end|>"), added("<|return|>")]),
    "glm4": dict(pre_tokenizer=pre(split(CL100K), level()), ignore_merges=True, post=sequence("processors", level(), template(["[gMASK]", "<sop>"])),
                 added=[added("<|endoftext|>"), added("[gMASK]"), added("<sop>"), added("<|user|>"), added("<|assistant|>"), added("<think>", False, normalized=False)]),
    "neox": dict(normalizer=NFC, pre_tokenizer=level(True), added=[added("<|endoftext|>"), added("  ", False), added("    ", False), added("\t\t", False)], post=template((), ["<|endoftext|>"])),
    "starcoder": dict(pre_tokenizer=pre({"type": "Digits", "individual_digits": True}, level(True)), added=[added("<|end_of_text|>"), added("<fim_prefix>"), added("<|start_of_role|>")]),
    "dbrx": dict(pre_tokenizer=pre(split(CL100K, "Removed", True), level()), added=[added("<|endoftext|>"), added("<|im_start|>"), added("<|im_end|>")]),
    "mixtral": dict(normalizer=SP_NORMALIZER, decoder=sequence("decoders", *SP_DECODER, STRIP), added=SP_ADDED, post=template(["<s>"]),
                    config={"add_bos_token": True, "add_eos_token": False, "add_prefix_space": None, "bos_token": "<s>", "eos_token": "</s>", "legacy": True}),
    "phi": dict(normalizer=SP_NORMALIZER, decoder=sequence("decoders", *SP_DECODER, STRIP),
                added=[added("<unk>"), added("<s>"), added("</s>", False, rstrip=True, normalized=False), added("<|endoftext|>"), added("<|assistant|>", rstrip=True),
                       added("<|user|>", rstrip=True), added("<|end|>", rstrip=True)], config={"add_bos_token": False, "add_eos_token": False, "bos_token": "<s>", "eos_token": "<|endoftext|>"}),
    "metaspace-first": dict(pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}, decoder=sequence("decoders", *SP_DECODER, STRIP),
                            added=SP_ADDED + [added("[INST]"), added("[/INST]")], post=template(["<s>"])),
    "metaspace-always": dict(pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}, byte_fallback=False,
                             decoder={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}, added=SP_ADDED),
    "ernie": dict(normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, decoder=sequence("decoders", *SP_DECODER), added=SP_ADDED + [added("<|im_start|>"), added("\n", False)]),
    # Not one model's: what the others leave out.
    "odd-level": dict(normalizer=sequence("normalizers", {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "NFKC"}, {"type": "Replace", "pattern": {"String": "fox"}, "content": "ox"}),
                      pre_tokenizer=level(True, True), added=[added("<both>", lstrip=True, rstrip=True), added("quick", False, single_word=True), added("é", False, lstrip=True), added("<right>", rstrip=True),
                                                              added("<word>", False, normalized=False, single_word=True), added("  ", False, normalized=False)]),
    "odd-splits": dict(normalizer={"type": "NFD"}, pre_tokenizer=pre(split(r"\p{Lu}", "MergedWithNext"), split(" ", "MergedWithPrevious"), split(r"\d", "Contiguous"), {"type": "Punctuation", "behavior": "Isolated"}, level()),
                       added=[added("<|end|>")]),
    "odd-unknown": dict(normalizer={"type": "NFKD"}, pre_tokenizer=split(" ", "MergedWithPrevious"), decoder=sequence("decoders", {"type": "Fuse"}), byte_fallback=False, fuse_unk=False, added=SP_ADDED),
}


def corpus():
    for path in sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md", *ROOT.glob("common/base/*.c")]):
        yield from path.read_text().splitlines()
    yield from TEXTS.splitlines() * 8


def trained(kind):
    """vocab and merges, with the kind's own components around."""
    byte_level = "ByteLevel" in json.dumps(kind.get("pre_tokenizer"))
    t = Tokenizer(models.BPE(unk_token=None if byte_level else "<unk>"))
    names = [] if byte_level else ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256) if kind.get("byte_fallback", True)]
    if byte_level:
        parts = kind["pre_tokenizer"].get("pretokenizers", [kind["pre_tokenizer"]])
        t.pre_tokenizer = pre_tokenizers.Sequence([component(p) for p in parts])
    else:
        t.pre_tokenizer = pre_tokenizers.Metaspace(split=True)
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=760 if byte_level else 800, show_progress=False, special_tokens=names,
                                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if byte_level else []))
    model = json.loads(t.to_str())["model"]
    vocab, merges = model["vocab"], [list(m) for m in model["merges"]]
    if not byte_level:
        for n in (1, 2, 4):
            vocab["▁" * 2 * n] = len(vocab)
            merges.append(["▁" * n, "▁" * n])
    return vocab, merges


def component(value):
    """A pre-tokenizer of its JSON."""
    t = Tokenizer(models.BPE())
    raw = json.loads(t.to_str())
    raw["pre_tokenizer"] = value
    return Tokenizer.from_str(json.dumps(raw)).pre_tokenizer


def make(name, kind):
    vocab, merges = trained(kind)
    byte_level = "ByteLevel" in json.dumps(kind.get("pre_tokenizer"))
    ids = dict(vocab)
    tokens = [{"id": ids.setdefault(a["content"], len(ids)), **a} for a in kind["added"]]
    post = json.loads(json.dumps(kind.get("post")))
    for part in (post or {}).get("processors", [post] if post else []):
        for token in part.get("special_tokens", {}).values():
            token["ids"] = [ids[token["id"]]]
    model = {"type": "BPE", "dropout": None, "unk_token": None if byte_level else "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": not byte_level and kind.get("fuse_unk", True), "byte_fallback": not byte_level and kind.get("byte_fallback", True),
             "ignore_merges": kind.get("ignore_merges", False), "vocab": vocab, "merges": merges}
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "tokenizer.json", {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": kind.get("normalizer"),
                                      "pre_tokenizer": kind.get("pre_tokenizer"), "post_processor": post, "decoder": kind.get("decoder", level() if byte_level else None), "model": model})
    if "config" in kind:
        write(folder / "tokenizer_config.json", kind["config"])


def make_kimi():
    vocab, merges = trained({"pre_tokenizer": pre(split(O200K), level())})
    table = {c: b for b, c in zip(sorted(range(256), key=lambda b: (not kept(b), b)), map(chr, [b for b in range(256) if kept(b)] + list(range(256, 324))))}
    folder = OUT / "kimi"
    folder.mkdir(parents=True, exist_ok=True)
    ranked = sorted(vocab, key=vocab.get)
    lines = [b"%s %d\n" % (base64.b64encode(bytes(table[c] for c in token)), rank) for rank, token in enumerate(ranked)]
    (folder / "tiktoken.model").write_bytes(b"".join(lines))
    names = {0: "[BOS]", 1: "[EOS]", 2: "<|im_end|>", 3: "<|im_user|>", 4: "<|im_assistant|>", 11: "<|tool_calls_section_begin|>", 17: "<|im_middle|>", 22: "<think>", 255: "[PAD]"}
    write(folder / "tokenizer_config.json", {"added_tokens_decoder": {str(len(ranked) + i): added(n, special=i != 11, normalized=False) for i, n in names.items()}, "bos_token": "[BOS]",
                                             "eos_token": "[EOS]", "tokenizer_class": "TikTokenTokenizer"})


def make_grok():
    """Special tokens in front, as in the released file, and behind; ids are ranks."""
    vocab, merges = trained({"pre_tokenizer": pre(split(QWEN), level())})
    table = {c: b for b, c in zip(sorted(range(256), key=lambda b: (not kept(b), b)), map(chr, [b for b in range(256) if kept(b)] + list(range(256, 324))))}
    folder = OUT / "grok"
    folder.mkdir(parents=True, exist_ok=True)
    front, behind = ["<|pad|>", "<|separator|>", "<|eos|>", "<|reserved_3|>"], ["<|control1|>", "<|control2|>"]
    ranked = sorted(vocab, key=vocab.get)
    regular = [{"bytes": [table[c] for c in token], "token": len(front) + i} for i, token in enumerate(ranked)]
    ids = [*range(len(front)), *range(len(front) + len(ranked), len(front) + len(ranked) + len(behind))]
    special = [{"bytes": list(name.encode()), "token": i} for name, i in zip(front + behind, ids)]
    write(folder / "tokenizer.tok.json", {"regular_tokens": regular, "special_tokens": special, "word_split": "V1", "vocab_size": ids[-1] + 1})


def kept(b):
    return 0x21 <= b <= 0x7E or (b >= 0xA1 and b != 0xAD)


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


# --- digests

def fnv(data, digest):
    for b in data:
        digest = (digest ^ b) * 0x100000001B3 & MASK
    return digest


def ids_bytes(ids):
    return struct.pack("<%dI" % (len(ids) + 1), *ids, 0xFFFFFFFF)


def is_blank(content):
    return not content.strip(" \t\r\n\v\f▁")


class HuggingFace:
    def __init__(self, folder):
        raw = json.loads((folder / "tokenizer.json").read_text())
        config = folder / "tokenizer_config.json"
        config = json.loads(config.read_text()) if config.exists() else {}
        self.whole = Tokenizer.from_str(json.dumps(raw))
        if "add_bos_token" in config or "add_eos_token" in config:
            raw["post_processor"] = self.template(config)
        self.around = Tokenizer.from_str(json.dumps(raw))
        # A user's text: added tokens are not looked for, but for white space, and no merge makes one.
        marks = {t["content"] for t in raw["added_tokens"] if not is_blank(t["content"])}
        raw["added_tokens"] = [t for t in raw["added_tokens"] if is_blank(t["content"])]
        self.blanks = {t["content"]: t["id"] for t in raw["added_tokens"]}  # alone they may get other ids
        pairs = [m if isinstance(m, list) else m.split(" ") for m in raw["model"]["merges"]]
        raw["model"]["merges"] = [m for m in pairs if "".join(m) not in marks]
        dropped = len(pairs) - len(raw["model"]["merges"])
        if dropped:
            print("%s: %d merges make added tokens" % (folder, dropped))
        raw["post_processor"] = None
        self.plain = Tokenizer.from_str(json.dumps(raw))
        self.n_ids = max([*raw["model"]["vocab"].values(), *(t["id"] for t in json.loads((folder / "tokenizer.json").read_text())["added_tokens"])]) + 1

    def template(self, config):
        def token(key):
            value = config.get(key)
            return value["content"] if isinstance(value, dict) else value
        before, after = ([token(t)] if config.get(f) and token(t) else [] for f, t in (("add_bos_token", "bos_token"), ("add_eos_token", "eos_token")))
        made = template(before, after)
        for t in made["special_tokens"].values():
            t["ids"] = [self.whole.token_to_id(t["id"])]
        return made

    def user(self, text):
        made = self.plain.encode(text, add_special_tokens=False)
        return [self.blanks.get(token, i) for i, token in zip(made.ids, made.tokens)]

    def trusted(self, text, around):
        return (self.around if around else self.whole).encode(text, add_special_tokens=around).ids

    def decode(self, ids, skip):
        return self.whole.decode(ids, skip_special_tokens=skip)


class TikToken:
    def __init__(self, folder):
        import tiktoken
        ranks = {base64.b64decode(a): int(b) for a, b in (line.split() for line in (folder / "tiktoken.model").read_bytes().splitlines() if line)}
        names = {int(i): t for i, t in json.loads((folder / "tokenizer_config.json").read_text())["added_tokens_decoder"].items()}
        self.n_ids = len(ranks) + 256
        special = {names[i]["content"] if i in names else "<|reserved_token_%d|>" % i: i for i in range(len(ranks), self.n_ids)}
        self.skipped = {i for i, t in names.items() if t["special"]}
        self.encoding = tiktoken.Encoding("kimi", pat_str=KIMI, mergeable_ranks=ranks, special_tokens=special)

    def user(self, text):
        return self.encoding.encode(text, disallowed_special=())

    def trusted(self, text, around):
        return self.encoding.encode(text, allowed_special="all")

    def decode(self, ids, skip):
        return self.encoding.decode_bytes([i for i in ids if not (skip and i in self.skipped)]).decode("utf-8", errors="replace")


class TokJson(TikToken):
    def __init__(self, folder):
        import tiktoken
        raw = json.loads((folder / "tokenizer.tok.json").read_text())
        ranks = {bytes(t["bytes"]): t["token"] for t in raw["regular_tokens"]}
        special = {bytes(t["bytes"]).decode(): t["token"] for t in raw["special_tokens"]}
        self.n_ids, self.skipped = raw["vocab_size"], set(special.values())
        self.encoding = tiktoken.Encoding("grok", pat_str=QWEN, mergeable_ranks=ranks, special_tokens=special)


def lines(program, folder):
    data, at = subprocess.run([program, "--lines", folder], capture_output=True, check=True).stdout, 0
    while at < len(data):
        n = struct.unpack_from("<I", data, at)[0]
        yield data[at + 4:at + 4 + n].decode("utf-8", errors="replace")
        at += 4 + n


def random_lists(n_ids):
    state = 777

    def below(n):
        nonlocal state
        state ^= state << 13 & MASK
        state ^= state >> 7
        state ^= state << 17 & MASK
        return (state >> 33) % n
    for _ in range(N_RANDOM):
        yield [below(n_ids) for _ in range(1 + below(12))]


def digest(program, folder):
    folder = pathlib.Path(folder)
    kinds = {"tiktoken.model": TikToken, "tokenizer.tok.json": TokJson, "tokenizer.json": HuggingFace}
    reference = next(kind for name, kind in kinds.items() if (folder / name).exists())(folder)

    def decoded(ids, digest):
        for skip in (False, True):
            digest = fnv(reference.decode(ids, skip).encode() + b"\xff", digest)
        return digest
    out = []
    for i, text in enumerate(lines(program, folder)):
        found = reference.trusted(text, i % 50 == 0)
        out.append(decoded(found, fnv(ids_bytes(reference.user(text)) + ids_bytes(found), 0xCBF29CE484222325)))
    for ids in random_lists(reference.n_ids):
        out.append(decoded(ids, 0xCBF29CE484222325))
    (folder / "digests.bin").write_bytes(struct.pack("<%dI" % len(out), *(d & 0xFFFFFFFF for d in out)))
    print(folder, len(out))


if __name__ == "__main__":
    if sys.argv[1] == "train":
        for name, kind in KINDS.items():
            make(name, kind)
        make_kimi()
        make_grok()
    else:
        for folder in sys.argv[3:]:
            digest(sys.argv[2], folder)
