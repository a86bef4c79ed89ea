"""test_curl.py: what curl, probes and Prometheus see."""
import json
import shutil
import socket
import subprocess

import pytest
import requests

CHAT = "/v1/chat/completions"
KENYA = {"model": "seedling", "messages": [{"role": "user", "content": "What is the capital of Kenya?"}], "temperature": 0}
# What this server shows of vLLM's names, with their types.
VLLM = {
    "vllm:num_requests_running": "gauge", "vllm:num_requests_waiting": "gauge", "vllm:kv_cache_usage_perc": "gauge",
    "vllm:cache_config_info": "gauge", "vllm:num_preemptions_total": "counter", "vllm:prompt_tokens_total": "counter",
    "vllm:generation_tokens_total": "counter", "vllm:request_success_total": "counter",
    "vllm:time_to_first_token_seconds": "histogram", "vllm:inter_token_latency_seconds": "histogram",
    "vllm:e2e_request_latency_seconds": "histogram", "vllm:request_queue_time_seconds": "histogram",
    "vllm:request_prompt_tokens": "histogram", "vllm:request_generation_tokens": "histogram",
    "vllm:iteration_tokens_total": "histogram",
}


def curl(*arguments):
    return subprocess.run(["curl", "-sS", "--max-time", "60", *arguments], capture_output=True, text=True, check=True).stdout


def test_curl_streams_events_to_the_end(cluster):
    out = curl("-N", cluster.url + CHAT, "-H", "Content-Type: application/json", "-d", json.dumps({**KENYA, "stream": True}))
    events = [e for e in out.split("\n\n") if e]
    assert all(e.startswith("data: ") for e in events)
    assert events[-1] == "data: [DONE]"
    text = "".join(json.loads(e[6:])["choices"][0]["delta"].get("content", "") for e in events[:-1])
    assert text == "The capital of Kenya is Nairobi."


def test_curl_reads_a_whole_answer(cluster):
    answer = json.loads(curl(cluster.url + CHAT, "-d", json.dumps(KENYA)))
    assert answer["choices"][0]["message"]["content"] == "The capital of Kenya is Nairobi."
    assert len(answer["choices"][0]["digest"]) == 16


def test_probes_and_version(cluster):
    assert requests.get(cluster.url + "/health").status_code == 200
    assert requests.get(cluster.url + "/ready").json()["ready"] is True
    version = requests.get(cluster.url + "/version").json()
    assert version["version"] and version["build"].startswith(version["version"])


def test_request_id_is_echoed(cluster):
    response = requests.get(cluster.url + "/v1/models", headers={"X-Request-Id": "my-id-7"})
    assert response.headers["X-Request-Id"] == "my-id-7"
    assert len(requests.get(cluster.url + "/v1/models").headers["X-Request-Id"]) == 32


@pytest.mark.parametrize("method, path, status", [
    ("GET", "/", 404), ("GET", "/v1/nothing", 404), ("GET", CHAT, 405), ("DELETE", "/v1/models", 405), ("POST", "/health", 405),
])
def test_unknown_paths_and_methods_have_the_error_shape(cluster, method, path, status):
    response = requests.request(method, cluster.url + path)
    assert response.status_code == status
    assert response.headers["Content-Type"] == "application/json"
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("body", ["", "{", "[]", "null", '{"a":1,"a":2}', '{"messages":[]}', "[" * 100000,
                                  '{"messages":[{"role":"user","content":"x"}],"temperature":1e400}'])
def test_bodies_that_are_no_request_get_400(cluster, body):
    response = requests.post(cluster.url + CHAT, data=body.encode())
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


def raw(cluster, text):
    with socket.create_connection(("127.0.0.1", cluster.port), timeout=20) as s:
        s.sendall(text.encode())
        return s.recv(4096).decode(errors="replace")


def test_smuggled_framing_is_refused(cluster):
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\n"
    assert " 400 " in raw(cluster, head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").split("\r\n")[0]
    assert " 400 " in raw(cluster, head + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd").split("\r\n")[0]
    assert " 413 " in raw(cluster, head + "Content-Length: 99999999999\r\n\r\n").split("\r\n")[0]


def test_metrics_are_valid_and_have_vllms_names(cluster):
    cluster.chat("Who are you?")
    response = requests.get(cluster.url + "/metrics")
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    types = dict(line.split()[2:4] for line in response.text.split("\n") if line.startswith("# TYPE "))
    for name, kind in VLLM.items():
        assert types[name] == kind
    samples = cluster.metrics()  # the strict parser
    seen = [key for key in samples if key[0] == "vllm:num_requests_running"]
    assert dict(seen[0][1]) == {"model_name": "seedling", "engine": "0"}
    assert cluster.metric("vllm:time_to_first_token_seconds_count") > 0
    assert cluster.metric("vllm:generation_tokens_total") > 0
    assert cluster.metric("moesaic_workers_ready") == 2


def test_promtool_reads_the_metrics(cluster):
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    page = requests.get(cluster.url + "/metrics").text
    result = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True)
    # vLLM's names have a colon, and one of its histograms ends in _total; promtool only dislikes both.
    rest = [line for line in result.stderr.split("\n") if line
            and "should not contain ':'" not in line and "vllm:iteration_tokens_total" not in line]
    assert result.returncode in (0, 3), result.stderr
    assert rest == []


def test_every_expert_belongs_to_one_worker_and_counts(cluster):
    for i in range(8):
        cluster.chat(f"Tell me a story about a fox. {i}", max_tokens=30, temperature=1, seed=i)

    def total():
        return cluster.metric("moesaic_expert_tokens_total")
    import time
    time.sleep(1.5)  # counters travel with heartbeats
    samples = {k: v for k, v in cluster.metrics().items() if k[0] == "moesaic_expert_tokens_total"}
    assert len(samples) == 4 * 16
    workers = {dict(k[1])["worker"] for k in samples}
    assert workers == {"0", "1"}
    assert total() > 0
