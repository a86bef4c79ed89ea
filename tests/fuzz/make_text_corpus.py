"""Writes the corpora of fuzz_tokenizer, fuzz_encode and fuzz_template.

    python make_text_corpus.py        # run in tests/fuzz
"""
import base64
import copy
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent
CASES = ROOT.parent / "data" / "text" / "template_cases.jsonl"


def write(subject, name, data):
    folder = ROOT / "corpus" / subject
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def alphabet():
    table, extra = [], 256
    for b in range(256):
        kept = 0x21 <= b <= 0x7E or (b >= 0xA1 and b != 0xAD)
        table.append(chr(b if kept else extra))
        extra += not kept
    return table


def tokenizer():
    vocab = {c: i for i, c in enumerate(alphabet())}
    merges = [["l", "l"], ["H", "e"], ["He", "ll"], ["1", "2"]]
    for a, b in merges:
        vocab[a + b] = len(vocab)
    added = [{"id": len(vocab), "content": "<|im_start|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True},
             {"id": len(vocab) + 1, "content": "<|x|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}]
    split = {"type": "Split", "pattern": {"Regex": "(?i:'s|'t)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
             "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, {"type": "Digits", "individual_digits": True}, level]}, "post_processor": level, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False,
                      "ignore_merges": True, "vocab": vocab, "merges": merges}}


def tokenizers():
    base = tokenizer()
    yield "valid", base
    edits = {
        "big_id": lambda t: t["model"]["vocab"].update({"zz": 1000000000}), "negative_id": lambda t: t["model"]["vocab"].update({"zz": -1}),
        "float_id": lambda t: t["model"]["vocab"].update({"zz": 1.5}), "same_id": lambda t: t["model"]["vocab"].update({"zz": 3}),
        "unknown_merge": lambda t: t["model"]["merges"].append(["zz", "a"]), "merge_makes_nothing": lambda t: t["model"]["merges"].append(["q", "q"]),
        "bad_merge": lambda t: t["model"]["merges"].append("a b c"), "string_merges": lambda t: t["model"].update(merges=["l l", "H e"]),
        "no_byte": lambda t: t["model"]["vocab"].pop("a"), "unknown_key": lambda t: t.update(extra=1), "wordpiece": lambda t: t["model"].update(type="WordPiece"),
        "lstrip": lambda t: t["added_tokens"][0].update(lstrip=True), "added_twice": lambda t: t["added_tokens"].append(dict(t["added_tokens"][0], id=999)),
        "added_same_id": lambda t: t["added_tokens"].append(dict(t["added_tokens"][0], content="<y>")), "pattern_empty": lambda t: set_pattern(t, "a*"),
        "pattern_explodes": lambda t: set_pattern(t, "(?:\\s+)+x|(?:[^x]+)+\\d"), "pattern_nested": lambda t: set_pattern(t, "(" * 200 + "a" + ")" * 200),
        "pattern_class": lambda t: set_pattern(t, "[[a-z]&&[b]]"), "string_pattern": lambda t: t["pre_tokenizer"]["pretokenizers"][0].update(pattern={"String": " "}),
        "level_only": lambda t: t.update(pre_tokenizer={"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}), "no_normalizer": lambda t: t.update(normalizer=None),
        "sequence_normalizer": lambda t: t.update(normalizer={"type": "Sequence", "normalizers": []}),
    }
    for name, edit in edits.items():
        changed = copy.deepcopy(base)
        edit(changed)
        yield name, changed


def marked():
    """A vocabulary of characters, in SentencePiece's style."""
    vocab = {c: i for i, c in enumerate(["<unk>", "<s>"] + ["<0x%02X>" % b for b in range(256)] + ["▁", "H", "e", "l", "o", "▁▁", "ll"])}
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    steps = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    post = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    return {"version": "1.0", "added_tokens": [{"id": 1, "content": "<s>", "single_word": True, "lstrip": True, "rstrip": True, "normalized": False, "special": True}],
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]}, "pre_tokenizer": None, "post_processor": post,
            "decoder": {"type": "Sequence", "decoders": steps},
            "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "vocab": vocab, "merges": [["▁", "▁"], ["l", "l"]]}}


def marked_tokenizers():
    base = marked()
    yield "marked", base
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
    edits = {
        "metaspace": lambda t: t.update(normalizer=None, pre_tokenizer=space, decoder=space), "no_bytes": lambda t: t["model"].update(byte_fallback=False),
        "no_unk": lambda t: t["model"].update(unk_token=None), "neither": lambda t: t["model"].update(unk_token=None, byte_fallback=False),
        "strip_end": lambda t: t["decoder"]["decoders"][3].update(stop=1), "strip_first": lambda t: t["decoder"]["decoders"].insert(0, t["decoder"]["decoders"][3]),
        "replace_grows": lambda t: t["normalizer"].update(normalizers=[{"type": "Replace", "pattern": {"String": "l"}, "content": "llllllllll"}] * 3),
        "replace_away": lambda t: t["normalizer"].update(normalizers=[{"type": "Replace", "pattern": {"String": "l"}, "content": ""}, {"type": "Strip"}, {"type": "NFKD"}]),
        "template_id": lambda t: t["post_processor"]["special_tokens"]["<s>"].update(ids=[9999]), "template_twice": lambda t: t["post_processor"]["single"].append({"Sequence": {"id": "A"}}),
        "template_many": lambda t: t["post_processor"]["special_tokens"]["<s>"].update(ids=[1] * 20), "normalized": lambda t: t["added_tokens"][0].update(normalized=True),
        "first_empty": lambda t: t["decoder"]["decoders"][0].update(pattern={"String": "<unk>"}, content=""),
    }
    for name, edit in edits.items():
        changed = copy.deepcopy(base)
        edit(changed)
        yield "marked_" + name, changed


def ranks():
    tokens = [bytes([b]) for b in range(256)] + [b"ll", b"He", b"Hell", b"  "]
    lines = [base64.b64encode(t) + b" %d" % i for i, t in enumerate(tokens)]
    yield "valid", lines
    for name, line in (("twice", lines[3]), ("big", b"SGk= 99999999999999999999"), ("gap", b"SGk= 300"), ("no_rank", b"SGk="), ("no_base64", b"S?k= 260"), ("long", base64.b64encode(b"a" * 300) + b" 260")):
        yield name, lines + [line]


def set_pattern(t, pattern):
    t["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": pattern}


TEXTS = [b"\x00Hello world", b"\xaa<a><b> <a> aaaa  baaa", b"\x55e\xcc\x81\xcc\xa7\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", b"\xff\xff\xf0\x90\x80\xe2\x82\xc0\x80", b"\x0f" + b"a" * 300,
         b"\xf0" + b"\xcc\x81\xcc\x96" * 100, b"\x00", b"\x81 \t\n\r\n  12345's <a><a><b><"]


def templates():
    cases = [json.loads(line) for line in CASES.read_text().splitlines()]
    seen = []
    for case in cases:
        if case["template"] not in seen:
            seen.append(case["template"])
    statements = [t for t in seen if not t.startswith("|{{")]
    expressions = [t for t in seen if t.startswith("|{{")]
    return statements + ["".join(expressions[i:i + 8]) for i in range(0, len(expressions), 8)]


def main():
    for name, t in tokenizers():
        write("tokenizer", name + ".json", json.dumps(t, ensure_ascii=False, separators=(",", ":")))
    for name, t in marked_tokenizers():
        write("tokenizer", name + ".json", json.dumps(t, ensure_ascii=False, separators=(",", ":")))
    for name, lines in ranks():
        write("tokenizer", "ranks_" + name, b"\0" + b"\n".join(lines) + b"\n")
    for i, text in enumerate(TEXTS):
        write("encode", "text%d" % i, text)
    for i, t in enumerate(templates()):
        if "'x' * 1" not in t:
            write("template", "case%03d" % i, t)
    variables = {"messages": [{"role": "user", "content": "a|b"}, {"role": "tool", "content": [1, 2.5, None, {"k": "v"}]}], "tools": [{"name": "f"}], "l": [1, 2, 3], "s": "Hello", "d": {"k": "v"}}
    write("template", "with_variables", templates()[2].encode() + b"\0" + json.dumps(variables).encode())


if __name__ == "__main__":
    main()
