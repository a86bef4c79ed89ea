"""cluster.py: a leader and its workers as real processes on loopback, for the tests of this folder.

Ports of a leader are held from its start until stop(), so that nobody gets one of them while a leader is being restarted on it.
Whatever happens to the test, the processes end: stop() kills them, and the kernel does when Python dies.
"""
import ctypes
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

import requests
from prometheus_client.parser import text_string_to_metric_families

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build" / "release"))
MODEL = ROOT / "models" / "seedling"
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def wait_for(what, condition, seconds=30):
    """Polls until condition() is true; its value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise TimeoutError(f"no {what} within {seconds} s")


def hold_port():
    """A socket whose port the kernel gives to nobody else, not even for a connection, until it is closed. Who asks for
    the port by its number and sets SO_REUSEADDR, as servers do, may listen on it all the same, again and again."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("", 0))
    return held


class Process:
    def __init__(self, name, command, folder):
        self.name = name
        self.log_path = pathlib.Path(folder) / f"{name}.log"
        self.log_file = open(self.log_path, "ab")
        self.log_start = self.log_file.tell()  # an earlier process may have had this name
        self.popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log_file, stderr=self.log_file,
                                      preexec_fn=die_with_parent)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def own_log(self):
        return self.log_path.read_bytes()[self.log_start:].decode(errors="replace")

    def alive(self):
        return self.popen.poll() is None

    def send(self, number):
        self.popen.send_signal(number)

    def wait(self, seconds=30):
        return self.popen.wait(seconds)

    def end_after(self, number):
        """Waits for the end that a signal brings; 30 s are enough for a drain."""
        if number != signal.SIGKILL:
            self.popen.wait(30)
        self.end()

    def end(self):
        if self.alive():
            self.popen.kill()
        self.popen.wait()
        self.log_file.close()


class Cluster:
    """with Cluster(workers=2) as c: ... ; c.url serves, every worker is in the group."""

    def __init__(self, workers=2, leader_flags=(), worker_flags=(), model=MODEL, leader_prefix=()):
        self.n_workers = workers
        self.model = model
        self.leader_flags = list(leader_flags)
        self.leader_prefix = list(leader_prefix)  # a program that runs the leader in its own place, such as prlimit
        self.worker_flags = list(worker_flags)
        self.folder = tempfile.mkdtemp(prefix="moesaic-e2e-")
        self.leader = None
        self.workers = []
        self.n_started = 0
        self.held = [hold_port() for _ in range(3)]
        self.port, self.control_port, self.grpc_port = (held.getsockname()[1] for held in self.held)

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.print_logs()
            self.stop()
            raise
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            self.print_logs()
        self.stop()

    def start(self):
        self.start_leader()
        self.workers = [self.start_worker() for _ in range(self.n_workers)]
        self.wait_ready()

    def start_leader(self):
        given = any(flag in ("--workers", "--data-parallel-size") for flag in self.leader_flags)
        sizes = [] if given else ["--data-parallel-size", str(self.n_workers)]
        command = [*self.leader_prefix, BUILD / "moe-leader", "--model", self.model, "--port", str(self.port),
                   "--control-port", str(self.control_port), "--grpc-port", str(self.grpc_port),
                   *sizes, "--digest", *self.leader_flags]
        self.leader = Process("leader", command, self.folder)
        self.port = self.port_of("http listening")
        self.control_port = self.port_of("control listening")
        self.grpc_port = self.port_of("grpc listening")
        self.url = f"http://127.0.0.1:{self.port}"

    def restart_leader(self, number=signal.SIGKILL):
        """Ends the leader with this signal and starts another on the same ports."""
        self.leader.send(number)
        self.leader.end_after(number)
        self.start_leader()

    def port_of(self, line):
        def find():
            if not self.leader.alive():
                raise RuntimeError("the leader ended:\n" + self.leader.log())
            found = re.findall(line + r'(?: address |","fields":{"address":")[^\s"]*:(\d+)', self.leader.own_log())
            return found and int(found[-1])
        return wait_for(line, find)

    def start_worker(self, leader=None, prefix=()):
        """prefix: a program that runs the worker in its own place, such as nsenter."""
        self.n_started += 1
        name = f"worker-{self.n_started}"
        leader = leader or f"127.0.0.1:{self.control_port}"
        command = [*prefix, BUILD / "moe-worker", "--leader", leader, "--name", name, *self.worker_flags]
        return Process(name, command, self.folder)

    def ready(self):
        try:
            return requests.get(self.url + "/ready", timeout=5).status_code == 200
        except requests.ConnectionError:
            return False

    def wait_ready(self, seconds=60):
        def check():
            for process in [self.leader, *self.workers]:
                if not process.alive():
                    raise RuntimeError(f"{process.name} ended:\n" + process.log())
            return self.ready()
        wait_for("ready group", check, seconds)

    def stop(self):
        for process in [*self.workers, self.leader]:
            if process is not None:
                process.end()
        for held in self.held:
            held.close()

    def print_logs(self):
        for process in [self.leader, *self.workers]:
            if process is not None:
                print(f"--- {process.name}\n{process.log()[-6000:]}")

    # --- asking

    def post(self, path, body, **kwargs):
        kwargs.setdefault("timeout", 120)
        return requests.post(self.url + path, json=body, **kwargs)

    def chat(self, text, **fields):
        """The answer to one question, as the JSON object; greedy unless said otherwise."""
        body = {"model": "seedling", "messages": [{"role": "user", "content": text}], "temperature": 0, **fields}
        response = self.post("/v1/chat/completions", body)
        response.raise_for_status()
        return response.json()

    def metrics(self):
        """{(name, ((label, value), ...)): number} of the whole page."""
        text = requests.get(self.url + "/metrics", timeout=10).text
        return {(s.name, tuple(sorted(s.labels.items()))): s.value
                for family in text_string_to_metric_families(text) for s in family.samples}

    def metric(self, name, **labels):
        """The sum of the samples of a name that have these labels."""
        return sum(value for (sample, pairs), value in self.metrics().items()
                   if sample == name and labels.items() <= dict(pairs).items())

    def check_accounts(self):
        """Asks the leader to recount blocks, slots and queues; the line of its log that says how it went."""
        before = len(re.findall("accounts (ok|broken)", self.leader.log()))
        self.leader.send(signal.SIGUSR1)
        found = wait_for("accounts", lambda: re.findall("accounts (ok|broken[^\n]*)", self.leader.log())[before:], 20)
        return found[0]


class Reader(threading.Thread):
    """One streaming client of a long answer; what it heard and when the stream ended."""

    def __init__(self, url, seed, max_tokens=1900, session=None):
        super().__init__(daemon=True)
        self.url, self.seed, self.max_tokens = url, seed, max_tokens
        self.session = session or requests
        self.events, self.ended_at, self.status, self.failure, self.headers = [], None, None, None, {}
        self.start()

    def run(self):
        body = {"model": "seedling", "messages": [{"role": "user", "content": "Tell me a story about a fox."}], "stream": True,
                "max_tokens": self.max_tokens, "ignore_eos": True, "temperature": 1, "seed": self.seed}
        try:
            with self.session.post(self.url + "/v1/chat/completions", json=body, stream=True, timeout=120) as response:
                self.status, self.headers = response.status_code, response.headers
                for line in response.iter_lines():
                    if line:
                        self.events.append(line.decode())
        except requests.RequestException as e:
            self.failure = e
        self.ended_at = time.monotonic()

    def complete(self):
        """The stream went on to its last token and its end."""
        return (self.failure is None and self.status == 200 and self.events[-1:] == ["data: [DONE]"]
                and '"finish_reason":"length"' in self.events[-2])
