"""Writes chat_ids.jsonl: conversations without special tokens in them, and the ids of apply_chat_template(tokenize=True). One
JSON array a line: [messages, ids].

    python make_chat_ids.py MODEL_FOLDER > chat_ids.jsonl
"""
import json
import random
import sys

from transformers import AutoTokenizer

PIECES = ["Hello", " ", "\n", "What is the capital of Kenya?", "讲一个故事。", "e\u0301", "\u0301", "😀", "1234", "don't", "  two", "\n\n", "a_b(c)", "\u00a0", "<|", "|>", "<b>",
          "Привет", "'s", "\t", "\u1100\u1161", "\u11a8", "!?"]


def main(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    r = random.Random(3)
    for _ in range(60):
        messages = [{"role": r.choice(["user", "assistant", "system"]), "content": "".join(r.choices(PIECES, k=r.randrange(0, 12)))} for _ in range(r.randrange(1, 5))]
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
        print(json.dumps([messages, ids], separators=(",", ":")))


if __name__ == "__main__":
    main(sys.argv[1])
