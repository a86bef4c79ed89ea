"""Writes tokenizer_cases.jsonl: texts and the ids that Hugging Face tokenizers give them. One JSON array a line:
[hex of the bytes, ids with added tokens found, ids with added tokens as ordinary text].

    python make_tokenizer_cases.py MODEL_FOLDER [COUNT] > tokenizer_cases.jsonl

Bytes that are not UTF-8 are decoded with errors="replace" first. Needs the tokenizers package.
"""
import json
import random
import sys

from tokenizers import Tokenizer

WORDS = """the quick brown fox jumps over a lazy dog mixture of experts token router weights don't we're I'll THEY'VE it'S he'd
Nairobi is the capital of Kenya. What can you do? 一只小熊 在森林里 找到了 钥匙 专家 并行 张量 模型 今天 天气 很好 。 ， ！ Привет мир как дела
Ελλάδα καλημέρα שלום עולם مرحبا بالعالم नमस्ते दुनिया สวัสดีชาวโลก こんにちは カタカナ 漢字 안녕하세요 세계 ქართული հայերեն ᏣᎳᎩ አማርኛ
naïve café Ångström ñandú straße ǅ ﬁ Ⅷ ½ ² ٣ ४ 𝟘 𝔘 x² e=mc² 3.14 1,000,000 0x1F 1e-9 2026-11-29 --flag /usr/bin foo_bar fooBar FOO
def f(x): return x+1 for(int i=0;i<n;i++){a[i]+=b[i];} #include <stdio.h> SELECT * FROM t; {"a":[1,2,null]} <b>bold</b> &amp; $HOME
:-) ... !!! ??? --- === *** ~~~ ``` \\\\ // // @user #tag 100% €5 £6 ¥7 → ← ∑ ∀ ≤ © ® ™""".split()
EMOJI = "😀 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇰🇪 ❤️ 1️⃣ ☕︎ 🫠 🩷 🫨".split()
GAPS = [" "] * 12 + ["  ", "   ", "\n", "\n\n", " \n", "\n ", "\t", "\r\n", "\r", "", "", "\u00a0", "\u3000", "\u2009", "\u0085", "\u2028", "\x0b", "\x0c", "\u180e",
                     "\u200b", "\ufeff", "\t\t  \n\t x"]
MARKS = ["\u0301", "\u0316", "\u0300\u0327", "\u0323\u0307", "\u0345", "\u3099", "\u1734", "\u0f72", "\u302a"]
COMPOSABLE = ["e\u0301", "A\u030a", "\u1100\u1161\u11a8", "\uac00\u11a8", "o\u0302\u0301", "\u2126", "\u212b", "\u0958", "\u304b\u3099", "\u0344", "\ufb1d",
              "\u09c7\u09be", "q\u0307\u0323", "q\u0323\u0307", "\u1e9b\u0323", "\U0001d15e", "\u2f800", "\uf900"]
# Classes that changed after Unicode 14, and neighbours that did not.
RECENT = [0x1C89, 0xA7CB, 0xA7DA, 0x897, 0x10D40, 0x10D50, 0x11BC0, 0x13460, 0x31350, 0x323AF, 0x2EBF0, 0x1CCF0, 0x1CD00, 0x1FAE9, 0x1E5F1, 0x16D70, 0x0378, 0xE000, 0x10FFFF]


def sentence(r, n):
    out = []
    for _ in range(n):
        kind = r.random()
        if kind < 0.75:
            word = r.choice(WORDS)
        elif kind < 0.82:
            word = r.choice(EMOJI)
        elif kind < 0.88:
            word = r.choice(COMPOSABLE) + "".join(r.choices(MARKS, k=r.randrange(3)))
        elif kind < 0.92:
            word = "".join(r.choices("0123456789", k=r.randrange(1, 9)))
        elif kind < 0.95:
            word = chr(r.choice(RECENT)) * r.randrange(1, 4)
        elif kind < 0.98:
            word = chr(r.choice([c for c in (r.randrange(1, 0x110000), r.randrange(1, 0x3000)) if not 0xD800 <= c < 0xE000] or [65]))
        else:
            word = chr(r.randrange(1, 32))
        out.append(word + r.choice(GAPS))
    return "".join(out)


def texts(r, special, count):
    yield ""
    for run in (" ", "\n", "a", "A", "0", "-", "é", "哈", "😀", "\t", "\u0301", "e\u0301", " \n", "ab", "'s", "\r\n", "\u3000", "\x00"):
        for n in (1, 2, 3, 7, 8, 15, 64, 257):
            yield run * n
            yield "x" + run * n + "y"
    # Long runs of marks of two classes, out of order.
    yield "a" + "\u0301\u0316" * 200 + "b"
    yield "\u0316\u0301\u0327" * 50
    for token in special:
        yield token
        yield token + token
        yield "a " + token + " b"
        yield "\n" + token + "\n"
        yield token[:-1]
        yield token[0] + token
        yield token[:2] + token + token[1:]
        yield token + "\u0301"
        yield "<|im_start|>user\n" + token + "<|im_end|>\n"
    for _ in range(count // 2):
        yield sentence(r, r.randrange(1, 12))
    for _ in range(count // 8):
        parts = [sentence(r, r.randrange(0, 4)) if r.random() < 0.6 else r.choice(special) for _ in range(6)]
        yield "".join(parts)
    for _ in range(count // 8):
        yield "".join(r.choice(["'", "s", "S", "ſ", "t", " ", "re", "LL", "D", "d'", "\u2019s"]) for _ in range(r.randrange(2, 20)))
    for _ in range(count // 8):
        yield "".join(chr(r.randrange(1, 128)) for _ in range(r.randrange(1, 40)))
    for _ in range(count // 8):
        yield bytes(r.choice([r.randrange(256), r.randrange(0xC0, 256), r.randrange(0x80, 0xC0), 65, 0xE4, 0xBD, 0xA0])
                    for _ in range(r.randrange(1, 16)))


def main(folder, count=1200):
    raw = json.load(open(folder + "/tokenizer.json"))
    with_added = Tokenizer.from_file(folder + "/tokenizer.json")
    special = [t["content"] for t in raw["added_tokens"]]
    raw["added_tokens"] = []
    without_added = Tokenizer.from_str(json.dumps(raw))
    r = random.Random(20261129)
    if len(special) > 40:
        special = special[:20] + special[-20:]
    for text in texts(r, special, int(count)):
        data = text if isinstance(text, bytes) else text.encode()
        text = data.decode("utf-8", errors="replace")
        found = with_added.encode(text, add_special_tokens=False).ids
        plain = without_added.encode(text, add_special_tokens=False).ids
        print(json.dumps([data.hex(), found, plain if plain != found else None], separators=(",", ":")))


if __name__ == "__main__":
    main(*sys.argv[1:])
