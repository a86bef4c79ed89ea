"""test_status.py: what a person sees of a group in each of its states (moectl status, the log), and what nobody may see: the
text of requests. Real processes throughout."""
import json
import os
import re
import signal
import subprocess
import threading

import grpc
import pytest
import requests

from cluster import BUILD, Cluster, wait_for
from forger import hello, pb, stream
from grpc_client import connect

CHAT = "/v1/chat/completions"
MARK = "xyzzyplugh"  # what a client says, wherever it can say something
STORY = {"messages": [{"role": "user", "content": "Tell me a story about a fox."}], "max_tokens": 1900, "ignore_eos": True,
         "temperature": 1, "seed": 5}


def moectl(cluster, *flags, **kwargs):
    url = kwargs.pop("url", cluster and cluster.url)
    return subprocess.run([BUILD / "moectl", "status", "--url", url, *flags], capture_output=True, text=True, timeout=30,
                          **kwargs)


def status(cluster, code):
    """What a person is shown, after a look at its width and at the exit code."""
    done = moectl(cluster)
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.split("\n")
    assert max(len(line) for line in lines) <= 80 and "\x1b" not in done.stdout
    return done.stdout


def status_json(cluster):
    done = moectl(cluster, "--json")
    assert done.stdout.count("\n") == 1
    assert not re.search(r"\.\d{10}", done.stdout), done.stdout  # as no person writes a number
    return json.loads(done.stdout)


def rows(text):
    """{rank: [name, host, state, ...]} of the table."""
    table = text[text.index("   # NAME"):].split("\n")[1:]
    return {int(line.split()[0]): line.split()[1:] for line in table if re.match(r" *\d+ ", line)}


def build_id():
    out = subprocess.run([BUILD / "moe-leader", "--version"], capture_output=True, text=True, check=True).stdout
    return out.split()[-1]


def start_story(cluster):
    def ask():
        try:
            requests.post(cluster.url + CHAT, json=STORY, timeout=60)
        except requests.RequestException:
            pass
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread


# --- each state


def test_status_from_the_first_worker_to_a_drain():
    c = Cluster(workers=2)
    try:
        c.start_leader()
        text = status(c, 3)
        assert text.startswith("seedling  waiting  epoch 0")
        assert "\nwaiting for 2 of 2 workers\n" in text
        assert [r[2] for r in rows(text).values()] == ["free", "free"]

        with stream(c.control_port) as forged:  # loads for as long as we like
            forged.say(hello(build_id(), wanted_rank=1, name="slow one"))
            forged.wait_heard("welcome")
            forged.say(pb.JoinUp(progress=pb.Progress(bytes_done=430, bytes_total=1000)))
            c.workers = [c.start_worker()]
            wait_for("a loaded worker", lambda: " loaded " in status(c, 3))
            text = status(c, 3)
            assert text.startswith("seedling  loading  epoch 0")
            assert "1 of 2 workers load weights" in text
            assert re.search(r"   1 slow one +forged +load 43% ", text)
            share = status_json(c)["load_share"]
            assert 0.43 < share < 1  # the other worker's bytes count as well
        wait_for("the slow one's end", lambda: rows(status(c, 3))[1][2] != "load")
        assert "\nworkers    1 lost   0 left" in status(c, 3)

        c.workers.append(c.start_worker())
        c.wait_ready()
        start_story(c)
        wait_for("rates", lambda: status_json(c)["recent"]["generation_tokens_per_s"] > 1)
        wait_for("the request, which is counted a little later", lambda: status_json(c)["requests"]["running"] == 1)
        text = status(c, 0)
        assert text.startswith("seedling  ready  epoch 1")
        assert "\nrequests   1 running   0 waiting   1 of 1024 places taken\n" in text
        assert [r[0] for r in rows(text).values()] == ["worker-1", "worker-2"]
        assert re.search(r"\nlatency    first token p50 \d.*, p95 \d.*    next p50 \d.*, p95 \d", text)

        c.workers[1].send(signal.SIGKILL)
        c.workers[1].end()
        wait_for("the loss", lambda: rows(status_json_text(c))[1][2] == "lost")
        text = status(c, 3)
        assert text.startswith("seedling  waiting  epoch 1") and "waiting for 1 of 2 workers" in text
        assert "\nworkers    2 lost" in text and "0 running   1 waiting" in text  # its stream pauses

        c.workers[1] = c.start_worker()
        c.wait_ready()
        start_story(c)
        wait_for("work", lambda: status_json(c)["requests"]["running"] > 0)
        c.leader.send(signal.SIGTERM)
        wait_for("the drain", lambda: status_json(c)["state"] == "draining")
        text = status(c, 3)
        assert text.startswith("seedling  draining  epoch 2") and "the server is shutting down" in text
        c.leader.send(signal.SIGTERM)
        assert c.leader.wait(60) == 0
    finally:
        c.stop()


def status_json_text(c):
    return moectl(c).stdout


def test_an_unreachable_leader_is_one_line_and_exit_code_1(tmp_path):
    done = moectl(None, url="http://127.0.0.1:9")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "http://127.0.0.1:9" in done.stderr
    done = moectl(None, "--json", "--watch", url="http://127.0.0.1:9")
    assert done.returncode == 1 and done.stdout == ""


def test_status_asks_for_the_key_where_there_is_one(tmp_path):
    key = tmp_path / "key"
    key.write_text("sesame-sesame-sesame-sesame-sesame\n")
    key.chmod(0o600)
    c = Cluster(workers=1, leader_flags=["--api-key-file", str(key)])
    try:
        c.start_leader()
        assert requests.get(c.url + "/status").status_code == 401
        done = moectl(c)
        assert done.returncode == 1 and "401" in done.stderr
        assert moectl(c, "--api-key-file", str(key)).returncode == 3
    finally:
        c.stop()


# --- what it says is so


def test_numbers_are_those_of_metrics(cluster):
    def settled():
        return cluster.metric("vllm:num_requests_running") == 0 and status_json(cluster)["requests"]["admitted"] == 0
    cluster.chat("Who are you?")
    cluster.post(CHAT, {"messages": "nonsense"})
    wait_for("rest", settled)
    s, metric = status_json(cluster), cluster.metric
    assert s["object"] == "moesaic.status" and s["state"] == "ready" and s["ready"] is True
    assert s["totals"]["prompt_tokens"] == metric("vllm:prompt_tokens_total")
    assert s["totals"]["generation_tokens"] == metric("vllm:generation_tokens_total")
    assert s["totals"]["steps"] == metric("moesaic_steps_total")
    assert s["epoch"] == metric("moesaic_epoch")
    for reason, n in s["requests"]["finished"].items():
        assert n == metric("vllm:request_success_total", finished_reason=reason), reason
    for reason, n in s["requests"]["rejected"].items():
        assert n == metric("vllm:admission_rejections_total", reason=reason), reason
    for word in ("joined", "refused", "lost", "left"):
        assert s["membership"][word] == metric(f"moesaic_workers_{word}_total"), word
    assert s["membership"]["formed"] == metric("moesaic_groups_formed_total")
    assert sum(w["generation_tokens"] for w in s["workers"]) == s["totals"]["generation_tokens"]
    assert sum(w["kv_blocks"] for w in s["workers"]) == s["kv"]["blocks"] > 0
    assert all(w["heartbeat_age_s"] < 10 and w["cores"] >= 1 for w in s["workers"])
    wait_for("heartbeats", lambda: all(w["bytes_sent"] > 0 and w["steps"] > 0 for w in status_json(cluster)["workers"]))


def test_rates_are_tokens_of_the_last_seconds(cluster):
    before = status_json(cluster)
    for i in range(3):
        cluster.chat("Tell me a story about a fox.", max_tokens=100, ignore_eos=True, seed=i)
    s = status_json(cluster)
    made = s["totals"]["generation_tokens"] - before["totals"]["generation_tokens"]
    assert made == 300
    # All of it lies in the window unless this machine was very slow; other tests' tokens may lie there as well.
    rate = s["recent"]["generation_tokens_per_s"] * s["recent"]["seconds"]
    if s["uptime_s"] - before["uptime_s"] < 8:
        assert rate >= 299
    assert rate <= s["totals"]["generation_tokens"] + 1
    assert 0 < s["recent"]["between_tokens_s"]["p50"] <= s["recent"]["between_tokens_s"]["p95"]
    assert abs(sum(w["tokens_per_s"] for w in s["workers"]) * s["recent"]["seconds"] - rate) <= 0.5 * rate


def test_watch_writes_blocks_into_a_pipe_and_objects_with_json(cluster):
    for flags, split in (([], "\n\n   # NAME"), (["--json"], "\n")):
        command = [BUILD / "moectl", "status", "--url", cluster.url, "--watch", "0.2", *flags]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            text = ""
            while text.count(split) < 3:
                text += process.stdout.readline()
            process.terminate()
        assert "\x1b" not in text
        if flags:
            assert all(json.loads(line)["ready"] for line in text.strip().split("\n"))
        else:
            assert text.count("seedling  ready  ") == 3 and "\n\nseedling  ready" in text


def test_a_terminal_is_drawn_over():
    c = Cluster(workers=1)
    try:
        c.start_leader()
        command = f"{BUILD}/moectl status --url {c.url} --watch 0.2"
        environment = {**os.environ, "TERM": "xterm"}
        environment.pop("NO_COLOR", None)
        with subprocess.Popen(["script", "-qefc", command, "/dev/null"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              env=environment) as process:
            seen = b""
            while seen.count(b"\x1b[J") < 3:
                seen += os.read(process.stdout.fileno(), 4096)
            process.terminate()
        assert seen.count(b"\x1b[2J") == 1 and seen.count(b"\x1b[H") >= 3
        assert b"\x1b[1;33m  waiting\x1b[0m" in seen
    finally:
        c.stop()


# --- the log


def records(process):
    return [json.loads(line) for line in process.log().split("\n") if line]


def events(process):
    return [r["message"] for r in records(process)]


def in_order(wanted, messages):
    rest = iter(messages)
    return all(any(m == w for m in rest) for w in wanted)


def test_each_event_of_a_life_is_one_json_line():
    with Cluster(workers=2, leader_flags=["--log-format", "json", "--enable-log-requests"],
                 worker_flags=["--log-format", "json"]) as c:
        c.chat("Who are you?")
        c.post(CHAT, {"messages": []})
        c.workers[1].send(signal.SIGKILL)
        c.workers[1].end()
        wait_for("the loss", lambda: "worker lost" in events(c.leader))
        c.workers[0].send(signal.SIGTERM)
        assert c.workers[0].wait() == 0
        wait_for("the leave", lambda: "worker left" in events(c.leader))
        c.leader.send(signal.SIGTERM)
        assert c.leader.wait() == 0
        log = records(c.leader)
        for r in log + records(c.workers[0]):
            assert {"time", "level", "who", "area", "message"} <= r.keys() <= {"time", "level", "who", "area", "message",
                                                                              "fields"}
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", r["time"])
        assert in_order(["starting", "model loaded", "control listening", "grpc listening", "http listening", "worker joined",
                         "worker loading", "worker loaded", "group forming", "worker ready", "group ready",
                         "request admitted", "request finished", "request refused", "worker lost", "group closed",
                         "worker left", "stopping after", "draining", "drained", "stopped"], events(c.leader))
        assert in_order(["started", "joined", "loaded", "threads", "ready", "group closed", "draining after SIGTERM",
                         "ended"], events(c.workers[0]))
        fields = {r["message"]: r.get("fields", {}) for r in log}
        assert fields["worker lost"].keys() == {"rank", "name", "reason"}
        assert fields["worker joined"].keys() == {"rank", "name", "host", "pid", "kernels", "cores", "memory"}
        assert fields["group ready"]["took_ms"] >= 0 and fields["group closed"]["stage"] == "ready"
        assert fields["request finished"]["output_tokens"] > 0 and fields["request refused"]["status"] == 400
        assert [r["level"] for r in log if r["message"] in ("worker lost", "worker left")] == ["error", "info"]
        assert fields["stopped"] == {"code": 0}


def test_waits_are_said():
    c = Cluster(workers=2)
    try:
        c.start_leader()
        wait_for("the wait", lambda: 'main: waiting state "waiting for 2 of 2 workers" seconds' in c.leader.log())
    finally:
        c.stop()


# --- what nobody may see


def say_everywhere(c, stubs):
    """Requests with the mark wherever a client can put text: those that are answered, and those that fail."""
    m = MARK
    good = {"messages": [{"role": "system", "content": m}, {"role": "user", "content": m, "name": m}], "max_tokens": 2,
            "stop": [m], "user": m, "seed": 1}
    bodies = [
        good, {**good, "stream": True}, {**good, "bad_words": [m]},
        {**good, "model": m}, {**good, m: 1}, {**good, "temperature": m}, {**good, "messages": m},
        {**good, "messages": [{"role": m, "content": m}]}, {**good, "messages": [{"role": "user", "content": [{"type": m}]}]},
        {**good, "messages": [{"role": "user", "content": m * 9000}]}, {**good, "tools": [{"type": m}]},
        {**good, "response_format": {"type": m}}, {**good, "logit_bias": {m: 1}}, {**good, "stop": {m: m}},
        {**good, "seed": m}, {**good, "metadata": {m: m}},
    ]
    statuses = {c.post(CHAT, body).status_code for body in bodies}
    for prompt in (m, [m, m], m * 9000, {m: m}):
        statuses.add(c.post("/v1/completions", {"prompt": prompt, "max_tokens": 2}).status_code)
    for raw in (m, '{"' + m, '{"messages":[{"role":"user","content":"' + m + '"}],}', '"' + m + '"'):
        statuses.add(requests.post(c.url + CHAT, data=raw, headers={"Content-Type": "application/json", "X-Mark": m}).status_code)
    for path in ("/" + m, "/v1/models/" + m, f"/v1/models?{m}={m}"):
        requests.get(c.url + path, headers={"Authorization": "Bearer " + m, "User-Agent": m, "Cookie": m})
    requests.request(m.upper(), c.url + "/v1/models")
    assert {200, 400} <= statuses
    with connect(stubs, c) as client:
        for fields in ({"text": m}, {"chat": m}, {"text": m, "stop": [m]}, {"text": m * 9000}, {"text": m, "model": m},
                       {"text": m, "temperature": 9}, {"text": m, "bad_words": [m]}, {"messages": [client.pb.ChatMessage(
                           role=m, content=m)]}):
            try:
                list(client.call(max_tokens=2, **fields))
            except grpc.RpcError:
                pass


@pytest.mark.parametrize("shown", [False, True])
def test_no_text_of_a_request_is_seen_without_the_flag(stubs, shown):
    flags = ["--log-level", "trace", *(["--log-prompts", "--max-log-len", "40"] if shown else [])]
    with Cluster(workers=1, leader_flags=flags, worker_flags=["--log-level", "trace"]) as c:
        say_everywhere(c, stubs)
        pages = [requests.get(c.url + path).text for path in ("/metrics", "/status", "/ready", "/version", "/v1/models")]
        pages += [status(c, 0), c.workers[0].log()]
        log = c.leader.log()
        if shown:
            prompts = re.findall(r"request prompt request \S+ text (.*)", log)
            assert len(prompts) >= 5 and any(MARK in p for p in prompts)
            assert all(len(p.encode()) <= 60 for p in prompts)  # 40 bytes, quotes and escapes
        else:
            assert log.count("request admitted") >= 5 and log.count("request refused") >= 5
            pages.append(log)
        for page in pages:
            assert MARK.lower() not in page.lower(), [line for line in page.split("\n") if MARK in line.lower()][:3]
