"""test_grpc_service.py: log-probabilities, choices, request ids, Abort, the infos, statuses, deadlines and retries of
proto/generate.proto, with grpcio against real processes."""
import concurrent.futures
import itertools
import json
import os
import signal
import subprocess
import sys
import time

import grpc
import pytest
import requests

from cluster import Cluster, wait_for
from grpc_client import aborted, connect, idle, joined, told

KENYA = "What is the capital of Kenya?"
STORY = "Once upon a time"
LONG = {"max_tokens": 1900, "ignore_eos": True, "temperature": 1}
Code = grpc.StatusCode
names = (f"call-{i}" for i in itertools.count())


def http(cluster, prompt, **fields):
    r = cluster.post("/v1/completions", {"model": "seedling", "prompt": prompt, "return_token_ids": True, **fields})
    r.raise_for_status()
    return r.json()


def quiet(cluster):
    wait_for("quiet", lambda: idle(cluster), 20)
    assert cluster.check_accounts() == "ok"


# --- log-probabilities and choices


def test_logprobs_are_those_of_the_http_chat_api(rpc, cluster):
    choice = cluster.chat(KENYA, logprobs=True, top_logprobs=7, return_token_ids=True)["choices"][0]
    a = rpc.ask(chat=KENYA, temperature=0, logprobs=7)
    assert (a.ids, f"{a.digest:016x}") == (choice["token_ids"], choice["digest"])
    told_by_http = choice["logprobs"]["content"]
    assert len(a.logprobs) == len(told_by_http) + 1  # the stop token has them here, too
    for mine, other in zip(a.logprobs, told_by_http):
        assert (mine.logprob, list(mine.token)) == (pytest.approx(other["logprob"], rel=1e-8), other["bytes"])
        assert [(t.logprob, list(t.token)) for t in mine.top] == [(pytest.approx(t["logprob"], rel=1e-8), t["bytes"])
                                                                  for t in other["top_logprobs"]]


def test_logprobs_are_those_of_the_http_completions_api(rpc, cluster):
    fields = {"max_tokens": 30, "temperature": 1, "seed": 11}
    choice = http(cluster, STORY, logprobs=3, **fields)["choices"][0]
    a = rpc.ask(text=STORY, logprobs=3, **fields)
    assert a.ids == choice["token_ids"]
    values = choice["logprobs"]["token_logprobs"]
    assert [k.logprob for k in a.logprobs][:len(values)] == [pytest.approx(v, rel=1e-8) for v in values]


def test_every_token_has_its_logprob_in_its_place_among_the_alternatives(rpc):
    a = rpc.ask(text=STORY, max_tokens=40, temperature=0, logprobs=20)
    assert len(a.logprobs) == len(a.ids) > 10
    for token, k in zip(a.ids, a.logprobs):
        assert len(k.top) == 20 and k.top[0].token_id == token and k.top[0].logprob == k.logprob  # greedy
        values = [t.logprob for t in k.top]
        assert values == sorted(values, reverse=True) and values[0] <= 0
        assert len({t.token_id for t in k.top}) == 20
    assert b"".join(k.token for k in a.logprobs).decode() == a.text


@pytest.mark.parametrize("n", [0, 1, None])
def test_logprobs_come_as_asked(rpc, n):
    fields = {} if n is None else {"logprobs": n}
    a = rpc.ask(text=STORY, max_tokens=5, temperature=1, seed=1, ignore_eos=True, **fields)
    assert len(a.logprobs) == (0 if n is None else 5)
    assert {len(k.top) for k in a.logprobs} <= {n}


def test_choices_are_those_of_http(rpc, cluster):
    fields = {"max_tokens": 20, "temperature": 1, "seed": 5, "n": 4}
    whole = http(cluster, STORY, **fields)
    choices = rpc.choices(text=STORY, logprobs=1, **fields)
    assert [(c.text, c.ids, f"{c.digest:016x}") for c in choices] == [(c["text"], c["token_ids"], c["digest"])
                                                                     for c in whole["choices"]]
    assert len({c.text for c in choices}) > 1
    assert all(len(c.logprobs) == len(c.ids) for c in choices)
    assert choices[0].ids == rpc.ask(text=STORY, max_tokens=20, temperature=1, seed=5).ids


def test_a_stop_string_is_named_and_a_stop_token_is_not(rpc):
    whole = rpc.ask(text=STORY, max_tokens=60, temperature=0)
    stop = whole.text[10:14]
    a = rpc.ask(text=STORY, max_tokens=60, temperature=0, stop=["never to be seen", stop])
    assert (a.finish, a.stop_reason) == ("stop", stop)
    assert rpc.ask(chat=KENYA, temperature=0).stop_reason == ""


STEERED = [{"presence_penalty": 1.5}, {"frequency_penalty": 2}, {"repetition_penalty": 1.5}, {"min_tokens": 30}, {"bad_words": [" the"]},
           {"allowed_token_ids": list(range(100, 600))}, {"logit_bias": {300: 5, 301: -100, 2047: 0}}]


@pytest.mark.parametrize("fields", STEERED, ids=lambda f: next(iter(f)))
def test_what_steers_the_choice_of_tokens_does_so_as_over_http(rpc, cluster, fields):
    common = {"max_tokens": 40, "temperature": 1, "seed": 3}
    choice = http(cluster, STORY, **common, **fields)["choices"][0]
    mine = dict(fields)
    if "logit_bias" in fields:
        mine["logit_bias"] = [rpc.pb.TokenBias(token_id=i, bias=x) for i, x in fields["logit_bias"].items()]
    a = rpc.ask(text=STORY, **common, **mine)
    assert (a.ids, f"{a.digest:016x}") == (choice["token_ids"], choice["digest"])


def test_special_tokens_are_text_when_they_are_asked_for(rpc):
    a = rpc.ask(chat=KENYA, temperature=0, show_special_tokens=True, stop_token_ids=[], ignore_eos=True, max_tokens=30)
    b = rpc.ask(chat=KENYA, temperature=0, ignore_eos=True, max_tokens=30)
    assert a.ids == b.ids and "<|im_end|>" in a.text and "<|im_end|>" not in b.text


# --- request ids


def header(call):
    return dict(call.initial_metadata()).get("x-request-id")


def test_the_request_id_is_in_the_initial_metadata_wherever_it_comes_from(rpc):
    request = rpc.request(text=STORY, max_tokens=1)
    call = rpc.stub.Generate(request, timeout=60, metadata=[("x-request-id", "from-metadata")])
    assert (header(call), joined(call).request_id) == ("from-metadata", "from-metadata")
    request.request_id = "from-field"
    call = rpc.stub.Generate(request, timeout=60, metadata=[("x-request-id", "from-metadata")])
    assert (header(call), joined(call).request_id) == ("from-field", "from-field")
    call = rpc.call(text=STORY, max_tokens=1)
    drawn = header(call)
    assert len(drawn) == 32 and joined(call).request_id == drawn
    call = rpc.stub.Generate(rpc.request(text=STORY, max_tokens=1), timeout=60, metadata=[("x-request-id", "a b")])
    assert len(header(call)) == 32  # what is no id is not taken
    list(call)


def test_an_error_carries_the_request_id_too(rpc):
    call = rpc.call(text=STORY, temperature=9, request_id="wrong-1")
    with pytest.raises(grpc.RpcError):
        list(call)
    assert ("x-request-id", "wrong-1") in call.trailing_metadata()


def test_an_id_in_flight_is_refused_and_the_first_call_goes_on(rpc, cluster):
    name = next(names)
    call = rpc.call(text=STORY, request_id=name, max_tokens=200, ignore_eos=True, temperature=1, seed=1)
    first = next(call)
    code, text = rpc.error(text=STORY, request_id=name)
    assert (code, name in text) == (Code.ALREADY_EXISTS, True)
    assert len(joined([first, *call]).ids) == 200
    for _ in range(100):  # free again as soon as the end is heard
        assert rpc.ask(text=STORY, request_id=name, max_tokens=1).request_id == name
    quiet(cluster)


# --- Abort


def test_an_aborted_generation_ends_with_what_it_had(rpc, cluster):
    before = aborted(cluster)
    name = next(names)
    call = rpc.call(text=STORY, request_id=name, **LONG)
    parts = [next(call) for _ in range(4)]
    assert rpc.abort(name, "unknown", name) == 1
    a = joined(parts + list(call))
    assert (a.finish, call.code()) == ("abort", Code.OK)
    assert 1 <= len(a.ids) < 1900
    quiet(cluster)
    assert aborted(cluster) == before + 1
    assert rpc.abort(name) == 0


def test_abort_ends_all_choices(rpc, cluster):
    before = aborted(cluster)
    name = next(names)
    call = rpc.call(text=STORY, request_id=name, n=3, **LONG)
    parts = [next(call)]
    assert rpc.abort(name) == 1
    choices = told(parts + list(call))
    assert [c.finish for c in choices] == ["abort"] * 3
    quiet(cluster)
    assert aborted(cluster) == before + 3


def test_many_aborts_at_any_moment_leave_nothing_behind(rpc, cluster):
    def one(i):
        name = next(names)
        call = rpc.call(text=STORY, request_id=name, seed=i, **LONG)
        time.sleep(i % 8 * 0.01)
        while rpc.abort(name) == 0:  # until the leader has read the request
            pass
        return joined(call).finish
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        assert set(pool.map(one, range(60))) == {"abort"}
    quiet(cluster)


@pytest.mark.parametrize("ids", [[], [""], ["a b"], ["x" * 129], ["a\0b"], ["x"] * 1025], ids=repr)
def test_abort_refuses_what_is_no_list_of_ids(rpc, ids):
    with pytest.raises(grpc.RpcError) as caught:
        rpc.abort(*ids)
    assert (caught.value.code(), "request_ids" in caught.value.details()) == (Code.INVALID_ARGUMENT, True)


# --- fields

def biases(*pairs):
    return {"text": "a", "logit_bias": list(pairs)}


WRONG = [
    (biases((5, 101)), "logit_bias"),
    (biases((5, float("nan"))), "logit_bias"),
    (biases((2048, 1)), "logit_bias"),
    (biases((5, 1), (5, 2)), "logit_bias"),
    (biases(*((i, 1) for i in range(301))), "logit_bias"),
    ({"text": "a", "presence_penalty": 2.5}, "presence_penalty"),
    ({"text": "a", "frequency_penalty": float("-inf")}, "frequency_penalty"),
    ({"text": "a", "repetition_penalty": 0}, "repetition_penalty"),
    ({"text": "a", "repetition_penalty": float("nan")}, "repetition_penalty"),
    ({"text": "a", "allowed_token_ids": [2048]}, "allowed_token_ids"),
    ({"text": "a", "allowed_token_ids": [1] * 1025}, "allowed_token_ids"),
    ({"text": "a", "bad_words": ["x"] * 65}, "bad_words"),
    ({"text": "a", "bad_words": [""]}, "bad_words"),
    ({"text": "a", "bad_words": ["a\0"]}, "bad_words"),
    ({"text": "a", "min_tokens": 2**32 - 1}, "min_tokens"),
    ({"text": "a", "min_tokens": 9, "max_tokens": 8}, "min_tokens"),
    ({"text": "a", "n": 129}, "n"),
    ({"text": "a", "n": 2**32 - 1}, "n"),
    ({"text": "a", "logprobs": 21}, "logprobs"),
    ({"chat": "a", "logprobs": 2**32 - 1}, "logprobs"),
    ({"text": "a", "model": "a\0"}, "model"),
    ({"text": "a", "temperature": float("inf")}, "temperature"),
    ({"text": "a", "temperature": float("-inf")}, "temperature"),
    ({"text": "a", "top_p": float("nan")}, "top_p"),
    ({"text": "a", "top_p": -0.1}, "top_p"),
    ({"text": "a", "min_p": -1e-3}, "min_p"),
    ({"text": "a", "top_k": 2**31}, "top_k"),
    ({"text": "a", "max_tokens": 2**32 - 1}, "max_tokens"),
    ({"text": "a", "stop": ["x" * 1025]}, "stop"),
    ({"text": "a", "stop_token_ids": [1] * 9}, "stop_token_ids"),
    ({"text": "a", "stop_token_ids": [2**32 - 1]}, "stop_token_ids"),
    ({"token_ids": [2**32 - 1]}, "token_ids[0]"),
    ({"text": "a", "request_id": "a\0"}, "request_id"),
]


@pytest.mark.parametrize("fields,name", WRONG, ids=[f"{i}-{name}" for i, (_, name) in enumerate(WRONG)])
def test_a_wrong_field_is_an_invalid_argument_that_names_it(rpc, fields, name):
    if "logit_bias" in fields:
        fields = {**fields, "logit_bias": [rpc.pb.TokenBias(token_id=i, bias=x) for i, x in fields["logit_bias"]]}
    code, text = rpc.error(**fields)
    assert (code, f"'{name}" in text) == (Code.INVALID_ARGUMENT, True)


def test_the_ends_of_every_range_are_taken(rpc):
    for fields in [{"temperature": 0}, {"temperature": 2}, {"top_p": 0}, {"top_p": 1}, {"min_p": 0}, {"min_p": 1}, {"top_k": 0},
                   {"top_k": 2**31 - 1}, {"seed": 0}, {"seed": 2**63}, {"n": 1}, {"logprobs": 20}, {"stop": ["x" * 1024]},
                   {"stop_token_ids": [0, 2047] * 4}, {"request_id": "~" * 128}, {"token_ids": [2047]}]:
        rpc.ask(max_tokens=2, **({"text": "a"} if "token_ids" not in fields else {}), **fields)


def test_128_choices_at_once(rpc, cluster):
    choices = rpc.choices(text=STORY, n=128, max_tokens=2, temperature=2, ignore_eos=True)
    assert [len(c.ids) for c in choices] == [2] * 128
    quiet(cluster)


def test_the_model_is_checked_as_over_http(rpc):
    assert rpc.ask(text=STORY, model="seedling", max_tokens=1).finish == "length"
    code, text = rpc.error(text=STORY, model="other")
    assert (code, text) == (Code.NOT_FOUND, "The model 'other' does not exist.")


# --- infos


def info(rpc, name):
    return getattr(rpc.stub, name)(getattr(rpc.pb, name + "Request")(), timeout=60)


def test_the_model_is_described(rpc, cluster):
    m = info(rpc, "GetModelInfo")
    config = json.loads((cluster.model / "config.json").read_text())
    assert (m.name, m.architecture) == ("seedling", config["architectures"][0])
    assert (m.vocab_size, m.max_model_len) == (config["vocab_size"], 2048)
    assert (m.layers, m.experts, m.experts_per_token) == (config["num_hidden_layers"], config["num_experts"],
                                                          config["num_experts_per_tok"])
    assert m.moe_layers == m.layers and m.has_chat_template and m.arithmetic_class == "base"
    assert m.dtype in ("bfloat16", "float32", "float16") and m.kv_dtype in ("bfloat16", "float32")
    assert f"{m.model_digest:016x}" in cluster.chat(KENYA, max_tokens=1)["system_fingerprint"]
    assert rpc.ask(chat=KENYA, temperature=0).ids[-1] in m.eos_token_ids


def test_the_server_is_described(rpc, cluster):
    s = info(rpc, "GetServerInfo")
    version = requests.get(cluster.url + "/version", timeout=10).json()
    assert (s.version, s.build_id) == (version["version"], version["build"])
    assert s.ready and s.ranks_wanted == s.ranks_present == 2 and s.epoch >= 1
    assert abs(time.time() - s.uptime_s - s.started_unix_s) < 60
    assert (s.max_logprobs, s.max_choices, s.kv_block_tokens, s.digest) == (20, 128, 16, True)
    assert s.max_queued_requests > 0 and s.max_running_per_rank > 0 and s.max_batched_tokens > 0
    assert info(rpc, "GetServerInfo").uptime_s > s.uptime_s


def test_the_load_follows_what_runs(rpc, cluster):
    quiet(cluster)
    before = info(rpc, "GetLoad")
    assert (before.running, before.waiting, before.admitted, before.kv_blocks_used) == (0, 0, 0, 0)
    calls = [rpc.call(text=STORY, seed=i, **LONG) for i in range(4)]
    for call in calls:
        next(call)
    load = wait_for("four running", lambda: (now := info(rpc, "GetLoad")).running == 4 and now)
    assert load.admitted == 4 and load.admitted <= load.max_queued_requests
    assert sum(r.running for r in load.ranks) == 4 and [r.rank for r in load.ranks] == [0, 1]
    assert all(r.ready and r.running == 2 and 0 < r.kv_usage < 1 for r in load.ranks)  # spread evenly
    assert load.kv_blocks_used == sum(r.kv_blocks_used for r in load.ranks) > 0
    assert load.kv_usage == pytest.approx(load.kv_blocks_used / load.kv_blocks)
    later = wait_for("progress", lambda: (now := info(rpc, "GetLoad")).generation_tokens > load.generation_tokens and now)
    assert later.time_ns > load.time_ns and later.steps > load.steps
    for call in calls:
        call.cancel()
    quiet(cluster)
    assert info(rpc, "GetLoad").kv_usage == 0


def test_an_info_refuses_what_it_does_not_know(rpc):
    for name in ["GetModelInfo", "GetServerInfo", "GetLoad"]:
        call = rpc.channel.unary_unary(f"/moesaic.v1.Generate/{name}")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"\x08\x01", timeout=60)
        assert (caught.value.code(), caught.value.details()) == (Code.INVALID_ARGUMENT, "field 1 is not supported.")


# --- deadlines and cancellation, each at every stage of a request's life


@pytest.fixture(scope="module")
def narrow():
    """One slot and small steps: of two requests one waits, and a long prompt takes many steps."""
    flags = ["--max-num-seqs", "1", "--max-num-batched-tokens", "4", "--max-num-queued-reqs", "4"]
    with Cluster(workers=1, leader_flags=flags) as running:
        yield running


def stage(rpc, kind):
    """Calls that hold what the stage needs, and the fields of a request that stays in it for a while."""
    if kind == "queued":
        running = rpc.call(text=STORY, **LONG)
        next(running)
        return [running, *(rpc.call(text=STORY, **LONG) for _ in range(2))], {"text": STORY, **LONG}
    if kind == "prefill":
        return [], {"token_ids": [5 + i % 1000 for i in range(1900)], "max_tokens": 100}
    return [], {"text": STORY, **LONG}


STAGES = pytest.mark.parametrize("kind", ["queued", "prefill", "decode"])


@STAGES
def test_a_deadline_ends_a_request_in_every_stage(stubs, narrow, kind):
    with connect(stubs, narrow) as rpc:
        before = aborted(narrow)
        holders, fields = stage(rpc, kind)
        assert rpc.error(timeout=0.2, **fields)[0] == Code.DEADLINE_EXCEEDED
        wait_for("the abort", lambda: aborted(narrow) == before + 1, 5)  # what runs goes on
        for call in holders:
            call.cancel()
        quiet(narrow)


@STAGES
@pytest.mark.parametrize("how", ["cancel", "abort"])
def test_cancelling_and_aborting_end_a_request_in_every_stage(stubs, narrow, kind, how):
    with connect(stubs, narrow) as rpc:
        before = aborted(narrow)
        holders, fields = stage(rpc, kind)
        name = next(names)
        call = rpc.call(request_id=name, **fields)
        wait_for("inside", lambda: narrow.metric("moesaic_requests_admitted") > len(holders))
        head = [next(call)] if kind == "decode" else []  # on a slow machine with a token
        if how == "cancel":
            call.cancel()
        else:
            assert rpc.abort(name) == 1
            assert joined([*head, *call]).finish == "abort"
        wait_for("the abort", lambda: aborted(narrow) == before + 1, 5)
        for holder in holders:
            holder.cancel()
        quiet(narrow)


def test_a_deadline_is_kept_for_a_client_that_stands_still(rpc, cluster, stubs):
    script = (f"import grpc, generate_pb2 as pb, generate_pb2_grpc as rpc\n"
              f"stub = rpc.GenerateStub(grpc.insecure_channel('{rpc.address}'))\n"
              f"request = pb.GenerateRequest(text='{STORY}', max_tokens=1900, ignore_eos=True, n=32)\n"
              f"for part in stub.Generate(request, timeout=2): print(1, flush=True)\n")
    before = aborted(cluster)
    folder = os.path.dirname(stubs[0].__file__)
    with subprocess.Popen([sys.executable, "-c", script], cwd=folder, stdout=subprocess.PIPE) as client:
        client.stdout.readline()
        client.send_signal(signal.SIGSTOP)  # it will not say that its time is over
        wait_for("quiet", lambda: idle(cluster), 8)  # keepalive would need ten
        client.kill()
    assert aborted(cluster) == before + 32  # every choice, none of which had time to end


# --- refusals that will pass, and clients that try again by themselves


def pushback(error):
    return dict(error.trailing_metadata()).get("grpc-retry-pushback-ms")


def retrying(rpc, code, attempts=5):
    policy = {"maxAttempts": attempts, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
              "retryableStatusCodes": [code]}
    config = {"methodConfig": [{"name": [{"service": "moesaic.v1.Generate"}], "retryPolicy": policy}]}
    return grpc.insecure_channel(rpc.address, options=[("grpc.service_config", json.dumps(config)),
                                                       ("grpc.use_local_subchannel_pool", 1)])


def test_a_full_queue_pushes_back_and_a_retrying_client_gets_in(stubs, narrow):
    with connect(stubs, narrow) as rpc:
        with pytest.raises(grpc.RpcError) as caught:  # what will not pass is not pushed back
            list(rpc.call(text=STORY, n=129))
        assert pushback(caught.value) is None
        calls = [rpc.call(text=STORY, **LONG) for _ in range(4)]
        wait_for("full", lambda: narrow.metric("moesaic_requests_admitted") == 4)
        with pytest.raises(grpc.RpcError) as caught:
            list(rpc.call(text=STORY))
        assert caught.value.code() == Code.RESOURCE_EXHAUSTED
        over_http = narrow.post("/v1/completions", {"prompt": STORY})
        assert over_http.status_code == 429
        assert pushback(caught.value) == over_http.headers["Retry-After"] + "000"  # nothing has ended in between
        with retrying(rpc, "RESOURCE_EXHAUSTED") as channel:
            call = stubs[1].GenerateStub(channel).Generate(rpc.request(text=STORY, max_tokens=2, ignore_eos=True), timeout=60)
            wait_for("a refusal", lambda: narrow.metric("vllm:admission_rejections_total", reason="queue_full") >= 2)
            for other in calls:
                other.cancel()
            assert len(joined(call).ids) == 2
        quiet(narrow)


def test_without_a_group_and_while_it_drains_a_leader_pushes_back(stubs):
    with Cluster(workers=1) as cluster, connect(stubs, cluster) as rpc:
        cluster.workers[0].send(signal.SIGTERM)  # it leaves on purpose: nobody may come instead
        cluster.workers[0].end_after(signal.SIGTERM)
        wait_for("not ready", lambda: not cluster.ready())
        with pytest.raises(grpc.RpcError) as caught:
            list(rpc.call(text=STORY))
        assert (caught.value.code(), pushback(caught.value)) == (Code.UNAVAILABLE, "1000")
        s = info(rpc, "GetServerInfo")
        assert (s.ready, s.ranks_wanted, s.ranks_present) == (False, 1, 0) and s.state != ""
        with retrying(rpc, "UNAVAILABLE", attempts=3) as channel, pytest.raises(grpc.RpcError):
            list(stubs[1].GenerateStub(channel).Generate(rpc.request(text=STORY), timeout=60))
        assert cluster.metric("vllm:admission_rejections_total", reason="unavailable") == 1 + 3
        cluster.workers = [cluster.start_worker()]
        cluster.wait_ready()
        running = rpc.call(text=STORY, **LONG)
        next(running)
        cluster.leader.send(signal.SIGTERM)
        wait_for("draining", lambda: not info(rpc, "GetServerInfo").ready)
        with pytest.raises(grpc.RpcError) as caught:
            list(rpc.call(text=STORY))
        assert (caught.value.code(), pushback(caught.value)) == (Code.UNAVAILABLE, "1000")
        running.cancel()
        assert cluster.leader.wait(30) == 0
        assert "accounts ok" in cluster.leader.log()
