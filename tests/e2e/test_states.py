"""test_states.py: the prefix cache of a model with recurrent layers, in two processes that are stages of a pipeline: what it saves is
told, no digest depends on it, salts keep it apart, and a lost worker takes it along."""
import json
import re
import shutil
import struct

import pytest
import requests

from cluster import MODEL, ROOT, Cluster, wait_for

SMALL = ROOT / "tests" / "data" / "models" / "qwen3-next"
VOCAB = 2048  # of the tokenizer that it is given; its own rows are repeated
SHARED = [(i * 7 + i // 11) % 2000 for i in range(2300)]
N_TOKENS = 8


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stateful")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MODEL / name, folder)
    config = json.loads((SMALL / "config.json").read_text())
    config.update(vocab_size=VOCAB, max_position_embeddings=4096)
    (folder / "config.json").write_text(json.dumps(config))
    data = (SMALL / "model.safetensors").read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header, body, at = json.loads(data[8:8 + size]), b"", 0
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + offset for offset in tensor["data_offsets"])
        rows = VOCAB // 128 if name in ("lm_head.weight", "model.embed_tokens.weight") else 1
        body += data[begin:end] * rows
        tensor["shape"][0] *= rows
        tensor["data_offsets"] = [at, len(body)]
        at = len(body)
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
    return folder


@pytest.fixture(scope="module")
def staged(model):
    flags = ["--workers", "2", "--pipeline-parallel-size", "2", "--served-model-name", "seedling", "--state-cache-memory", "1MiB"]
    with Cluster(workers=2, model=model, leader_flags=flags) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def without(model):
    flags = ["--no-enable-prefix-caching", "--served-model-name", "seedling"]
    with Cluster(workers=1, model=model, leader_flags=flags) as cluster:
        yield cluster


def ask(cluster, n_shared, n_own=0, seed=1, **fields):
    prompt = SHARED[:n_shared] + [(seed * 31 + k) % 2000 for k in range(n_own)]
    body = {"model": "seedling", "prompt": prompt, "max_tokens": N_TOKENS, "ignore_eos": True, "temperature": 1, "seed": seed, **fields}
    response = cluster.post("/v1/completions", body)
    response.raise_for_status()
    answer = response.json()
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"], answer["choices"][0]["digest"]


def test_prompts_begin_from_the_last_state_they_share(staged, without):
    before = staged.metric("vllm:prefix_cache_hits_total")
    cases = [(2200, 0), (2200, 0), (2250, 0), (1500, 300), (1023, 900)]
    cached = []
    for seed, (n_shared, n_own) in enumerate(cases):
        n, digest = ask(staged, n_shared, n_own, seed)
        cached.append(n)
        assert (0, digest) == ask(without, n_shared, n_own, seed)
    assert cached == [0, 2192, 2192, 1024, 0]  # kept at 1024, 2048 and the last block, 2192
    assert staged.metric("vllm:prefix_cache_hits_total") - before == sum(cached)
    assert staged.check_accounts() == without.check_accounts() == "ok"


def test_places_are_told(staged, without):
    told = re.search(r" info +leader leader: prefix cache of states snapshots (\d+) bytes_each (\d+)", staged.leader.log())
    assert "prefix cache" not in without.leader.log(), "nobody asked for one"
    kv = requests.get(staged.url + "/status", timeout=10).json()["kv"]
    assert kv["snapshots"] > kv["snapshots_used"] > 0
    assert int(told[1]) == kv["snapshots"]
    assert int(told[1]) == (1 << 20) // int(told[2]), "as many as the memory of the worker with most of a state holds"
    assert staged.metric("moesaic_state_snapshots") == kv["snapshots"]
    assert staged.metric("moesaic_state_snapshots_used") == kv["snapshots_used"]
    assert without.metric("moesaic_state_snapshots") == 0


@pytest.mark.parametrize("memory, says", [
    ("0", r" info +leader leader: no prefix cache reason \"--state-cache-memory is 0\""),
    ("1KiB", r" warn +leader leader: no prefix cache: no room for a snapshot of a state dp_groups 1 bytes_each \d+"),
])
def test_states_that_cannot_be_kept_are_told(model, memory, says):
    flags = ["--served-model-name", "seedling", "--state-cache-memory", memory]
    with Cluster(workers=1, model=model, leader_flags=flags) as cluster:
        assert len(re.findall(says, cluster.leader.log())) == 1
        assert len(re.findall("leader leader: .*prefix cache", cluster.leader.log())) == 1
        assert [ask(cluster, 200)[0] for _ in range(2)] == [0, 0]


def test_a_chat_goes_on_where_its_last_prompt_ended(staged):
    messages = [{"role": "user", "content": "Tell me about the fox and the river, once more and at length. " * 20}]
    first = staged.post("/v1/chat/completions", {"model": "seedling", "messages": messages, "max_tokens": 20, "ignore_eos": True}).json()
    messages += [first["choices"][0]["message"], {"role": "user", "content": "And then?"}]
    second = staged.post("/v1/chat/completions", {"model": "seedling", "messages": messages, "max_tokens": 4}).json()
    n_prompt = first["usage"]["prompt_tokens"]
    assert n_prompt > 200
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == (n_prompt - 1) // 16 * 16


def test_another_salt_gets_no_hit(staged):
    plain = ask(staged, 2200, seed=5)
    assert plain[0] == 2192
    assert ask(staged, 2200, seed=5, cache_salt="s") == (0, plain[1])
    assert ask(staged, 2200, seed=5, cache_salt="s") == plain


def test_a_lost_worker_takes_the_states_along(staged):
    plain = ask(staged, 2200, seed=6)
    assert plain[0] == 2192
    epoch = staged.metric("moesaic_epoch")
    staged.workers[1].end()
    staged.workers[1] = staged.start_worker()
    wait_for("another group", lambda: staged.metric("moesaic_epoch") > epoch and staged.ready())
    assert ask(staged, 2200, seed=6) == (0, plain[1])
    assert ask(staged, 2200, seed=6) == plain
    assert staged.check_accounts() == "ok"
