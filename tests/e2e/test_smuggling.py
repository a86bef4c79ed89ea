"""test_smuggling.py: a request that two servers could read differently is refused, and nothing behind it on its connection
is ever answered; no spelling of a /v1 path is answered without the key."""
import os
import random
import re
import socket
import time

import pytest
import requests

from cluster import Cluster

KEY = "sesame-street"
AUTH = f"Authorization: Bearer {KEY}\r\n".encode()
BODY = b'{"prompt":"a","max_tokens":1}'
CHUNKS = b"1d\r\n" + BODY + b"\r\n0\r\n\r\n"
HIDDEN = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + AUTH + b"\r\n"  # what a smuggler wants to get through


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """A cluster that asks for a key."""
    path = tmp_path_factory.mktemp("key") / "key"
    path.write_text(KEY + "\n")
    path.chmod(0o600)
    with Cluster(workers=1, leader_flags=["--api-key-file", path]) as cluster:
        yield cluster
        assert cluster.leader.alive()


def talk(port, data, seconds=10):
    """(statuses of all answers, everything that came, whether the server closed)."""
    got, closed = b"", False
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as s:
        try:
            s.sendall(data)
            while not closed:
                block = s.recv(65536)
                got += block
                closed = block == b""
        except (ConnectionResetError, BrokenPipeError):
            closed = True
        except TimeoutError:
            pass
    return [int(n) for n in re.findall(rb"(?<![0-9a-zA-Z])HTTP/1\.1 (\d{3}) ", got)], got, closed


def request(fields=b"", body=BODY, length=True, first=b"POST /v1/completions HTTP/1.1\r\n", host=b"Host: x\r\n"):
    size = b"Content-Length: %d\r\n" % len(body) if length else b""
    return first + host + AUTH + size + fields + b"\r\n" + body


def chunked(field=b"Transfer-Encoding: chunked\r\n", body=CHUNKS, **more):
    return request(field, body, length=False, **more)


def get(target, first=b"GET %s HTTP/1.1\r\n", key=b""):
    return first % target + b"Host: x\r\n" + key + b"\r\n"


TWO_READINGS = {
    # two lengths
    "length and chunks": (400, request(b"Transfer-Encoding: chunked\r\n")),
    "equal lengths": (400, request(b"Content-Length: 29\r\n")),
    "different lengths": (400, request(b"Content-Length: 0\r\n")),
    "a list of lengths": (400, request(b"Content-Length: 29, 29\r\n", length=False)),
    "negative length": (400, request(b"Content-Length: -1\r\n", length=False)),
    "length with a plus": (400, request(b"Content-Length: +29\r\n", length=False)),
    "length in hex": (400, request(b"Content-Length: 0x1d\r\n", length=False)),
    "empty length": (400, request(b"Content-Length: \r\n", length=False)),
    "length as a float": (400, request(b"Content-Length: 29.0\r\n", length=False)),
    "length with a blank in it": (400, request(b"Content-Length: 2 9\r\n", length=False)),
    "length of 2^64 more": (413, request(b"Content-Length: 18446744073709551645\r\n", length=False)),
    "no length": (411, request(length=False)),
    "length of a GET": (400, request(first=b"GET /version HTTP/1.1\r\n")),
    # encodings
    "xchunked": (400, chunked(b"Transfer-Encoding: xchunked\r\n")),
    "chunked, identity": (400, chunked(b"Transfer-Encoding: chunked, identity\r\n")),
    "identity": (400, chunked(b"Transfer-Encoding: identity\r\n")),
    "gzip, chunked": (400, chunked(b"Transfer-Encoding: gzip, chunked\r\n")),
    "no encoding": (400, chunked(b"Transfer-Encoding:\r\n")),
    "two encodings": (400, chunked(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n")),
    "identity and chunked": (400, chunked(b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n")),
    "a vertical tab before chunked": (400, chunked(b"Transfer-Encoding:\x0bchunked\r\n")),
    "a NUL behind chunked": (400, chunked(b"Transfer-Encoding: chunked\0\r\n")),
    "chunks in HTTP/1.0": (400, chunked(first=b"POST /v1/completions HTTP/1.0\r\n")),
    "chunks of a GET": (400, chunked(first=b"GET /version HTTP/1.1\r\n")),
    # chunk sizes
    "chunk size with 0x": (400, chunked(body=b"0x" + CHUNKS)),
    "chunk size with a plus": (400, chunked(body=b"+" + CHUNKS)),
    "negative chunk size": (400, chunked(body=b"-1\r\n" + BODY)),
    "chunk size of 2^64 more": (413, chunked(body=b"1000000000000001d\r\n" + BODY)),
    "chunk longer than its size": (400, chunked(body=b"1d\r\n" + BODY + b"XX0\r\n\r\n")),
    # lines
    "bare line feeds": (400, request().replace(b"\r\n", b"\n")),
    "one bare line feed": (400, request(b"X: y\nZ: z\r\n")),
    "bare line feed before chunks": (400, request(b"X: y\nTransfer-Encoding: chunked\r\n")),
    "bare carriage return": (400, request(b"X: y\rTransfer-Encoding: chunked\r\n")),
    "two carriage returns": (400, request(b"X: y\r\r\n")),
    "last line ends with a line feed": (400, request(b"X: y\r\n\n", length=True)),
    "folded value": (400, request(b"X: y\r\n z\r\n")),
    "folded encoding": (400, chunked(b"Transfer-Encoding:\r\n chunked\r\n")),
    "fold before any field": (400, request(first=b"POST /v1/completions HTTP/1.1\r\n X: y\r\n")),
    "blank before the colon": (400, request(b"Transfer-Encoding : chunked\r\n")),
    "tab before the colon": (400, request(b"Content-Length\t: 0\r\n")),
    "blank in a name": (400, request(b"X Content-Length: 0\r\n")),
    "no name": (400, request(b": abc\r\n")),
    "no colon": (400, request(b"abc\r\n")),
    "brackets in a name": (400, request(b"X(): y\r\n")),
    "control character in a value": (400, request(b"X: a\x01b\r\n")),
    "NUL in a value": (400, request(b"X: a\0b\r\n")),
    "NUL in a name": (400, request(b"X\0Content-Length: 0\r\n")),
    "line that begins with NUL": (400, request(b"\0Content-Length: 0\r\n")),
    # hosts, keys, expectations
    "no host": (400, request(host=b"")),
    "two hosts": (400, request(host=b"Host: x\r\nHost: y\r\n")),
    "equal hosts": (400, request(host=b"Host: x\r\nHost: x\r\n")),
    "host with a path": (400, request(host=b"Host: x/y@z\r\n")),
    "two keys": (400, request(b"Authorization: Bearer wrong\r\n")),
    "another expectation": (417, request(b"Expect: 200-maybe\r\n")),
    # first lines
    "absolute target": (400, request(first=b"POST http://x/v1/completions HTTP/1.1\r\n")),
    "authority": (400, get(b"x:80", b"CONNECT %s HTTP/1.1\r\n")),
    "asterisk": (400, get(b"*", b"OPTIONS %s HTTP/1.1\r\n")),
    "unknown method": (405, get(b"/version", b"XYZ %s HTTP/1.1\r\n")),
    "TRACE": (405, get(b"/version", b"TRACE %s HTTP/1.1\r\n")),
    "method in small letters": (405, get(b"/version", b"get %s HTTP/1.1\r\n")),
    "HTTP/0.9": (400, b"GET /version\r\n\r\n"),
    "HTTP/1.2": (400, get(b"/version", b"GET %s HTTP/1.2\r\n")),
    "HTTP/2.0": (505, get(b"/version", b"GET %s HTTP/2.0\r\n")),
    "the beginning of HTTP/2": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "two blanks": (400, get(b"/version", b"GET  %s HTTP/1.1\r\n")),
    "tabs": (None, get(b"/version", b"GET\t%s\tHTTP/1.1\r\n")),
    "blank behind the version": (400, get(b"/version", b"GET %s HTTP/1.1 \r\n")),
    "blank in the target": (None, get(b"/version x")),
    "NUL in the target": (400, get(b"/version\0x")),
    "fragment": (400, get(b"/version#/../v1/models")),
    "backslash": (400, get(b"/version\\x")),
    # sizes
    "a field of 40 KB": (431, request(b"X: " + b"a" * 40000 + b"\r\n")),
    "129 fields": (431, request(b"X: a\r\n" * 129)),
    "2,000 fields": (431, request(b"X: a\r\n" * 2000)),
    "a target of 40 KB": (414, get(b"/" + b"a" * 40000)),
    # refused for what they are
    "wrong key": (401, request().replace(KEY.encode(), b"wrong")),
    "unknown path": (404, get(b"/nothing")),
    "wrong method": (405, get(b"/v1/completions", key=AUTH)),
}


@pytest.mark.parametrize("name", TWO_READINGS)
def test_what_has_two_readings_is_refused_and_nothing_behind_it_is_answered(locked, name):
    status, data = TWO_READINGS[name]
    statuses, got, closed = talk(locked.port, data + HIDDEN)
    assert closed
    assert b'"object":"list"' not in got
    assert set(statuses) <= {status}, got[:500]
    # libmicrohttpd closes some first lines without a word.
    assert statuses or status is None or b"" == got


@pytest.mark.parametrize("body", [
    CHUNKS, b"1d;a=b\r\n" + CHUNKS[4:], b"0000000000001d\r\n" + CHUNKS[4:], b"1D\r\n" + CHUNKS[4:],
    CHUNKS[:-2] + b"Content-Length: 5\r\n\r\n", CHUNKS.replace(b"\r\n", b"\n"), b"1d;\n" + CHUNKS[4:],
])
def test_nothing_follows_a_chunked_request(locked, body):
    """Where chunks end is read leniently below us, so the connection ends with the answer."""
    statuses, got, closed = talk(locked.port, chunked(body=body) + HIDDEN)
    assert closed and statuses == [200] and b'"object":"list"' not in got


def test_two_plain_requests_on_one_connection_are_both_answered(locked):
    with socket.create_connection(("127.0.0.1", locked.port), timeout=30) as s:
        s.sendall(request() + HIDDEN)
        got = b""
        while b'"object":"list"' not in got:
            block = s.recv(65536)
            assert block
            got += block
        assert b'"object":"text_completion"' in got


@pytest.mark.parametrize("fields, host", [
    (b"X: a\r\n" * 100, b"Host: x\r\n"), (b"X:a\r\nY:\t b\r\nZ:\r\n", b"Host:x\r\n"), (b"X: " + b"a" * 15000 + b"\r\n", b"Host: [::1]:80\r\n"),
    (b"X: \xc3\xa4\r\n", b"Host: a-b.example:8000\r\n"),
])
def test_unusual_but_clear_heads_are_served(locked, fields, host):
    statuses, got, _ = talk(locked.port, request(fields + b"Connection: close\r\n", host=host))
    assert statuses == [200], got[:300]


def test_http_1_0_is_answered_and_closed(locked):
    statuses, got, closed = talk(locked.port, b"GET /version HTTP/1.0\r\n\r\n" + HIDDEN)
    assert closed and statuses == [200] and b'"object":"list"' not in got


@pytest.mark.parametrize("key, seen", [(AUTH, [100, 200]), (b"", [401])])
def test_a_client_that_waits_for_100_sends_its_body_only_with_the_key(locked, key, seen):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + key + b"Expect: 100-continue\r\nContent-Length: 29\r\n\r\n"
    with socket.create_connection(("127.0.0.1", locked.port), timeout=30) as s:
        s.sendall(head)
        first = s.recv(4096)
        assert first.startswith(b"HTTP/1.1 %d " % seen[0])
        if len(seen) == 2:
            s.sendall(BODY)
            assert s.recv(4096).startswith(b"HTTP/1.1 %d " % seen[1])


@pytest.mark.parametrize("framing, body", [
    (b"Content-Length: %d\r\n" % (40 << 20), b" " * (40 << 20)), (b"Transfer-Encoding: chunked\r\n", b"2800000\r\n" + b" " * (40 << 20) + b"\r\n0\r\n\r\n"),
])
def test_a_large_body_without_the_key_is_heard_but_not_kept(locked, framing, body):
    before = locked.metric("process_resident_memory_bytes")
    statuses, _, closed = talk(locked.port, b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + framing + b"\r\n" + body + HIDDEN, seconds=60)
    assert closed and statuses == [401]
    assert locked.metric("process_resident_memory_bytes") < before + (8 << 20)


# Spellings of a /v1 path that a careless server or proxy takes for it, or for a probe in front of it.
SPELLINGS = [
    "/v1/models", "/v1/models/seedling", "/v1/models?x", "/v1/models?x=/../health", "/v1/models/", "//v1/models", "/v1//models",
    "/v1/./models", "/./v1/models", "/v1/x/../models", "/v1/../v1/models", "/health/../v1/models", "/metrics/../v1/models",
    "/health/%2e%2e/v1/models", "/health/..%2fv1/models", "/health%2f..%2fv1%2fmodels", "/health/..;/v1/models", "/health;/v1/models",
    "/%76%31/models", "/v1%2Fmodels", "/v1%2fmodels", "/%2fv1/models", "/v1/models%00", "/health%00/v1/models", "/v1/models%20", "/v1/models%09",
    "/V1/models", "/v1/MODELS", "/v1/models.", "/v1/models;x", "/v1\\models", "\\v1\\models", "/v1/models#", "/health#/v1/models",
    "/v1/models%23", "/v1/models%3f", "v1/models", "http://x/v1/models", "http://127.0.0.1/health/../v1/models", "/health?/../v1/models",
    "/v1/models\0", "/health\0/v1/models", "/%c0%af/v1/models", "/v1/%252e%252e/v1/models", "/v1/models/%2e", "/v1/models/..", "/*", "*",
]


@pytest.mark.parametrize("target", SPELLINGS)
def test_no_spelling_of_a_v1_path_is_answered_without_the_key(locked, target):
    for first in [b"GET %s HTTP/1.1\r\n", b"HEAD %s HTTP/1.1\r\n", b"GET %s HTTP/1.0\r\n"]:
        statuses, got, _ = talk(locked.port, get(target.encode(), first).replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n"))
        assert b'"seedling"' not in got
        assert all(s >= 400 for s in statuses) or target.startswith("/health?"), got[:300]
    post = b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 29\r\n\r\n" % target.replace("models", "completions").encode()
    statuses, got, _ = talk(locked.port, post + BODY)
    assert b"text_completion" not in got and all(s >= 400 for s in statuses), got[:300]


@pytest.mark.parametrize("key", [b"", b"Authorization: Bearer \r\n", b"Authorization: Bearer sesame\r\n", b"Authorization: Bearer sesame-street2\r\n",
                                 b"Authorization: Basic sesame-street\r\n", b"Authorization: sesame-street\r\n", b"X-Api-Key: sesame-street\r\n",
                                 b"Authorization: bearer\r\n", b"Authorization: Bearer sesame-street \r\n"])
def test_wrong_keys_get_401(locked, key):
    statuses, got, closed = talk(locked.port, get(b"/v1/models", key=key))
    assert closed and statuses == [401] and b"invalid_api_key" in got


def test_many_wrong_keys_write_few_lines(locked):
    def lines():
        return locked.leader.log().count("http: call refused")
    before, start = lines(), time.monotonic()
    with requests.Session() as session:
        for _ in range(50):
            assert session.get(f"http://127.0.0.1:{locked.port}/v1/models", timeout=20).status_code == 401
    assert lines() - before <= 10 * ((time.monotonic() - start) // 10 + 2)


@pytest.mark.parametrize("path", [b"/health", b"/ready", b"/version", b"/metrics", b"/health?x=y"])
def test_probes_need_no_key(locked, path):
    statuses, _, _ = talk(locked.port, get(path, key=b"Connection: close\r\n"))
    assert statuses == [200]


def test_the_status_needs_the_key(locked):
    assert talk(locked.port, get(b"/status", key=b"Connection: close\r\n"))[0] == [401]
    assert talk(locked.port, get(b"/status", key=AUTH + b"Connection: close\r\n"))[0] == [200]


def test_a_model_name_may_be_escaped(locked):
    assert talk(locked.port, get(b"/v1/models/%73eedling", key=AUTH + b"Connection: close\r\n"))[0] == [200]
    for target, status in [(b"/v1/models/a%2Fb", 404), (b"/v1/models/seedling%00", 400), (b"/v1/models/%zz", 400), (b"/v1/models/%7", 400)]:
        assert talk(locked.port, get(target, key=AUTH + b"Connection: close\r\n"))[0] == [status]


TOKEN, VALUE = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+", rb"[\t\x20-\x7e\x80-\xff]*"
STRICT = re.compile(rb"(?:\r?\n)*[A-Z]+ /[^\x00-\x20\x7f-\xff#\\\\]* HTTP/1\.[01]\r\n(?:" + TOKEN + rb":" + VALUE + rb"\r\n)*\r\n")


def test_random_heads_are_read_as_a_strict_reader_does(locked):
    """Valid heads with one to three bytes changed: what the grammar refuses is never served, nor what hides behind it."""
    seed = int(os.environ.get("SEED", 470162053))
    print(f"SEED={seed}")
    draw = random.Random(seed)
    pieces = [b"\r", b"\n", b"\r\n", b" ", b"\t", b"\0", b":", b"\r\n ", b"\x0b", b"\x7f", b"\xff", b"?", b"#", b"%", b"/", b"a", b"(", b"\n\n", b"\r\n\r\n"]
    served = 0
    for _ in range(300):
        head = bytearray(b"GET /version?a=b HTTP/1.1\r\nHost: x\r\nX-One: 1\r\nContent-Length: 0\r\nAccept: */*\r\nX-Two:2\r\nConnection: close\r\n\r\n")
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(head))
            head[at:at + draw.choice([0, 0, 1, 2])] = draw.choice(pieces)
        # Below us a NUL before a line feed becomes the same as a carriage return, and so does a colon without a name; a NUL in a query, the same as "&".
        plain = bytes(head).replace(b"\0\n", b"\r\n").replace(b"\r\n:\n", b"\r\n\r\n")
        strict = STRICT.match(re.sub(rb"(\?[^ ]*)\0", rb"\1&", plain))
        statuses, got, _ = talk(locked.port, bytes(head) + (b"" if strict else HIDDEN), seconds=0.5)
        if strict is None:
            assert 200 not in statuses and b'"object":"list"' not in got, (bytes(head), got[:300])
        served += statuses[:1] == [200]
    assert served > 5


def test_afterwards_the_answers_are_right(locked):
    body = b'{"messages":[{"role":"user","content":"What is the capital of Kenya?"}],"temperature":0}'
    first = b"POST /v1/chat/completions HTTP/1.1\r\n"
    assert b"Nairobi" in talk(locked.port, request(b"Connection: close\r\n", body, first=first))[1]
    assert locked.check_accounts() == "ok"
