"""test_grpc.py: the Generate service with grpcio and stubs made from proto/generate.proto, against real processes."""
import concurrent.futures
import contextlib
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import grpc
import pytest

from cluster import BUILD, MODEL, ROOT, Cluster, wait_for
from grpc_client import aborted, connect, idle, joined

KENYA = "What is the capital of Kenya?"
NAIROBI = "The capital of Kenya is Nairobi."
STORY = "Once upon a time"
LONG = {"max_tokens": 1900, "ignore_eos": True, "temperature": 1}


# --- answers


def test_messages_are_rendered_by_the_chat_template(rpc):
    a = rpc.ask(chat=KENYA, temperature=0)
    assert (a.text, a.finish) == (NAIROBI, "stop")
    assert a.n_prompt > 5
    assert len(a.parts) > 2  # streamed


def http_completion(cluster, prompt, **fields):
    r = cluster.post("/v1/completions", {"model": "seedling", "prompt": prompt, "return_token_ids": True, **fields})
    r.raise_for_status()
    return r.json()


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"temperature": 1, "seed": 7}, {"temperature": 1, "seed": 7, "top_k": 20,
                                                                                       "top_p": 0.5, "min_p": 0.125}])
def test_text_gives_the_same_tokens_and_text_as_http(rpc, cluster, fields):
    whole = http_completion(cluster, STORY, max_tokens=40, **fields)
    choice = whole["choices"][0]
    a = rpc.ask(text=STORY, max_tokens=40, **fields)
    assert (a.text, a.ids, a.finish) == (choice["text"], choice["token_ids"], choice["finish_reason"])
    assert f"{a.digest:016x}" == choice["digest"]
    assert a.n_prompt == whole["usage"]["prompt_tokens"]


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"temperature": 1, "seed": 2**40 + 1}])
def test_messages_give_the_same_answer_as_http(rpc, cluster, fields):
    whole = cluster.chat(KENYA, return_token_ids=True, **fields)
    choice = whole["choices"][0]
    a = rpc.ask(chat=KENYA, **fields)
    assert (a.text, a.ids) == (choice["message"]["content"], choice["token_ids"])
    assert f"{a.digest:016x}" == choice["digest"]


def test_token_ids_go_in_as_they_came_out(rpc, cluster):
    first = rpc.ask(text=STORY, max_tokens=12, temperature=0, ignore_eos=True)
    ids = [5, 6, 7] + first.ids
    http = http_completion(cluster, ids, max_tokens=12, temperature=0)
    a = rpc.ask(token_ids=ids, max_tokens=12, temperature=0)
    assert (a.ids, a.n_prompt) == (http["choices"][0]["token_ids"], len(ids))


def test_a_drawn_seed_is_returned_and_repeats_the_answer(rpc):
    first = rpc.ask(text=STORY, max_tokens=30, temperature=1)
    second = rpc.ask(text=STORY, max_tokens=30, temperature=1)
    again = rpc.ask(text=STORY, max_tokens=30, temperature=1, seed=first.seed)
    assert first.seed != second.seed and first.text != second.text
    assert (again.seed, again.ids, again.digest) == (first.seed, first.ids, first.digest)


def test_every_64_bit_seed_is_one(rpc):
    a = rpc.ask(text=STORY, max_tokens=5, seed=2**64 - 1)
    assert a.seed == 2**64 - 1


def test_stop_strings_end_the_text_before_them(rpc):
    whole = rpc.ask(text=STORY, max_tokens=60, temperature=0)
    stop = whole.text[10:14]
    a = rpc.ask(text=STORY, max_tokens=60, temperature=0, stop=["never to be seen", stop])
    assert (a.text, a.finish) == (whole.text[:whole.text.index(stop)], "stop")


def test_a_stop_token_ends_the_text(rpc):
    whole = rpc.ask(text=STORY, max_tokens=20, temperature=0)
    a = rpc.ask(text=STORY, max_tokens=20, temperature=0, stop_token_ids=[whole.ids[5]])
    assert (a.ids, a.finish) == (whole.ids[:whole.ids.index(whole.ids[5]) + 1], "stop")


def test_without_max_tokens_the_context_is_the_limit(rpc):
    a = rpc.ask(text=STORY, ignore_eos=True, temperature=0)
    assert a.n_prompt + len(a.ids) == 2048
    assert a.finish == "length"


def test_a_request_id_is_echoed_or_made(rpc):
    assert rpc.ask(text=STORY, max_tokens=1, request_id="mine-1").request_id == "mine-1"
    ids = {rpc.ask(text=STORY, max_tokens=1).request_id for _ in range(2)}
    assert len(ids) == 2 and all(len(i) == 32 for i in ids)


def test_fifty_streams_at_once_answer_as_alone(rpc, cluster):
    def one(i):
        return rpc.ask(text=STORY, max_tokens=30, temperature=1, seed=i % 10)
    alone = [one(i) for i in range(10)]
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        together = list(pool.map(one, range(50)))
    assert [(a.ids, a.text, a.digest) for a in together] == [(a.ids, a.text, a.digest) for a in alone] * 5
    wait_for("quiet", lambda: idle(cluster))


# --- clients that leave


def test_a_cancelled_call_frees_its_blocks(rpc, cluster):
    before = aborted(cluster)
    call = rpc.call(text=STORY, **LONG)
    for _ in range(3):
        next(call)
    wait_for("blocks", lambda: cluster.metric("vllm:kv_cache_usage_perc") > 0)  # the page may be a second old
    call.cancel()
    wait_for("quiet", lambda: idle(cluster), 5)
    assert aborted(cluster) == before + 1
    assert cluster.check_accounts() == "ok"


def test_a_deadline_ends_the_generation(rpc, cluster):
    before = aborted(cluster)
    code, _ = rpc.error(text=STORY, timeout=0.4, **LONG)
    assert code == grpc.StatusCode.DEADLINE_EXCEEDED
    wait_for("quiet", lambda: idle(cluster), 5)
    assert aborted(cluster) == before + 1


def test_a_killed_client_ends_its_generation(rpc, cluster, stubs):
    before = aborted(cluster)
    folder = pathlib.Path(stubs[0].__file__).parent
    script = (f"import grpc, generate_pb2 as pb, generate_pb2_grpc as rpc\n"
              f"stub = rpc.GenerateStub(grpc.insecure_channel('{rpc.address}'))\n"
              f"for part in stub.Generate(pb.GenerateRequest(text='{STORY}', max_tokens=1900, ignore_eos=True)): print(1, flush=True)\n")
    with subprocess.Popen([sys.executable, "-c", script], cwd=folder, stdout=subprocess.PIPE) as client:
        client.stdout.readline()
        client.send_signal(signal.SIGKILL)
    wait_for("quiet", lambda: idle(cluster), 5)
    assert aborted(cluster) == before + 1


def test_many_cancels_leave_nothing_behind(rpc, cluster):
    def one(i):
        call = rpc.call(text=STORY, seed=i, **LONG)
        if i % 3:
            next(call)
        if i % 3 == 2:
            time.sleep(i % 7 * 0.02)
        call.cancel()
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        list(pool.map(one, range(100)))
    wait_for("quiet", lambda: idle(cluster), 20)
    assert cluster.check_accounts() == "ok"
    assert rpc.ask(chat=KENYA, temperature=0).text == NAIROBI


def test_a_slow_reader_gets_the_whole_answer(rpc):
    fast = rpc.ask(text=STORY, max_tokens=300, ignore_eos=True, temperature=1, seed=3)
    call = rpc.call(text=STORY, max_tokens=300, ignore_eos=True, temperature=1, seed=3)
    parts = [next(call)]
    time.sleep(3)
    slow = joined(parts + list(call))
    assert (slow.ids, slow.text) == (fast.ids, fast.text)


# --- errors

WRONG = [
    ({}, "text"),
    ({"text": "a", "token_ids": [1]}, "text"),
    ({"chat": "a", "token_ids": [1]}, "messages"),
    ({"text": "a\0b"}, "text"),
    ({"token_ids": [5, 2048]}, "token_ids[1]"),
    ({"token_ids": [5] * 2048}, "token_ids"),
    ({"text": "word " * 5000}, "text"),
    ({"text": "a", "max_tokens": 5000}, "max_tokens"),
    ({"text": "a", "max_tokens": 2**31}, "max_tokens"),
    ({"text": "a", "temperature": 2.5}, "temperature"),
    ({"text": "a", "temperature": -1}, "temperature"),
    ({"text": "a", "temperature": float("nan")}, "temperature"),
    ({"text": "a", "top_p": 1.5}, "top_p"),
    ({"text": "a", "min_p": float("inf")}, "min_p"),
    ({"text": "a", "top_k": 2**32 - 1}, "top_k"),
    ({"text": "a", "stop": ["x"] * 17}, "stop"),
    ({"text": "a", "stop": [""]}, "stop"),
    ({"text": "a", "stop_token_ids": [2048]}, "stop_token_ids"),
    ({"text": "a", "request_id": "a b"}, "request_id"),
    ({"text": "a", "request_id": "x" * 129}, "request_id"),
]


@pytest.mark.parametrize("fields,name", WRONG, ids=[f"{i}-{name}" for i, (_, name) in enumerate(WRONG)])
def test_a_wrong_field_is_an_invalid_argument_that_names_it(rpc, fields, name):
    code, text = rpc.error(**fields)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert name in text


def test_a_wrong_role_is_named_with_its_place(rpc):
    messages = [rpc.pb.ChatMessage(role="user", content="a"), rpc.pb.ChatMessage(role="function", content="b")]
    code, text = rpc.error(messages=messages)
    assert (code, "messages[1].role" in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)


def raw(rpc, path, data, **kwargs):
    """One call with bytes that no stub would send."""
    call = rpc.channel.unary_stream(path, request_serializer=None, response_deserializer=None)
    with pytest.raises(grpc.RpcError) as caught:
        list(call(data, timeout=60, **kwargs))
    return caught.value.code(), caught.value.details()


def test_bytes_that_are_no_message_are_an_invalid_argument(rpc):
    for data in [b"\x0a\xff\xff\xff\xff\x0f", b"\x0b", b"\xff" * 100]:
        assert raw(rpc, "/moesaic.v1.Generate/Generate", data)[0] == grpc.StatusCode.INVALID_ARGUMENT


def test_a_field_that_is_not_known_is_refused_by_its_number(rpc):
    code, text = raw(rpc, "/moesaic.v1.Generate/Generate", b"\x0a\x01a\xa0\x06\x01")
    assert (code, "field 100" in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)


def test_text_that_is_not_utf8_is_refused(rpc):
    code, text = raw(rpc, "/moesaic.v1.Generate/Generate", b"\x0a\x02\xff\xfe")
    assert (code, "text" in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)


def test_an_unknown_method_is_unimplemented(rpc):
    for path in ["/moesaic.v1.Generate/Other", "/grpc.health.v1.Health/Other", "/moesaic.control.v1.Cluster/Join"]:
        assert raw(rpc, path, b"")[0] == grpc.StatusCode.UNIMPLEMENTED


def test_a_call_without_or_with_two_requests_is_refused(rpc):
    def calls(requests):
        call = rpc.channel.stream_stream("/moesaic.v1.Generate/Generate")
        with pytest.raises(grpc.RpcError) as caught:
            list(call(iter(requests), timeout=60))
        return caught.value.code()
    request = rpc.request(text=STORY, **LONG).SerializeToString()
    assert calls([]) == grpc.StatusCode.INVALID_ARGUMENT
    assert calls([request, request]) == grpc.StatusCode.INVALID_ARGUMENT


def test_a_request_over_the_limit_is_refused_and_one_below_it_is_read(rpc):
    code, _ = rpc.error(text="x" * (65 << 20))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    code, text = rpc.error(text="word " * (2 << 20))
    assert (code, "text" in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    assert rpc.ask(chat=KENYA, temperature=0).text == NAIROBI


@pytest.mark.parametrize("kind", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_compressed_request_is_read_within_bounds(rpc, cluster, kind):
    def ask(timeout=60, **fields):
        return list(rpc.stub.Generate(rpc.request(**fields), timeout=timeout, compression=kind))
    assert "".join(p.text for p in ask(chat=KENYA, temperature=0)) == NAIROBI
    before = cluster.metric("process_resident_memory_bytes")
    for n in [1 << 20, 200 << 20]:  # a bomb, of 1 KB and of 200 KB
        with pytest.raises(grpc.RpcError) as caught:
            ask(text="x" * n)
        assert (caught.value.code(), "unpacks" in caught.value.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)
    assert cluster.metric("process_resident_memory_bytes") < before + (100 << 20)
    assert "".join(p.text for p in ask(chat=KENYA, temperature=0)) == NAIROBI


def test_nothing_of_the_errors_stays(cluster):
    wait_for("quiet", lambda: idle(cluster), 20)
    assert cluster.check_accounts() == "ok"


# --- clusters of their own


def test_a_full_queue_is_resource_exhausted(stubs):
    with Cluster(workers=1, leader_flags=["--max-num-queued-reqs", "2"]) as cluster, connect(stubs, cluster) as rpc:
        calls = [rpc.call(text=STORY, **LONG) for _ in range(2)]
        for call in calls:
            next(call)
        code, text = rpc.error(text=STORY)
        assert (code, "2 waiting and running" in text) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)
        for call in calls:
            call.cancel()
        wait_for("quiet", lambda: idle(cluster))
        assert rpc.ask(chat=KENYA, temperature=0).text == NAIROBI


def test_a_key_is_asked_for_and_each_has_request_ids_of_its_own(stubs, tmp_path):
    path = tmp_path / "keys"
    path.write_text("alice correct-horse\nbob battery-staple\n")
    with Cluster(workers=1, leader_flags=["--api-key-file", path]) as cluster:
        for key in [None, "", "alice", "correct-hors", "correct-horsf", "correct-horse battery"]:
            with connect(stubs, cluster, key) as rpc:
                assert rpc.error(chat=KENYA)[0] == grpc.StatusCode.UNAUTHENTICATED
        with connect(stubs, cluster, "correct-horse") as alice, connect(stubs, cluster, "battery-staple") as bob:
            assert alice.ask(chat=KENYA, temperature=0).text == NAIROBI
            mine = alice.call(text=STORY, request_id="same", **LONG)
            first = next(mine)
            assert bob.ask(text=STORY, request_id="same", max_tokens=1).finish == "length"
            assert bob.abort("same") == 0
            assert alice.abort("same") == 1
            assert joined([first, *mine]).finish == "abort"


def test_a_worker_lost_for_long_aborts_what_ran_and_is_unavailable_until_one_is_back(stubs):
    with Cluster(workers=1, leader_flags=["--recovery-timeout", "2"]) as cluster, connect(stubs, cluster) as rpc:
        call = rpc.call(text=STORY, **LONG)
        next(call)
        cluster.workers[0].end()
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        assert caught.value.code() == grpc.StatusCode.ABORTED  # it had begun: nobody tries it again unasked
        assert rpc.error(text=STORY)[0] == grpc.StatusCode.UNAVAILABLE
        cluster.workers = [cluster.start_worker()]
        cluster.wait_ready()
        assert rpc.ask(chat=KENYA, temperature=0).text == NAIROBI


def test_a_leader_that_stops_ends_its_calls_and_itself(stubs):
    with Cluster(workers=1, leader_flags=["--shutdown-timeout", "1"]) as cluster, connect(stubs, cluster) as rpc:
        calls = [rpc.call(text=STORY, **LONG) for _ in range(20)]
        for call in calls[:10]:
            next(call)
        waiting = rpc.channel.stream_stream("/moesaic.v1.Generate/Generate")
        hold = iter(lambda: time.sleep(20), 0)  # a call that never asks
        waiting(hold)
        cluster.leader.send(signal.SIGTERM)
        for call in calls:
            with contextlib.suppress(grpc.RpcError):
                list(call)
        assert cluster.leader.wait(20) == 0
        assert "accounts ok" in cluster.leader.log()


def test_a_port_in_use_is_an_error_that_names_it():
    with Cluster(workers=1) as cluster:
        port = cluster.port_of("grpc listening")
        second = subprocess.run([BUILD / "moe-leader", "--model", MODEL, "--port", "0", "--control-port", "0", "--grpc-port",
                                 str(port)], capture_output=True, text=True, timeout=60)
        said = f"--grpc-port {port}: cannot listen on 127.0.0.1:{port}: Address already in use"
        assert (second.returncode, said in second.stderr) == (1, True)


# --- what the demo says


def python_of(text):
    """The lines of Python and the protoc command in deploy/demo.sh."""
    protoc = re.search(r"python (-m grpc_tools\.protoc [^)]*)\)", text).group(1)
    lines = text[text.index("\ngRPC ("):].split("\nTEXT\n")[0].split("\n")[2:]
    return protoc, "\n".join(line.removeprefix("  ") for line in lines)


def test_the_lines_of_the_demo_work_as_they_are(cluster, tmp_path):
    protoc, python = python_of((ROOT / "deploy" / "demo.sh").read_text())
    assert python.count("$rpc") == 1
    python = python.replace("$rpc", f"127.0.0.1:{cluster.port_of('grpc listening')}")
    shutil.copytree(ROOT / "proto", tmp_path / "proto")
    subprocess.run([sys.executable, *protoc.split()], cwd=tmp_path, check=True)
    done = subprocess.run([sys.executable, "-c", python], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout) > 20
