"""tokenizer_peer.py: texts to ids, here and by Hugging Face's tokenizers, one after the other on the same machine; the last column says how
many times as fast ours is. The ids' counts must agree.

    python tests/bench/tokenizer_peer.py MODEL_FOLDER [MEGABYTES]

Needs the package tokenizers, and build/release/bench_tokenizer.
"""
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from tokenizers import Tokenizer

BENCH = pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "bench_tokenizer"
WORDS = "the of and to in is you that it he was for on are as with his they at be this have from or one had by word but not what all".split()
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def texts(n):
    draw = random.Random(1)
    yield "letter", "a" * n
    yield "two_letters", "ab" * (n // 2)
    yield "one_word", "".join(draw.choice(LETTERS) for _ in range(n))
    yield "words", " ".join(draw.choice(WORDS) for _ in range(n // 4))[:n]


def ours(folder, path):
    rows = subprocess.run([BENCH, folder, path], capture_output=True, text=True, check=True).stdout.splitlines()
    _, _, ids, seconds, _ = rows[1].rsplit(",", 4)
    return int(ids), float(seconds)


def theirs(tokenizer, text):
    begin = time.perf_counter()
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return len(ids), time.perf_counter() - begin


def main(folder, megabytes=1):
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    print("text,bytes,ids,ours_s,theirs_s,times_as_fast")
    for name, text in texts(int(megabytes) * 1000000):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            n, seconds = ours(folder, file.name)
        n_peer, seconds_peer = theirs(tokenizer, text)
        assert n == n_peer, (name, n, n_peer)
        print(f"{name},{len(text)},{n},{seconds:.3f},{seconds_peer:.3f},{seconds_peer / seconds:.2f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
