"""test_limits.py: every number's range, every size's limit, slow clients and bursts: what the front refuses, by which name, and
that nothing of it stays."""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import socket
import threading
import time

import pytest
import requests

from cluster import Cluster, wait_for

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HELLO = '"messages":[{"role":"user","content":"hi"}]'
TIMEOUT_S = 2
PLACES = 4
NO_MORE = 2 ** 31 - 1
CONTEXT, VOCABULARY = 2048, 2048  # of the embedded model


@pytest.fixture(scope="module")
def session(cluster):
    with requests.Session() as made:
        yield made
    assert cluster.leader.alive()
    assert cluster.chat("What is the capital of Kenya?")["choices"][0]["message"]["content"] == "The capital of Kenya is Nairobi."


@pytest.fixture(scope="module")
def narrow():
    """Impatient, with few places and few descriptors."""
    flags = ["--http-timeout", str(TIMEOUT_S), "--max-num-queued-reqs", str(PLACES), "--max-num-seqs", "4"]
    with Cluster(workers=1, leader_flags=flags, leader_prefix=["prlimit", "--nofile=600:600"]) as running:
        yield running
        wait_for("quiet", lambda: settled(running), 60)
        assert running.check_accounts() == "ok"
        assert "Nairobi" in running.chat("What is the capital of Kenya?")["choices"][0]["message"]["content"]


def settled(cluster):
    return (cluster.metric("vllm:num_requests_running") == 0 and cluster.metric("vllm:num_requests_waiting") == 0
            and cluster.metric("vllm:kv_cache_usage_perc") == 0 and cluster.metric("moesaic_requests_admitted") == 0
            and cluster.metric("moesaic_http_requests_in_flight") == 1)  # the one that asks


def post(cluster, session, path, body):
    return session.post(cluster.url + path, data=body if isinstance(body, bytes) else body.encode(), timeout=60)


def refused(response, param, *words, status=400):
    assert response.status_code == status, response.text[:300]
    error = response.json()["error"]
    assert error["param"] == param, error
    for word in words:
        assert word in error["message"], error


# --- numbers

VALUES = ["-1", "-0", "0", "1", "1.0", "1e0", "1.5", "-0.0", "2.0000001", "21", "129", "4096", "2147483647", "2147483648", "4294967295", "4294967296",
          "4294967297", "-2147483649", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551616", "1e18", "1e308",
          "1e400", "-1e400", "1e-400", "NaN", "Infinity", "-Infinity", "01", "0x10", "1.", ".5", "+1", "-", '"1"', '""', "true", "false", "[]", "[1]",
          "{}", "null"]
NOT_JSON = {"1e400", "-1e400", "NaN", "Infinity", "-Infinity", "01", "0x10", "1.", ".5", "+1", "-", "9223372036854775808", "-9223372036854775809",
            "18446744073709551616"}  # JSON integers have 64 bits here, others are doubles
# field: (is an integer, least, most, endpoints)
NUMBERS = {
    "temperature": (False, 0, 2, "chat completion"), "top_p": (False, 0, 1, "chat completion"), "min_p": (False, 0, 1, "chat completion"),
    "presence_penalty": (False, -2, 2, "chat completion"), "frequency_penalty": (False, -2, 2, "chat completion"),
    "top_k": (True, -1, NO_MORE, "chat completion"), "n": (True, 1, 128, "chat completion"), "seed": (True, -2 ** 63, 2 ** 63 - 1, "chat completion"),
    "max_tokens": (True, 1, NO_MORE, "chat completion"), "max_completion_tokens": (True, 1, NO_MORE, "chat"),
    "min_tokens": (True, 0, NO_MORE, "chat completion"), "top_logprobs": (True, 0, 20, "chat"), "logprobs": (True, 0, 20, "completion"),
}


def expected(field, text):
    """Whether the value is accepted, and a word of the message otherwise."""
    integer, least, most, _ = NUMBERS[field]
    if text in NOT_JSON:
        return False, "JSON"
    value = json.loads(text)
    if value is None:
        return True, ""
    if isinstance(value, (bool, str, list, dict)) or (integer and value != int(value)) or (integer and isinstance(value, float) and abs(value) > 2 ** 53):
        return False, "must be"
    if not least <= value <= most:
        return False, "between"
    if field in ("max_tokens", "max_completion_tokens") and value >= CONTEXT:
        return False, "context"
    return True, ""


@pytest.mark.parametrize("endpoint, field", [(e, f) for f, row in NUMBERS.items() for e in row[3].split()])
def test_every_number_has_its_range(cluster, session, endpoint, field):
    for text in VALUES:
        more = "" if field in ("max_tokens", "max_completion_tokens", "min_tokens") else ',"max_tokens":1'
        more += ',"logprobs":true' if field == "top_logprobs" else ""
        more += ',"ignore_eos":true,"max_tokens":2' if field == "min_tokens" and text in ("1", "1.0", "1e0") else ""
        body = '{%s,"%s":%s%s}' % (HELLO if endpoint == "chat" else '"prompt":"hi"', field, text, more)
        good, word = expected(field, text)
        if field == "min_tokens" and good and text not in ("1", "1.0", "1e0", "0", "-0", "-0.0", "1e-400", "null"):
            continue  # more than the answer's length: another rule
        response = post(cluster, session, CHAT if endpoint == "chat" else COMPLETIONS, body)
        assert (response.status_code == 200) == good, (field, text, response.text[:300])
        if not good:
            refused(response, field, field, word)


@pytest.mark.parametrize("bad", ["-1", str(VOCABULARY), "2147483648", "4294967296", str(2 ** 63 - 1), "1.5", "1e4", "true", '"1"', "null", "[1]", "{}"])
def test_ids_outside_the_vocabulary_are_refused(cluster, session, bad):
    refused(post(cluster, session, COMPLETIONS, '{"prompt":[1,%s],"max_tokens":1}' % bad), "prompt", "prompt")
    refused(post(cluster, session, COMPLETIONS, '{"prompt":[[1],[1,%s]],"max_tokens":1}' % bad), "prompt", "prompt")
    refused(post(cluster, session, COMPLETIONS, '{"prompt":[1],"stop_token_ids":[%s]}' % bad), "stop_token_ids", "stop_token_ids")
    refused(post(cluster, session, COMPLETIONS, '{"prompt":[1],"allowed_token_ids":[%s]}' % bad), "allowed_token_ids", "allowed_token_ids")
    key = bad.strip('"')
    if key not in ("1",) and not key.startswith(("[", "{")):
        refused(post(cluster, session, COMPLETIONS, '{"prompt":[1],"logit_bias":{"%s":1}}' % key), "logit_bias", "logit_bias")


def test_ids_beyond_64_bits_are_refused(cluster, session):
    for bad in ["9223372036854775808", "18446744073709551616", "1e400", "NaN"]:
        refused(post(cluster, session, COMPLETIONS, '{"prompt":[1,%s]}' % bad), "prompt", "JSON")


def test_the_last_id_of_the_vocabulary_is_taken(cluster, session):
    assert post(cluster, session, COMPLETIONS, '{"prompt":[0,%d],"max_tokens":1}' % (VOCABULARY - 1)).status_code == 200


# --- sizes

def messages(n, content='"x"'):
    return '{"messages":[%s],"max_tokens":1}' % ",".join(['{"role":"user","content":%s}' % content] * n)


def parts(n):
    return messages(1, "[%s]" % ",".join(['{"type":"text","text":""}'] * n))


SIZES = [
    (CHAT, messages(8193), "messages", "8192"),
    (CHAT, parts(1025), "messages[0].content", "1024"),
    (CHAT, "{%s,%s}" % (HELLO, '"stop":%s' % json.dumps(["a"] * 17)), "stop", "16"),
    (CHAT, "{%s,%s}" % (HELLO, '"stop":"%s"' % ("a" * 1025)), "stop", "1024"),
    (CHAT, "{%s,%s}" % (HELLO, '"stop":""'), "stop", "1024"),
    (CHAT, '{%s,"n":129}' % HELLO, "n", "128"),
    (CHAT, '{%s,"logprobs":true,"top_logprobs":21}' % HELLO, "top_logprobs", "20"),
    (CHAT, '{%s,"stop_token_ids":%s}' % (HELLO, [1] * 9), "stop_token_ids", "8"),
    (CHAT, '{%s,"logit_bias":%s}' % (HELLO, json.dumps({str(i): 1 for i in range(301)})), "logit_bias", "300"),
    (CHAT, '{%s,"logit_bias":{"1":101}}' % HELLO, "logit_bias", "100"),
    (CHAT, '{%s,"logit_bias":{"1":1,"1":2}}' % HELLO, "logit_bias", "duplicate"),
    (COMPLETIONS, '{"prompt":%s}' % json.dumps(["a"] * 1025), "prompt", "1024"),
    (COMPLETIONS, '{"prompt":%s}' % json.dumps([5] * CONTEXT), "prompt", str(CONTEXT)),
    (COMPLETIONS, '{"prompt":"%s"}' % ("word " * 20000), "prompt", str(CONTEXT)),
    (CHAT, messages(1, '"%s"' % ("word " * 20000)), "messages", str(CONTEXT)),
    (CHAT, messages(4000), "messages", str(CONTEXT)),
    (COMPLETIONS, '{"prompt":[5],"max_tokens":%d}' % CONTEXT, "max_tokens", str(CONTEXT)),
    (COMPLETIONS, '{"prompt":""}', "prompt", "empty"),
    (COMPLETIONS, '{"prompt":[]}', "prompt", "prompt"),
    (CHAT, '{"messages":[]}', "messages", "messages"),
]


@pytest.mark.parametrize("row", range(len(SIZES)))
def test_every_size_has_its_limit(cluster, session, row):
    path, body, param, word = SIZES[row]
    refused(post(cluster, session, path, body), param, param, word)


def test_sizes_at_their_limit_are_taken(cluster, session):
    for body in ['{%s,"max_tokens":1,"stop":%s}' % (HELLO, json.dumps(["a" * 1024] * 16)), parts(1024), '{%s,"max_tokens":1,"n":128}' % HELLO,
                 '{%s,"max_tokens":1,"logprobs":true,"top_logprobs":20}' % HELLO, messages(100)]:
        assert post(cluster, session, CHAT, body).status_code == 200
    body = '{"prompt":%s,"max_tokens":1}' % json.dumps([5] * (CONTEXT - 1))
    assert post(cluster, session, COMPLETIONS, body).status_code == 200


BODIES = {
    "nothing": b"", "blanks": b"   ", "a list": b"[]", "a number": b"5", "half": b'{"messages":[', "something behind": b"{}x",
    "doubled name": b'{"prompt":"a","prompt":"b"}', "doubled deep inside": b'{"prompt":"a","user":{"a":1,"a":2}}',
    "no UTF-8": b'{"prompt":"\xff"}', "overlong UTF-8": b'{"prompt":"\xc0\xaf"}', "surrogate in UTF-8": b'{"prompt":"\xed\xa0\x80"}',
    "beyond Unicode": b'{"prompt":"\xf4\x90\x80\x80"}', "half a character": b'{"prompt":"\xe2\x82"}', "half a surrogate": b'{"prompt":"\\ud800"}',
    "NUL escaped": b'{"prompt":"a\\u0000b"}', "NUL": b'{"prompt":"a\0b"}', "NUL behind": b'{"prompt":"a"}\0', "line end in a string": b'{"prompt":"a\nb"}',
    "byte order mark": b'\xef\xbb\xbf{"prompt":"a"}', "UTF-16": '{"prompt":"a"}'.encode("utf-16"), "comment": b'{"prompt":"a"/**/}',
    "last comma": b'{"prompt":"a",}', "single quotes": b"{'prompt':'a'}", "100,000 lists": b'{"prompt":' + b"[" * 100000 + b"]" * 100000 + b"}",
    "100,000 objects": b'{"a":' * 100000 + b"1" + b"}" * 100000, "a million opened": b"[" * 1000000, "33 deep": b'{"user":' + b"[" * 32 + b"]" * 32 + b"}",
    "5 million values": b'{"prompt":[' + b"1," * 5000000 + b"1]}",
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_that_are_no_request_are_refused(cluster, session, name):
    for path in [CHAT, COMPLETIONS]:
        response = post(cluster, session, path, BODIES[name])
        assert response.status_code == 400
        assert response.json()["error"]["type"] == "invalid_request_error"


def test_a_body_above_64_mib_gets_413(cluster):
    with socket.create_connection(("127.0.0.1", cluster.port), timeout=60) as s:
        s.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), (64 << 20) + 1))
        assert s.recv(4096).startswith(b"HTTP/1.1 413 ")


# --- slow clients

def connect(cluster, data=b""):
    s = socket.create_connection(("127.0.0.1", cluster.port), timeout=60)
    s.sendall(data)
    return s


def ends_while_trickling(s, seconds=30):
    """True when the server closes although a byte comes every tenth of a second."""
    s.settimeout(0.1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            s.sendall(b"a")
            if s.recv(4096) == b"":
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


POST = b"POST %s HTTP/1.1\r\nHost: x\r\n" % CHAT.encode()
SLOW = {
    "nothing": b"", "method": b"P", "line": b"POST /v1/cha", "field": POST + b"X: ", "body": POST + b"Content-Length: 1000\r\n\r\n{",
    "chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nffffff\r\n", "huge chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    "refused body": POST.replace(b"/v1", b"/v2") + b"Content-Length: 1000\r\n\r\n", "second request": b"GET /version HTTP/1.1\r\nHost: x\r\n\r\nGET /ver",
}


def test_a_request_that_trickles_in_is_ended(narrow):
    before = narrow.metric("moesaic_http_timeouts_total")
    with contextlib.ExitStack() as stack, concurrent.futures.ThreadPoolExecutor(len(SLOW)) as pool:
        sockets = [stack.enter_context(connect(narrow, data)) for data in SLOW.values()]
        ended = dict(zip(SLOW, pool.map(ends_while_trickling, sockets)))
    assert all(ended.values()), ended
    assert narrow.metric("moesaic_http_timeouts_total") >= before + len(SLOW) - 1
    wait_for("quiet", lambda: settled(narrow))


def test_a_large_body_may_take_longer(narrow):
    body = b'{"messages":"%s"}' % (b"a" * (1 << 20))
    with connect(narrow, POST + b"Content-Length: %d\r\n\r\n" % len(body)) as s:
        for at in range(0, len(body), len(body) // 8):
            s.sendall(body[at:at + len(body) // 8])
            time.sleep(TIMEOUT_S / 5)  # 8 of them are longer than the limit, which grows by a second each 64 KiB
        assert s.recv(4096).startswith(b"HTTP/1.1 400 ")


def test_an_idle_connection_is_ended(narrow):
    with connect(narrow, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n") as s:
        s.settimeout(30)
        assert s.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert s.recv(4096) == b""


def test_idle_connections_make_room_for_new_ones(narrow):
    before = narrow.metric("moesaic_http_evictions_total")
    with contextlib.ExitStack() as stack:
        for i in range(450):  # the leader has 600 descriptors, 256 of them are spare
            stack.enter_context(connect(narrow, b"GET /ver" if i % 2 else b""))
        assert requests.get(narrow.url + "/version", timeout=30).status_code == 200
        assert narrow.metric("moesaic_http_evictions_total") > before
    wait_for("quiet", lambda: settled(narrow))


def test_a_client_that_does_not_read_is_ended(narrow):
    """Many pipelined pages fill every buffer between us."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", narrow.port))
        s.settimeout(1)
        with contextlib.suppress(OSError):
            for _ in range(2000):
                s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_for("quiet", lambda: settled(narrow), 60)
    assert requests.get(narrow.url + "/version", timeout=30).status_code == 200


def generate(max_tokens, stream, **more):
    body = json.dumps({"messages": [{"role": "user", "content": "Tell me a story."}], "stream": stream, "ignore_eos": True, "temperature": 1,
                       "max_tokens": max_tokens, **more}).encode()
    return POST + b"Content-Length: %d\r\n\r\n" % len(body) + body


def test_streams_that_nobody_reads_end(narrow):
    with contextlib.ExitStack() as stack:
        for _ in range(PLACES):
            s = stack.enter_context(socket.socket())
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(("127.0.0.1", narrow.port))
            s.sendall(generate(600, True, logprobs=True, top_logprobs=20))
        wait_for("their start", lambda: narrow.metric("vllm:num_requests_running") > 0)
        wait_for("quiet", lambda: settled(narrow), 120)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_closes_its_half_counts_as_gone(narrow, stream):
    with connect(narrow, generate(1900, stream)) as s:
        wait_for("its start", lambda: narrow.metric("vllm:num_requests_running") == 1)
        s.shutdown(socket.SHUT_WR)
        wait_for("quiet", lambda: settled(narrow), 20)


def test_a_client_that_leaves_its_upload_leaves_nothing(narrow):
    body = generate(5, False)
    for at in range(10, len(body), 29):
        connect(narrow, body[:at]).close()
    wait_for("quiet", lambda: settled(narrow))


# --- bursts

def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.popen.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def keep_busy(cluster, stop):
    """Takes a place again and again."""
    while not stop.is_set():
        with connect(cluster, generate(1900, True)) as s:
            while not stop.is_set() and (block := s.recv(65536)) and b"[DONE]" not in block and b" 429 " not in block:
                pass


def test_a_burst_of_large_prompts_is_refused_without_work(narrow):
    """With every place taken, 1,000 prompts cost the leader far less than only reading their JSON does."""
    large = json.dumps({"prompt": [1234] * 60000, "max_tokens": 1}).encode()
    before = cpu_seconds(narrow.leader)
    for _ in range(30):
        assert requests.post(narrow.url + COMPLETIONS, data=large, timeout=60).status_code == 400  # too long
    read = (cpu_seconds(narrow.leader) - before) / 30
    refusals, stop = 0, threading.Event()
    with requests.Session() as session, concurrent.futures.ThreadPoolExecutor(PLACES + 2) as pool:
        for _ in range(PLACES + 2):
            pool.submit(keep_busy, narrow, stop)
        wait_for("all places", lambda: narrow.metric("moesaic_requests_admitted") == PLACES)
        before = cpu_seconds(narrow.leader)
        for _ in range(1000):
            response = session.post(narrow.url + COMPLETIONS, data=large, timeout=60)
            if response.status_code == 429:
                refusals += 1
                assert int(response.headers["Retry-After"]) >= 1
                error = response.json()["error"]
                assert error["code"] == "rate_limit_exceeded" and error["type"] == "rate_limit_error"
        spent = cpu_seconds(narrow.leader) - before
        stop.set()
    print(f"refused {refusals} for {spent:.2f} s of CPU; reading one costs {read:.4f} s")
    assert refusals > 500
    assert spent < read * refusals / 2
    wait_for("quiet", lambda: settled(narrow))
