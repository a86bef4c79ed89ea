"""test_process.py: how moe-leader starts, refuses to start, and leaves."""
import contextlib
import http.server
import json
import os
import pathlib
import re
import signal
import subprocess
import threading

import pytest
import requests

from cluster import BUILD, MODEL, Cluster, wait_for

CHAT = "/v1/chat/completions"


def leader(*flags):
    return subprocess.run([BUILD / "moe-leader", *flags], capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize("flags, code, word", [
    ([], 2, "--model"),
    (["--modle", "x"], 2, "model"),
    (["--model", str(MODEL), "--port", "99999"], 2, "port"),
    (["--model", str(MODEL), "--host", "0.0.0.0"], 2, "--api-key-file"),
    (["--model", str(MODEL), "--max-model-len", "4096"], 2, "2048"),
    (["--model", str(MODEL), "--data-parallel-size", "2", "--tensor-parallel-size", "1", "--expert-parallel-size", "4"], 2, "--expert-parallel-size"),
    (["--model", str(MODEL), "--host", "[::1]"], 2, "without brackets"),
    (["--model", "/nowhere"], 1, "there is no folder /nowhere"),
    (["--model", str(MODEL / "config.json")], 1, "config.json is no folder"),
])
def test_wrong_options_are_refused_by_name(flags, code, word):
    result = leader(*flags)
    assert result.returncode == code
    assert word in result.stderr


def test_port_in_use_is_named(cluster):
    result = leader("--model", str(MODEL), "--port", str(cluster.port), "--control-port", "0", "--grpc-port", "0")
    assert result.returncode == 1
    assert str(cluster.port) in result.stderr


@pytest.mark.parametrize("command, files", [(["moe-leader", "--model", str(MODEL)], 64), (["moe-worker"], 32)])
def test_too_few_descriptors_stop_the_start(command, files):
    result = subprocess.run(["prlimit", f"--nofile={files}", BUILD / command[0], *command[1:]],
                            capture_output=True, text=True, timeout=30)
    assert result.returncode == 1
    assert f"may open {files} files (ulimit -n)" in result.stderr


@pytest.mark.skipif(not pathlib.Path("/proc/net/if_inet6").exists(), reason="a kernel without IPv6")
def test_ipv6_on_every_port():
    six = Cluster(workers=1, leader_flags=["--host", "::1", "--control-host", "::1"])
    try:
        six.start_leader()
        six.url = f"http://[::1]:{six.port}"
        six.workers = [six.start_worker(f"[::1]:{six.control_port}")]
        six.wait_ready()
        assert "Nairobi" in six.chat("What is the capital of Kenya?")["choices"][0]["message"]["content"]
        for port in "control", "grpc", "http":
            assert f"{port} listening address [::1]:" in six.leader.log()
    finally:
        six.stop()


def test_a_name_that_nobody_knows_is_one_piece_of_news():
    alone = Cluster(workers=1)
    worker = alone.start_worker("nowhere.invalid")
    try:
        wait_for("a failed attempt", lambda: "cannot join nowhere.invalid:8500" in worker.log())
        # gRPC names the look-up that failed last, by chance that for IPv4 or IPv6.
        assert "qtype" not in worker.log() and "C-ares status" not in worker.log()
    finally:
        worker.end()


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(404)

    def log_message(self, *_):
        pass


def test_moectl_names_what_is_not_utf8():
    for command, word in ([b"chat", b"a\xff"], b"the PROMPT is not UTF-8 (byte 1)"), ([b"chat", b"a", b"--model", b"\xff"], b"--model is not UTF-8"):
        done = subprocess.run([os.fsencode(BUILD / "moectl"), *command, b"--url", b"http://127.0.0.1:9"], capture_output=True, timeout=60)
        assert done.returncode == 1 and word in done.stderr


def test_moectl_verifies_a_folder(tmp_path):
    def verify(*arguments):
        return subprocess.run([BUILD / "moectl", "verify", *arguments], capture_output=True, text=True, timeout=60)
    fine = verify(MODEL, "--values")
    assert fine.returncode == 0 and fine.stdout.endswith("It can be served.\n") and fine.stderr == ""
    wrong = verify(tmp_path)
    assert wrong.returncode == 1 and "config.json" in wrong.stdout and "tokenizer.json" in wrong.stdout
    nothing = verify()
    assert nothing.returncode == 2 and "needs a FOLDER" in nothing.stderr


@pytest.mark.parametrize("command", [["bench"], ["status"], ["chat", "hi"]])
@pytest.mark.parametrize("url", ["ftp://127.0.0.1:9", "file:///etc/passwd", "://x", ""])
def test_moectl_refuses_an_address_that_no_leader_has(command, url):
    done = subprocess.run([BUILD / "moectl", *command, "--url", url], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f'moectl: --url "{url}": a leader is at http://HOST:PORT or https://HOST:PORT\n'


@pytest.mark.parametrize("setting", [{"MOESAIC_URL": "ftp://x"}, {"MOESAIC_API_KEY_FILE": "/nowhere"}])
def test_moectl_asks_nothing_of_an_address_that_it_does_not_use(setting):
    for command, code in ((["plan", MODEL, "--workers", "2"], 0), (["verify", MODEL], 0), (["status"], 2)):
        done = subprocess.run([BUILD / "moectl", *command], env={**os.environ, **setting}, capture_output=True, text=True, timeout=60)
        assert done.returncode == code and (done.stderr == "") == (code == 0), done


def test_moectl_takes_its_word_wherever_it_stands():
    wanted = ["--workers", "2", MODEL, "-tp", "2"]
    done = subprocess.run([BUILD / "moectl", "plan", *wanted], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("layout of 2 workers: pp 1 dp 1 tp 2 ep 2 etp 1\n"), done
    for command, says in ((["plan", MODEL, "-ep", "3"], "-ep: takes no value; did you mean --expert-parallel-size 3?"),
                          (["plan", "-ep", "3", MODEL], "-ep: takes no value; did you mean --expert-parallel-size 3?"),
                          (["chat", "What", "is"], '"is" stands where a flag should, as "What" is already there: a text with blanks needs quotes'),
                          (["plan", "--workers", "2"], "plan: needs a FOLDER, the model's; moectl --help lists all commands"),
                          (["status", "now"], "status: takes no argument; moectl --help lists all commands")):
        done = subprocess.run([BUILD / "moectl", *command], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (2, f"moectl: {says}\n")


def moectl_json(*command):
    """The exit code and the one object of a command for programs."""
    done = subprocess.run([BUILD / "moectl", *command, "--json"], capture_output=True, timeout=60)
    assert done.stdout.count(b"\n") == 1 and done.stderr == b"", done
    return done.returncode, json.loads(done.stdout)


def test_a_plan_is_one_object_for_programs():
    code, plan = moectl_json("plan", MODEL, "--workers", "8", "-tp", "2", "-pp", "2")
    table = subprocess.run([BUILD / "moectl", "plan", MODEL, "--workers", "8", "-tp", "2", "-pp", "2"], capture_output=True, text=True, timeout=60).stdout
    assert (code, plan["object"], plan["model"], plan["fits"], plan["memory_bytes"]) == (0, "moesaic.plan", str(MODEL), True, None)
    sizes = plan["layout"]
    assert table.startswith("layout of {workers} workers: pp {pp} dp {dp} tp {tp} ep {ep} etp {etp}\n".format(**sizes))
    assert [row["rank"] for row in plan["ranks"]] == list(range(8))
    for row, line in zip(plan["ranks"], re.findall(r"^ +\d+  -      cpu .*$", table, re.M), strict=True):
        first, last = row["layers"]["first"], row["layers"]["first"] + row["layers"]["count"] - 1
        assert line.split()[3:7] == [str(row["stage"]), str(row["dp"]), str(row["tp"]), f"{first}-{last}"]
        assert (row["host"], row["device"]) == (None, "cpu")
        assert f"{row['weight_bytes'] / 2**20:.1f} MiB" in line and f"{row['kv_token_bytes']} B" in line
    for key, total in plan["totals"].items():
        assert total == sum(row[key] for row in plan["ranks"])
    for stage in 0, 1:  # each expert of a layer, and of an expert each part, is once in a stage
        held = [(e, row["experts"]["part"]) for row in plan["ranks"] if row["stage"] == stage
                for e in range(row["experts"]["first"], row["experts"]["first"] + row["experts"]["count"])]
        assert sorted(held) == [(e, p) for e in range(16) for p in range(sizes["etp"])]
    assert plan["needed_bytes"] >= max(row["weight_bytes"] for row in plan["ranks"]) and "layouts" not in plan

    code, plan = moectl_json("plan", MODEL, "--workers", "2", "--worker-memory", "1MiB", "--all")
    assert (code, plan["fits"], plan["memory_bytes"]) == (3, False, 2**20)
    chosen = [layout for layout in plan["layouts"] if layout["chosen"]]
    assert len(plan["layouts"]) > 1 and len(chosen) == 1 and not any(layout["fits"] for layout in plan["layouts"])
    assert {key: chosen[0][key] for key in plan["layout"]} == plan["layout"] and chosen[0]["needed_bytes"] == plan["needed_bytes"]
    many = moectl_json("plan", MODEL, "--workers", "1024")[1]
    assert len(many["ranks"]) == 1024


def test_names_that_would_break_json_do_not(tmp_path):
    for name, told in ((b'a "b" \\ \n\x1b[31m', True), (b"\xff\xfe", False)):
        folder = os.fsencode(tmp_path) + b"/" + name
        os.symlink(MODEL, folder)
        for command, key in (("plan", "model"), ("verify", "folder")):
            code, answer = moectl_json(command, folder, *(["--workers", "2"] if command == "plan" else []))
            assert code == 0 and answer[key] == (os.fsdecode(folder) if told else None)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.json").write_text('{"architectures": ["a\\"b\\u001b[31m\\n\\u202e"], "model_type": "\\ud83d\\ude00"}')
    code, answer = moectl_json("verify", tmp_path / "bad")
    assert code == 1 and not answer["served"] and answer["model"] is None and answer["n_problems"] >= len(answer["problems"]) > 0
    assert answer["problems"][0]["part"] == "config.json" and not any(c in p["text"] for p in answer["problems"] for c in "\x1b\n\u202e")
    for wanted, code in ((["plan", "/nowhere", "--workers", "2"], 1), (["plan", MODEL, "-tp", "3"], 2)):
        done = subprocess.run([BUILD / "moectl", *wanted, "--json"], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (code, "") and done.stderr.startswith("moectl: ")


@pytest.mark.parametrize("command", [["chat", "Hi"], ["experts"], ["ready"]], ids=lambda c: c[0])
def test_moectl_refuses_json_where_there_is_none(command):
    done = subprocess.run([BUILD / "moectl", *command, "--json"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"moectl: {command[0]}: has no --json; bench, plan, status and verify have; moectl --help lists all commands\n"
    # A probe in a shell whose other commands are to print JSON goes on working.
    with_variable = subprocess.run([BUILD / "moectl", *command, "--url", "http://127.0.0.1:1"], env={**os.environ, "MOESAIC_JSON": "true"},
                                   capture_output=True, text=True, timeout=60)
    assert (with_variable.returncode, with_variable.stdout) == (1, "") and "http://127.0.0.1:1" in with_variable.stderr


def test_moectl_does_not_print_another_servers_page():
    with http.server.HTTPServer(("127.0.0.1", 0), Page) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        done = subprocess.run([BUILD / "moectl", "ready", "--url", f"http://127.0.0.1:{other.server_port}"],
                              capture_output=True, text=True, timeout=30)
        other.shutdown()
    assert done.returncode == 1
    assert done.stderr == "moectl: not the answer of a leader; is --url right? (HTTP status 404)\n"


def test_not_ready_without_workers_but_alive(tmp_path):
    alone = Cluster(workers=2)
    try:
        alone.start_leader()
        assert requests.get(alone.url + "/health").status_code == 200
        ready = requests.get(alone.url + "/ready")
        assert ready.status_code == 503
        assert "worker" in ready.json()["state"]
        refused = alone.post(CHAT, {"messages": [{"role": "user", "content": "hi"}]})
        assert refused.status_code == 503
        assert refused.headers["Retry-After"]
        alone.leader.send(signal.SIGTERM)
        assert alone.leader.wait() == 0
    finally:
        alone.stop()


def test_sigterm_lets_streams_end(tmp_path):
    with Cluster(workers=2) as cluster:
        lines = []

        def read():
            body = {"messages": [{"role": "user", "content": "Tell me a story about a fox."}], "stream": True,
                    "max_tokens": 600, "ignore_eos": True}
            with cluster.post(CHAT, body, stream=True) as response:
                lines.extend(line for line in response.iter_lines() if line)
        reader = threading.Thread(target=read)
        reader.start()
        wait_for("tokens", lambda: cluster.metric("vllm:generation_tokens_total") > 5)
        cluster.leader.send(signal.SIGTERM)
        reader.join(30)
        assert lines[-1] == b"data: [DONE]"
        assert b'"finish_reason":"length"' in lines[-2]
        assert cluster.leader.wait() == 0
        assert "accounts ok" in cluster.leader.log()


def test_a_second_signal_cuts_the_drain(tmp_path):
    with Cluster(workers=1, leader_flags=["--shutdown-timeout", "60"]) as cluster:
        def ask():
            with contextlib.suppress(requests.ConnectionError):
                cluster.post(CHAT, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1900, "n": 32,
                                    "ignore_eos": True})
        threading.Thread(target=ask, daemon=True).start()
        wait_for("work", lambda: cluster.metric("vllm:num_requests_running") > 0)
        cluster.leader.send(signal.SIGTERM)
        cluster.leader.send(signal.SIGINT)
        assert cluster.leader.wait(20) == 0


def test_full_queue_is_429():
    with Cluster(workers=1, leader_flags=["--max-num-queued-reqs", "3"]) as cluster:
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1900, "ignore_eos": True, "n": 3, "stream": True}
        with requests.post(cluster.url + CHAT, json=body, stream=True, timeout=60) as running:
            lines = running.iter_lines()  # kept: the stream is closed with it
            assert next(lines)
            full = cluster.post(CHAT, {"messages": [{"role": "user", "content": "x"}]})
        assert full.status_code == 429
        assert int(full.headers["Retry-After"]) >= 1
        assert full.json()["error"]["type"] == "rate_limit_error"
        assert cluster.metric("vllm:admission_rejections_total", reason="queue_full") == 1


def test_more_choices_than_the_queue_holds_are_refused_for_good():
    with Cluster(workers=1, leader_flags=["--max-num-queued-reqs", "3"]) as cluster:
        never = cluster.post(CHAT, {"messages": [{"role": "user", "content": "x"}], "n": 4})
        assert never.status_code == 400 and never.json()["error"]["param"] == "n"
        never = cluster.post("/v1/completions", {"prompt": ["a", "b", "c", "d"]})
        assert never.status_code == 400 and never.json()["error"]["param"] == "prompt"


def test_api_key_is_asked_for(tmp_path):
    key = tmp_path / "key"
    key.write_text("sesame\n")
    with Cluster(workers=1, leader_flags=["--api-key-file", str(key)]) as cluster:
        body = {"messages": [{"role": "user", "content": "What is the capital of Kenya?"}], "temperature": 0}
        assert cluster.post(CHAT, body).status_code == 401
        good = cluster.post(CHAT, body, headers={"Authorization": "Bearer sesame"})
        assert good.json()["choices"][0]["message"]["content"] == "The capital of Kenya is Nairobi."
