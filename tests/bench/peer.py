"""peer.py: this server and llama-server on the same weights, cores and requests, in alternation; how many times as fast ours is.

    PEER_LLAMA_SERVER=llama-server PEER_GGUF=big.gguf MODEL=big python3 tests/bench/peer.py

MODEL is a folder that make_model.py wrote (or another Qwen3-MoE; default: models/seedling), PEER_GGUF the same weights by peer_gguf.py.
PEER_ROUNDS (3) is how often each row is measured on each side; printed are the medians and, of both, the least and the most. WORKLOADS
(decode_1,decode_8,decode_64,prefill,shared) chooses rows, PEER_WORKER_FLAGS adds flags to our worker ("--kernels avx2").
PEER_THREADS is for both, default: the cores. Where other work shares the machine only one thread each is fair: two of llama-server wait for each other
after every operation, so a core that one of them does not get costs it both. How long threads waited for a core goes to stderr; where that is much,
only server_cpu_s says something: the seconds that the server's threads ran, for all requests of the row.

llama-server gets as many slots as requests run at once, flash attention, and PEER_FLAGS; ours its defaults and one worker.
Rates are compared as ours / theirs, times as theirs / ours: above 1 ours is faster; nan: one of the two is 0. Without PEER_LLAMA_SERVER nothing is
run, which is said. --check only looks whether everything is there.
"""
import csv
import http.client
import io
import json
import math
import os
import pathlib
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build" / "release"
CORES = len(os.sched_getaffinity(0))
THREADS = int(os.environ.get("PEER_THREADS", CORES))
READY_S = 300

# Name: flags of moectl bench, requests at once, columns to compare. The second row of shared finds what the first left in caches.
WORKLOADS = {
    "decode_1": (["--random-input-len", 16, "--max-tokens", 128, "--requests", 3], "1", ["output_tokens_per_s", "token_p50_ms"]),
    "decode_8": (["--random-input-len", 16, "--max-tokens", 64, "--requests", 16], "8", ["output_tokens_per_s", "token_p50_ms"]),
    "decode_64": (["--random-input-len", 16, "--max-tokens", 64, "--requests", 64], "64", ["output_tokens_per_s", "token_p50_ms"]),
    "prefill": (["--random-input-len", 1024, "--max-tokens", 1, "--requests", 3], "1", ["prompt_tokens_per_s", "ttft_p50_ms"]),
    "shared": (["--random-prefix-len", 1024, "--random-input-len", 64, "--max-tokens", 64, "--requests", 64], "64,64",
               ["output_tokens_per_s", "ttft_p50_ms"]),
}
SLOT_TOKENS = 1280  # of a slot's context: the longest request, and some


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def descendants(pid):
    """The process and those that it started."""
    found = [pid]
    for one in found:
        try:
            found += map(int, pathlib.Path(f"/proc/{one}/task/{one}/children").read_text().split())
        except OSError:
            pass
    return found


def thread_times(path):
    """Nanoseconds that a thread ran, and that it could have run but others had the cores; none of one that has ended."""
    try:
        ran, waited = path.read_text().split()[:2]
    except OSError:
        return 0, 0
    return int(ran), int(waited)


class Server:
    """A server's processes, which the block starts and ends; .url answers within."""
    def __init__(self, name, commands, url, ready, log):
        self.name, self.commands, self.url, self.ready, self.log, self.processes = name, commands, url, ready, log, []

    def times(self):
        """thread_times of all its threads together."""
        total = [0, 0]
        for process in self.processes:
            for pid in descendants(process.pid):
                for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
                    total = [a + b for a, b in zip(total, thread_times(path))]
        return total

    def vocab(self):
        """How many ids it has: those of the prompts are drawn from so many."""
        with urllib.request.urlopen(self.url + "/v1/models", timeout=30) as answer:
            return json.load(answer)["data"][0]["meta"]["n_vocab"]

    def __enter__(self):
        try:
            for command in self.commands:
                self.processes.append(subprocess.Popen(list(map(str, command)), stdout=self.log, stderr=self.log))
            self.await_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def await_ready(self):
        end = time.monotonic() + READY_S
        while time.monotonic() < end and all(p.poll() is None for p in self.processes):
            try:
                if urllib.request.urlopen(self.url + self.ready, timeout=5).status == 200:
                    return
            except (urllib.error.URLError, http.client.HTTPException, OSError):
                pass
            time.sleep(0.1)
        raise SystemExit(f"peer: {self.name} did not start; its log is {self.log.name}")

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def start_ours(log, slots):
    port, control, flags = free_port(), free_port(), shlex.split(os.environ.get("PEER_WORKER_FLAGS", ""))
    leader = [BIN / "moe-leader", "--model", os.environ.get("MODEL", ROOT / "models" / "seedling"), "--port", port, "--control-port", control,
              "--grpc-port", 0, "--workers", 1]
    worker = [BIN / "moe-worker", "--leader", f"127.0.0.1:{control}", "--threads", THREADS, *flags]
    return Server("moe-leader", [leader, worker], f"http://127.0.0.1:{port}", "/ready", log)


def start_peer(log, slots):
    port = free_port()
    command = [*shlex.split(os.environ["PEER_LLAMA_SERVER"]), "-m", os.environ["PEER_GGUF"], "--host", "127.0.0.1", "--port", port, "-t", THREADS,
               "-np", slots, "-c", slots * SLOT_TOKENS, "-cb", "-fa", "on", *shlex.split(os.environ.get("PEER_FLAGS", ""))]
    return Server("llama-server", [command], f"http://127.0.0.1:{port}", "/health", log)


def bench(url, flags, concurrency, seed):
    """The rows of one run, as dictionaries of numbers."""
    command = [BIN / "moectl", "bench", "--url", url, "--ignore-eos", "--concurrency", concurrency, "--seed", seed, *flags]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"peer: {url}: {result.stdout}{result.stderr}")
    return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(io.StringIO(result.stdout))]


def expect_whole(name, flags, rows):
    """What was not computed would count as speed."""
    of = dict(zip(flags[::2], flags[1::2]))
    prompt = of["--random-input-len"] + of.get("--random-prefix-len", 0)
    for row in rows:
        want = (of["--requests"] * prompt, of["--requests"] * of["--max-tokens"])
        got = (row["prompt_tokens"], row["output_tokens"])
        if got != want:
            raise SystemExit(f"peer: {name}: {got} tokens of prompts and answers, not {want}")


def expect_same_vocab(server, vocabs):
    """vocabs: those of the servers so far. Ids drawn from another number of them are other prompts."""
    vocabs[server.name] = server.vocab()
    if len(set(vocabs.values())) > 1:
        raise SystemExit(f"peer: the models are not the same: {', '.join(f'{name} has {n} ids' for name, n in vocabs.items())}")


def measure(start, name, round_number, log, vocabs):
    """{(row, column): value} of one workload on one server that is started for it."""
    flags, concurrency, columns = WORKLOADS[name]
    with start(log, int(concurrency.split(",")[0])) as server:
        expect_same_vocab(server, vocabs)
        bench(server.url, ["--random-input-len", 16, "--max-tokens", 8, "--requests", 2], 2, 1000 + round_number)  # its pages are touched
        before = server.times()
        rows = bench(server.url, flags, concurrency, round_number)
        ran, waited = (b - a for a, b in zip(before, server.times()))
    expect_whole(f"{server.name}, {name}", flags, rows)
    names = [name] if len(rows) == 1 else [f"{name}_cold", f"{name}_warm"]
    print(f"# {name}, {server.name}: its threads ran {ran / 1e9:.1f} s, and waited {waited / 1e9:.1f} s for a core", file=sys.stderr)
    values = {(row_name, column): row[column] for row_name, row in zip(names, rows) for column in columns}
    return {**values, (name, "server_cpu_s"): ran / 1e9}


def print_row(key, ours, peer):
    (name, column), a, b = key, statistics.median(ours), statistics.median(peer)
    spread = ",".join(f"{x:.2f}" for values in (ours, peer) for x in (min(values), max(values)))
    above, below = (b, a) if column.endswith(("_ms", "_cpu_s")) else (a, b)
    ratio = above / below if above and below else math.nan
    print(f"{name},{column},{a:.2f},{b:.2f},{ratio:.2f},{spread}", flush=True)


def check_environment(wanted):
    """Before the first minute is spent."""
    server = shlex.split(os.environ["PEER_LLAMA_SERVER"])[0]
    if shutil.which(server) is None:
        raise SystemExit(f"peer: PEER_LLAMA_SERVER: {server} is no program")
    if not os.path.isfile(os.environ.get("PEER_GGUF", "")):
        raise SystemExit("peer: PEER_GGUF names no file; tests/bench/peer_gguf.py writes one of MODEL")
    for name in wanted:
        if name not in WORKLOADS:
            raise SystemExit(f"peer: WORKLOADS: {name!r} is none of {', '.join(WORKLOADS)}")
    if thread_times(pathlib.Path("/proc/self/schedstat"))[0] == 0:
        raise SystemExit("peer: this kernel does not count how long threads run (/proc/self/schedstat)")


def main():
    if not os.environ.get("PEER_LLAMA_SERVER"):
        if sys.argv[1:] != ["--check"]:
            print("# peer: not run; PEER_LLAMA_SERVER names no llama-server (docs/performance.md)")
        return
    wanted = os.environ.get("WORKLOADS", ",".join(WORKLOADS)).split(",")
    check_environment(wanted)
    if sys.argv[1:] == ["--check"]:
        return
    rounds, vocabs = int(os.environ.get("PEER_ROUNDS", 3)), {}
    folder = pathlib.Path(tempfile.mkdtemp(prefix="moesaic-peer-"))
    print(f"# {THREADS} threads each on {CORES} cores, load {os.getloadavg()[0]:.1f}, priority {os.nice(0)}, medians of {rounds}; logs in {folder}")
    print("workload,column,ours,peer,ratio,ours_least,ours_most,peer_least,peer_most")
    for name in wanted:
        ours, peer = {}, {}
        for r in range(rounds):
            sides = [(start_ours, ours), (start_peer, peer)]
            for start, into in sides if r % 2 == 0 else sides[::-1]:
                with open(folder / f"{name}-{start.__name__}-{r}.log", "w") as log:
                    for key, value in measure(start, name, r, log, vocabs).items():
                        into.setdefault(key, []).append(value)
        for key in ours:
            print_row(key, ours[key], peer[key])


if __name__ == "__main__":
    sys.exit(main())
