"""test_prefix.py: the prefix cache with real processes: the same digests with and without it, what it saves is told, and a salt or
another API key keeps it apart."""
import concurrent.futures

import pytest

from cluster import Cluster
from grpc_client import Client, connect

COMPLETIONS = "/v1/completions"
SHARED = [(i * 7 + i // 11) % 2000 for i in range(640)]
N_TOKENS = 24


def prompt(i, n_own=20):
    return SHARED + [(i * 31 + k) % 2000 for k in range(n_own)]


def ask(cluster, i, key=None, **fields):
    body = {"model": "seedling", "prompt": prompt(i), "max_tokens": N_TOKENS, "ignore_eos": True, "temperature": 1, "seed": i, **fields}
    response = cluster.post(COMPLETIONS, body, headers={"Authorization": f"Bearer {key}"} if key else {})
    response.raise_for_status()
    return response.json()


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def crowd(cluster, ids):
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        return [a["choices"][0]["digest"] for a in pool.map(lambda i: ask(cluster, i), ids)]


@pytest.fixture(scope="module")
def without():
    with Cluster(workers=2, leader_flags=["--no-enable-prefix-caching"]) as cluster:
        yield cluster


def test_digests_are_equal_with_and_without_the_cache(cluster, without):
    before = cluster.metric("vllm:prefix_cache_hits_total")
    assert crowd(cluster, range(24)) == crowd(without, range(24))
    assert cluster.metric("vllm:prefix_cache_hits_total") - before > 12 * len(SHARED)
    assert without.metric("vllm:prefix_cache_hits_total") == without.metric("vllm:prefix_cache_queries_total") == 0
    assert cluster.check_accounts() == without.check_accounts() == "ok"


def test_usage_tells_what_was_cached(cluster, without, rpc):
    ask(cluster, 100)
    again = [ask(cluster, 100) for _ in range(3)]  # of two workers one has it
    assert [cached(a) for a in again] == [656] * 3  # full blocks, and a token that is left to compute
    assert cached(ask(without, 100)) == 0
    a = rpc.ask(token_ids=prompt(100), max_tokens=1)
    assert a.parts[-1].cached_tokens == 656 and a.parts[-1].prompt_tokens == 660


def test_choices_share_their_prompt(cluster, without):
    def several(where):
        return [c["digest"] for c in ask(where, 200, n=4, prompt=[1 + k % 1999 for k in range(600)])["choices"]]
    before = cluster.metric("vllm:prefix_cache_hits_total")
    assert several(cluster) == several(without)
    assert cluster.metric("vllm:prefix_cache_hits_total") - before >= 2 * 592  # with two workers it is computed twice at most


def test_another_salt_or_key_gets_no_hit(tmp_path, stubs):
    keys = tmp_path / "keys"
    keys.write_text("one a-long-key-of-the-first-client\ntwo a-long-key-of-the-second-client\n")
    one, two = (line.split()[1] for line in keys.read_text().splitlines())
    with Cluster(workers=1, leader_flags=["--api-key-file", str(keys)]) as cluster:
        plain = ask(cluster, 1, one)
        assert cached(plain) == 0
        assert cached(ask(cluster, 1, one)) == 656
        for key, fields in ((one, {"cache_salt": "s"}), (two, {}), (two, {"cache_salt": "s"}), (one, {"cache_salt": "t"})):
            first, second = ask(cluster, 1, key, **fields), ask(cluster, 1, key, **fields)
            assert (cached(first), cached(second)) == (0, 656), (key, fields)
            assert first["choices"][0]["digest"] == plain["choices"][0]["digest"]
        client = Client(stubs, cluster.grpc_port, one)
        with client.channel:
            assert client.ask(token_ids=prompt(1), max_tokens=1, cache_salt="u").parts[-1].cached_tokens == 0
            assert client.ask(token_ids=prompt(1), max_tokens=1, cache_salt="u").parts[-1].cached_tokens == 656
            assert client.ask(token_ids=prompt(1), max_tokens=1).parts[-1].cached_tokens == 656
