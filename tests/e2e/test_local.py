"""test_local.py: --local-workers: one command is the whole group, and nothing of it is left when the leader ends, however it ends."""
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from cluster import BUILD, MODEL, Cluster, Reader, wait_for

KENYA = "What is the capital of Kenya?"
NAIROBI = "The capital of Kenya is Nairobi."


def started(log):
    """{name: pids, the newest last} of the workers that the leader says it started."""
    pids = {}
    for name, pid in re.findall(r"leader local: worker started name (\S+) pid (\d+)", log):
        pids.setdefault(name, []).append(int(pid))
    return pids


def runs(pid):
    """Whether a process is there and no zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def listens_on(pid):
    """Addresses, as the kernel writes them, on which a process listens for TCP."""
    links = [os.readlink(entry) for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()]
    rows = [row.split() for file in ("tcp", "tcp6") for row in pathlib.Path(f"/proc/{pid}/net/{file}").read_text().split("\n")[1:] if row]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in links}


def all_gone(log):
    wait_for("end of all workers", lambda: not any(runs(pid) for pids in started(log).values() for pid in pids))


def local(n, *flags):
    return Cluster(workers=0, leader_flags=["--local-workers", str(n), *flags])


def answers(cluster):
    return cluster.chat(KENYA)["choices"][0]["message"]["content"] == NAIROBI


def lead(*flags, program=BUILD / "moe-leader", env=None):
    """A leader that is expected to end by itself."""
    ports = ["--port", "0", "--control-port", "0", "--grpc-port", "0"]
    return subprocess.run([program, *ports, *flags], capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})})


def test_one_command_serves_heals_and_drains():
    # A busy machine needs more than the 25 s of an unset --shutdown-timeout for what is to end by itself.
    with local(2, "--max-num-seqs", "3", "--shutdown-timeout", "150") as cluster:
        assert answers(cluster)
        says = rf"info  leader main: serving url {cluster.url} model seedling after_s [\d.]+\n"
        wait_for("the line that says where", lambda: re.search(says, cluster.leader.log()))
        log = cluster.leader.log()
        workers = started(log)
        assert sorted(workers) == ["local-0", "local-1"]
        for name, rank in ("local-0", 0), ("local-1", 1):
            assert re.search(rf"info  {name} worker: joined rank {rank} ranks 2", log), "each line says whose it is"
        # A terminal's Ctrl-C is the leader's alone: the order of leaving is its affair.
        groups = {os.getpgid(pids[-1]) for pids in workers.values()}
        assert len(groups) == 2 and os.getpgid(cluster.leader.popen.pid) not in groups
        for pids in workers.values():
            assert listens_on(pids[-1]) == {"0100007F"}, "the data plane is this machine's own: 127.0.0.1"

        # A worker dies: it is started again, with its rank, and the group forms anew.
        os.kill(workers["local-1"][-1], signal.SIGKILL)
        wait_for("restart", lambda: len(started(cluster.leader.log())["local-1"]) == 2)
        wait_for("second group", lambda: "group ready epoch 2" in cluster.leader.log(), 60)
        wait_for("ready", cluster.ready)
        assert answers(cluster)
        assert re.search(r"warn  leader local: worker ended name local-1 pid \d+ signal 9", cluster.leader.log())
        assert cluster.check_accounts() == "ok"

        # A worker stands still: it is lost, and as it would never end, it is killed and started again.
        os.kill(started(cluster.leader.log())["local-0"][-1], signal.SIGSTOP)
        wait_for("restart", lambda: len(started(cluster.leader.log())["local-0"]) == 2)
        wait_for("third group", lambda: "group ready epoch 3" in cluster.leader.log(), 60)
        wait_for("ready", cluster.ready)
        assert answers(cluster)
        log = cluster.leader.log()
        assert re.search(r"worker lost rank 0 name local-0 reason \"(no heartbeat|nothing was heard)", log)
        assert re.search(r"warn  leader local: worker killed name local-0 pid \d+ reason \"the group lost it, and it is stopped\"", log)

        # A worker is asked to end: what runs goes on to its end, what comes meanwhile waits for the next group, and nobody is refused.
        readers = [Reader(cluster.url, i, 400) for i in range(3)]
        wait_for("tokens", lambda: all(len(r.events) > 2 for r in readers))
        os.kill(started(cluster.leader.log())["local-1"][-1], signal.SIGTERM)
        wait_for("the wish to leave", lambda: "worker drains rank 1 name local-1" in cluster.leader.log())
        later = [Reader(cluster.url, 10 + i, 20) for i in range(3)]
        for reader in [*readers, *later]:
            reader.join(60)
            assert reader.complete(), (reader.status, reader.failure, reader.events[-2:])
        wait_for("fourth group", lambda: "group ready epoch 4" in cluster.leader.log(), 60)
        wait_for("ready", cluster.ready)
        log = cluster.leader.log()
        assert re.search(r"info  leader local: worker ended name local-1 pid \d+ code 0", log) and len(started(log)["local-1"]) == 3
        assert re.search(r"info  leader members: worker left rank 1 name local-1 ", log)

        # SIGTERM: what runs and waits goes on to its end, then the workers leave, by themselves.
        readers = [Reader(cluster.url, i, 400) for i in range(8)]
        wait_for("tokens", lambda: sum(len(r.events) > 2 for r in readers) >= 6)
        cluster.leader.send(signal.SIGTERM)
        for reader in readers:
            reader.join(150)
            assert reader.complete(), (reader.status, reader.failure, reader.events[-2:])
        assert cluster.leader.wait() == 0
        log = cluster.leader.log()
        assert len(re.findall(r"info  leader local: worker ended name local-\d pid \d+ code 0", log)) == 3
        assert "workers killed" not in log
        all_gone(log)


def test_a_killed_leader_leaves_no_orphans_and_shows_no_token(monkeypatch, tmp_path):
    token = "a-token-of-some-length-0123456789"
    config = tmp_path / "leader.yaml"
    config.write_text("max-num-seqs: 3\n")  # which no worker understands
    monkeypatch.setenv("MOESAIC_CONTROL_TOKEN", token)
    monkeypatch.setenv("MOESAIC_CONFIG", str(config))
    with local(2) as cluster:
        workers = [pids[-1] for pids in started(cluster.leader.log()).values()]
        for pid in [cluster.leader.popen.pid, *workers]:
            shown = b"".join(pathlib.Path(f"/proc/{pid}/{file}").read_bytes() for file in ("environ", "cmdline"))
            assert token.encode() not in shown
        os.kill(workers[0], signal.SIGSTOP)  # one that cannot even notice
        cluster.leader.send(signal.SIGKILL)
        cluster.leader.wait()
        all_gone(cluster.leader.log())


def test_others_may_join_where_the_group_is_larger():
    with Cluster(workers=2, leader_flags=["--local-workers", "1"]) as cluster:  # the second finds no place
        wait_for("a refusal", lambda: "all 2 ranks are taken" in cluster.leader.log())
        assert answers(cluster)


@pytest.mark.parametrize("flags, code, word", [
    (["--model", "/nowhere"], 1, "/nowhere"),
    (["--model", str(MODEL), "--workers", "1"], 2, "--local-workers 2"),
    (["--model", str(MODEL), "--lws-group-size", "2"], 2, "--lws-group-size"),
    (["--model", str(MODEL), "--control-tls-cert", "x", "--control-tls-key", "y"], 2, "--control-tls-ca"),
])
def test_what_cannot_work_is_said_once_before_a_worker_starts(flags, code, word):
    ended = lead("--local-workers", "2", *flags)
    assert ended.returncode == code
    assert ended.stderr.count(word) == 1 or "starting" in ended.stderr and len(re.findall(f"error .*{word}", ended.stderr)) == 1
    assert started(ended.stderr) == {}


def test_a_missing_program_is_named(tmp_path):
    shutil.copy(BUILD / "moe-leader", tmp_path)
    ended = lead("--model", str(MODEL), "--local-workers", "2", program=tmp_path / "moe-leader", env={"PATH": "/nowhere:/usr/bin"})
    assert ended.returncode == 1
    assert f"--local-workers: moe-worker is neither in {tmp_path} nor in a folder of PATH" in ended.stderr


def test_a_worker_that_cannot_load_is_not_started_again(tmp_path):
    model = tmp_path / "model"
    shutil.copytree(MODEL, model)
    for weights in model.glob("*.safetensors"):
        with open(weights, "r+b") as file:
            file.seek(weights.stat().st_size // 2)
            file.write(b"\xff" * 65536)  # NaN, which only who reads the weights can see
    ended = lead("--model", str(model), "--local-workers", "1")
    assert ended.returncode == 1
    assert [len(pids) for pids in started(ended.stderr).values()] == [1]
    assert re.search(r"error local-0 worker: fails reason .*NaN", ended.stderr)
    assert "error leader local: gives up name local-0" in ended.stderr
    all_gone(ended.stderr)


def test_a_crash_loop_is_told_and_ends(tmp_path):
    shutil.copy(BUILD / "moe-leader", tmp_path)
    worker = tmp_path / "moe-worker"
    worker.write_text("#!/bin/sh\nkill -SEGV $$\n")
    worker.chmod(0o755)
    ended = lead("--model", str(MODEL), "--local-workers", "1", program=tmp_path / "moe-leader")
    assert ended.returncode == 1
    assert len(started(ended.stderr)["local-0"]) == 5
    assert "gives up name local-0 reason \"it ended 5 times within 600 s\"" in ended.stderr
