"""test_bench.py: moectl bench with prompts of drawn ids, against a group and against a server of another make, whose requests are kept; and
tests/bench/peer.py beside such a server."""
import csv
import http.server
import io
import json
import os
import subprocess
import sys
import threading
import time

import pytest

from cluster import BUILD, MODEL, ROOT, Cluster

PREFIX, OWN, TOKENS = 40, 9, 3


def bench(url, *flags, ignore_eos="--ignore-eos"):
    return subprocess.run([BUILD / "moectl", "bench", "--url", url, "--max-tokens", str(TOKENS), ignore_eos, *map(str, flags)],
                          capture_output=True, text=True, timeout=120)


def rows(result):
    assert result.returncode == 0, result.stdout + result.stderr
    return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(io.StringIO(result.stdout))]


class Foreign(http.server.BaseHTTPRequestHandler):
    """What every server of completions has, and no more."""
    def log_message(self, *_):
        pass

    def do_GET(self):
        model = {"id": self.server.model, "object": "model", **({"meta": {"n_vocab": self.server.vocab}} if self.server.vocab else {})}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"object": "list", "data": [model]}).encode())

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, request))
        self.send_response(200)
        self.end_headers()
        time.sleep(self.server.seconds)
        usage = {"prompt_tokens": len(request["prompt"]), "completion_tokens": request["max_tokens"]}
        for event in ({"choices": [{"index": 0, "text": self.server.text, "finish_reason": None}]},
                      {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}, {"choices": [], "usage": usage}):
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")


@pytest.fixture
def foreign():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Foreign)
    server.vocab, server.asked, server.model, server.text, server.seconds = 500, [], "another", " a", 0
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def prompts(server, *flags):
    server.asked.clear()
    rows(bench(server.url, "--random-prefix-len", PREFIX, "--random-input-len", OWN, *flags))
    assert {path for path, _ in server.asked} == {"/v1/completions"}
    return sorted(request["prompt"] for _, request in server.asked)


def test_prompts_have_a_beginning_in_common_and_an_own_end_in_all_rows(foreign):
    drawn = prompts(foreign, "--concurrency", "1,2", "--requests", 4)
    assert [len(ids) for ids in drawn] == [PREFIX + OWN] * 8
    assert len({tuple(ids[:PREFIX]) for ids in drawn}) == 1
    assert len({tuple(ids[PREFIX:]) for ids in drawn}) == 8, "a row would find what another left in a prefix cache"
    assert all(0 <= i < 500 for ids in drawn for i in ids) and max(map(max, drawn)) > 250


def test_drawn_prompts_follow_from_the_seed(foreign):
    flags = ["--concurrency", "2", "--requests", 3]
    first = prompts(foreign, *flags)
    assert first == prompts(foreign, *flags)
    other = prompts(foreign, *flags, "--seed", 1)
    assert not {tuple(ids[PREFIX:]) for ids in first} & {tuple(ids[PREFIX:]) for ids in other} and first[0][:PREFIX] != other[0][:PREFIX]


def test_a_rate_draws_prompts_too(foreign):
    assert len({tuple(ids) for ids in prompts(foreign, "--rate", "50,100", "--duration", "0.1", "--arrivals", "even")}) == 15


def test_the_vocabulary_is_the_servers_or_given(foreign):
    foreign.vocab = None
    result = bench(foreign.url, "--random-input-len", OWN, "--concurrency", 1, "--requests", 1)
    assert result.returncode == 2 and "--vocab-size" in result.stderr and foreign.asked == []
    assert set(sum(prompts(foreign, "--vocab-size", 2, "--concurrency", 1, "--requests", 2), [])) == {0, 1}


@pytest.mark.parametrize("flags", [["--concurrency", 1, "--requests", 3], ["--rate", 20, "--duration", 0.1]], ids=["closed", "open"])
def test_an_answer_without_text_has_its_end_for_its_first_token(foreign, flags):
    foreign.text, foreign.seconds = "", 0.2
    row, = rows(bench(foreign.url, "--random-input-len", OWN, *flags))
    assert row["ttft_p50_ms"] >= 200 and row["errors"] == 0 and row.get("token_p50_ms", 0) == 0


def test_ignore_eos_is_sent_only_where_it_is_asked_for(foreign):
    for flag, sent in (("--ignore-eos", True), ("--no-ignore-eos", None)):
        foreign.asked.clear()
        rows(bench(foreign.url, "--random-input-len", OWN, "--concurrency", 1, "--requests", 1, ignore_eos=flag))
        (_, request), = foreign.asked
        assert request.get("ignore_eos") is sent and ("ignore_eos" in request) is bool(sent)


def test_what_a_server_says_of_itself_does_not_drive_the_terminal(foreign):
    foreign.model = "\x1b[31mred\n"
    for foreign.vocab, words in ((None, "/v1/models does not say how many ids ?[31mred? has"), (10**9, "?[31mred? has 1000000000 ids, more than")):
        result = bench(foreign.url, "--random-input-len", OWN, "--concurrency", 1, "--requests", 1)
        assert result.returncode == 2 and words in result.stderr and "--vocab-size" in result.stderr and "\x1b" not in result.stderr


@pytest.mark.parametrize("flags, word", [(["--random-prefix-len", 5], "--random-input-len"), (["--vocab-size", 5], "--random-input-len"),
                                         (["--random-input-len", 4000000, "--random-prefix-len", 4000000], "--random-prefix-len 4000000"),
                                         (["--random-input-len", "x"], "--random-input-len"),
                                         (["--random-input-len", 1, "--vocab-size", 2000000], "--vocab-size")])
def test_wrong_prompts_are_refused_by_name(foreign, flags, word):
    result = bench(foreign.url, *flags)
    assert result.returncode == 2 and word in result.stderr and result.stdout == "" and foreign.asked == []


@pytest.fixture(scope="module")
def cluster():
    with Cluster(workers=1) as c:
        yield c


def test_drawn_prompts_have_the_length_that_a_group_counts(cluster):
    row, = rows(bench(cluster.url, "--random-prefix-len", PREFIX, "--random-input-len", OWN, "--concurrency", 2, "--requests", 4))
    assert (row["prompt_tokens"], row["output_tokens"], row["errors"]) == (4 * (PREFIX + OWN), 4 * TOKENS, 0)
    assert row["prompt_tokens_per_s"] > 0 and row["ttft_p50_ms"] > 0


def test_json_has_the_columns_of_csv(cluster):
    for flags in (["--concurrency", "1,2", "--requests", 2], ["--rate", "20,40", "--duration", "0.1"]):
        text = rows(bench(cluster.url, *flags))
        objects = [json.loads(line) for line in bench(cluster.url, *flags, "--json").stdout.splitlines()]
        assert [list(o) for o in objects] == [list(row) for row in text] and len(objects) == 2


def test_prompts_beyond_the_context_are_failures(cluster):
    result = bench(cluster.url, "--random-input-len", 3000, "--concurrency", 1, "--requests", 1)
    assert result.returncode == 1 and "maximum context length" in result.stderr


# Its first answer is none: a server that is still loading may well say something odd.
OTHER_SERVER = """#!/usr/bin/env python3
import os, sys
sys.path.insert(0, {folder!r})
import http.server, test_bench
class Handler(test_bench.Foreign):
    def do_GET(self):
        if self.path == "/health" and not self.server.seen:
            self.server.seen = True
            self.wfile.write(b"loading" * 3)
            return
        super().do_GET()
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler)
server.vocab, server.asked, server.model, server.text, server.seconds, server.seen = int(os.environ["OTHER_VOCAB"]), [], "other", "", 0, False
open(os.environ["OTHER_PID"], "w").write(str(os.getpid()))
server.serve_forever()
"""


@pytest.fixture
def peer(tmp_path):
    """Runs a script of tests/bench where a server of another make is a file here."""
    server, gguf = tmp_path / "other-server", tmp_path / "weights.gguf"
    server.write_text(OTHER_SERVER.format(folder=str(ROOT / "tests" / "e2e")).replace("/usr/bin/env python3", sys.executable))
    server.chmod(0o755)
    gguf.write_text("")

    def run(program, script, **variables):
        given = {"PEER_LLAMA_SERVER": str(server), "PEER_GGUF": str(gguf), "PEER_ROUNDS": "1", "PEER_THREADS": "1", "WORKLOADS": "decode_1",
                 "OTHER_PID": str(tmp_path / "pid"), "MODEL": str(MODEL), "TMPDIR": str(tmp_path), **variables}
        return subprocess.run([program, ROOT / "tests" / "bench" / script], env={**os.environ, **given}, capture_output=True, text=True, timeout=120)
    run.pid = tmp_path / "pid"
    return run


def test_peer_measures_both_servers_and_a_column_of_zeros_has_no_ratio(peer):
    vocab = json.loads((MODEL / "config.json").read_text())["vocab_size"]
    result = peer(sys.executable, "peer.py", OTHER_VOCAB=str(vocab))
    assert result.returncode == 0, result.stdout + result.stderr
    table = {row["column"]: row for row in csv.DictReader(line for line in result.stdout.splitlines() if line[0] != "#")}
    assert set(table) == {"output_tokens_per_s", "token_p50_ms", "server_cpu_s"}
    assert table["token_p50_ms"]["ratio"] == "nan", "the other server sends no text, so it has no time between tokens"
    assert float(table["output_tokens_per_s"]["ratio"]) > 0


def test_peer_refuses_models_of_other_vocabularies_and_leaves_no_server(peer):
    result = peer(sys.executable, "peer.py", OTHER_VOCAB="500")
    assert result.returncode == 1 and "llama-server has 500 ids" in result.stderr
    assert not os.path.exists(f"/proc/{peer.pid.read_text()}")


@pytest.mark.parametrize("variables, word", [({"PEER_GGUF": ""}, "PEER_GGUF"), ({"PEER_GGUF": "/nowhere"}, "PEER_GGUF"),
                                             ({"PEER_LLAMA_SERVER": "/nowhere"}, "PEER_LLAMA_SERVER"), ({"WORKLOADS": "x"}, "WORKLOADS")])
def test_make_bench_says_at_once_what_its_last_part_lacks(peer, variables, word):
    result = peer("bash", "run.sh", **variables)
    assert result.returncode != 0 and word in result.stderr and result.stdout == ""
