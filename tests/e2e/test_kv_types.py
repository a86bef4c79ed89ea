"""test_kv_types.py: --kv-cache-dtype in a whole group, by vLLM's names."""
import subprocess

import pytest

from cluster import BUILD, MODEL, Cluster

BYTES = 8 << 20


def blocks_and_answer(name):
    flags = ["--local-workers", "2", "--kv-cache-dtype", name, "--kv-cache-memory", str(BYTES)]
    with Cluster(workers=0, leader_flags=flags) as cluster:
        answer = cluster.chat("What is the capital of Kenya?")["choices"][0]["message"]["content"]
        (labels,) = [dict(pairs) for (sample, pairs) in cluster.metrics() if sample == "vllm:cache_config_info"]
        return labels["cache_dtype"], int(labels["num_gpu_blocks"]), answer


@pytest.mark.parametrize("name, held", [("fp8", "fp8_e4m3"), ("int8_per_token_head", "int8")])
def test_narrow_pages_answer_and_hold_more(name, held):
    dtype, blocks, answer = blocks_and_answer(name)
    assert dtype == held
    assert answer == "The capital of Kenya is Nairobi."
    bfloat16 = 2 * (BYTES // (16 * 1024))  # of two workers
    assert blocks > 1.7 * bfloat16


def test_what_pages_cannot_hold_is_refused_with_what_they_can():
    for name in "fp8_e5m2", "int4", "float16":
        done = subprocess.run([BUILD / "moe-leader", "--model", MODEL, "--kv-cache-dtype", name], capture_output=True, text=True, timeout=30)
        assert done.returncode == 2
        assert "kv-cache-dtype" in done.stderr and "fp8_e4m3" in done.stderr
