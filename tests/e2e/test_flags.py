"""test_flags.py: command lines of other engines start a leader that answers, or are refused with what to use instead."""
import subprocess

import pytest
import requests

from cluster import BUILD, MODEL, Cluster, Process

ANY_PORTS = ["--control-port", "0", "--grpc-port", "0"]

VLLM = ["--model", MODEL, "--served-model-name", "seedling", "--host", "127.0.0.1", "--port", "0", "--dtype", "float",
        "--max-model-len", "1k", "--max-num-seqs", "8", "--max-num-batched-tokens", "256", "--tensor-parallel-size", "1",
        "-dp", "1", "--enable-expert-parallel", "--enable-chunked-prefill", "--enable-prefix-caching", "--swap-space", "4",
        "--block-size", "16", "--enforce-eager", "--trust-remote-code", "--no-enable-log-requests",
        "--generation-config", "vllm", "--compilation-config", '{"level": 3}', "--disable-custom-all-reduce"]
SGLANG = ["--model-path", MODEL, "--served-model-name", "seedling", "--host", "127.0.0.1", "--port=0", "--tp", "1",
          "--dp-size", "1", "--ep-size", "1", "--context-length", "1024", "--max-running-requests", "8",
          "--chunked-prefill-size", "256", "--attention-backend", "flashinfer", "--disable-cuda-graph",
          "--cuda-graph-bs", "1", "2", "4", "--enable-metrics", "--log-level", "INFO", "--log-level-http", "warning",
          "--disable-radix-cache", "--schedule-policy", "fcfs"]
LLAMA = ["-m", MODEL, "-a", "seedling", "--host", "127.0.0.1", "--port", "0", "-c", "1024", "-np", "4", "-b", "256",
         "-ub", "64", "-ngl", "99", "-fa", "on", "--no-mmap", "--mlock", "-cb", "--metrics", "--jinja", "--no-webui",
         "-to", "600"]
TGI = ["--model-id", MODEL, "--hostname", "127.0.0.1", "-p", "0", "--num-shard", "1", "--sharded", "false",
       "--max-concurrent-requests", "64", "--max-input-tokens", "512", "--max-total-tokens", "1024",
       "--max-batch-prefill-tokens", "256", "--max-waiting-tokens", "20", "--trust-remote-code", "--json-output"]


class Foreign(Cluster):
    """A cluster whose leader is started with flags of another engine alone, but for two ports."""

    def __init__(self, flags):
        super().__init__(workers=1)
        self.flags = flags

    def start_leader(self):
        self.leader = Process("leader", [BUILD / "moe-leader", *self.flags, *ANY_PORTS], self.folder)
        self.port = self.port_of("http listening")
        self.control_port = self.port_of("control listening")
        self.url = f"http://127.0.0.1:{self.port}"


@pytest.mark.parametrize("flags, says", [
    (VLLM, ["options: --enable-chunked-prefill is always so", "--swap-space has no effect", "-dp is taken as --data-parallel-size"]),
    (SGLANG, ["--chunked-prefill-size is taken as --max-num-batched-tokens", "--attention-backend has no effect"]),
    (LLAMA, ["options: -c is taken as --max-model-len", "-ngl has no effect", "--webui asks for nothing"]),
    (TGI, ['"--max-total-tokens is taken as --max-model-len']),
], ids=["vllm", "sglang", "llama-server", "tgi"])
def test_a_command_line_of_another_engine_starts_a_leader_that_answers(flags, says):
    with Foreign(flags) as cluster:
        assert cluster.chat("What is a mixture of experts?", max_tokens=8)["choices"][0]["message"]["content"]
        model = requests.get(cluster.url + "/v1/models", timeout=10).json()["data"][0]
        assert model["id"] == "seedling"
        assert model["max_model_len"] == (1000 if flags is VLLM else 1024)
        for words in says:
            assert words in cluster.leader.log()


@pytest.mark.parametrize("flags, words", [
    (["--model", MODEL, "--tensor-parallel-size", "16"], ["--tensor-parallel-size 16: tensor parallel 16 does not divide"]),
    (["--model", MODEL, "--gpu-memory-utilization", "0.9"], ["--kv-cache-memory"]),
    (["--model-path", MODEL, "--tp", "8", "--dp", "8", "--enable-dp-attention"], ["--enable-dp-attention", "divide that size"]),
    (["-m", MODEL, "-t", "8"], ["moe-worker --threads"]),
    (["--model-id", MODEL, "--quantize", "awq"], ["--quantize", "--dtype"]),
    (["--model", MODEL, "--speculative-config", '{"method": "ngram"}'], ["speculative"]),
    (["--model", MODEL, "--moe-gpu-prefetch", "2"], ["--moe-gpu-prefetch"]),
    (["serve", "Qwen/Qwen3-30B-A3B"], ["--model FOLDER"]),
    (["Qwen/Qwen3-30B-A3B"], ["--model FOLDER"]),
    (["--model", "Qwen/Qwen3-30B-A3B"], ["hf download Qwen/Qwen3-30B-A3B --local-dir Qwen3-30B-A3B\n", "--model Qwen3-30B-A3B"]),
    (["-m", "mixtral-8x7b.Q4_K_M.gguf"], ["GGUF"]),
    (["-hf", "ggml-org/gpt-oss-20b-GGUF"], ["hf download"]),
])
def test_what_is_not_there_is_refused_with_what_to_use(flags, words):
    result = subprocess.run([BUILD / "moe-leader", *flags], capture_output=True, text=True, timeout=30)
    assert result.returncode == 2
    for word in words:
        assert word in result.stderr


def test_the_download_command_runs_nothing_but_a_download():
    for name in ("a/b;reboot", "a/$(reboot)", "../x", "/x/y", "-a/b", "a/-b", "a/b/c", "a/b c"):
        result = subprocess.run([BUILD / "moe-leader", f"--model={name}"], capture_output=True, text=True, timeout=30)
        assert result.returncode != 0
        assert "hf download" not in result.stderr
