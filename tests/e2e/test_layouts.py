"""test_layouts.py: groups whose workers share requests, layers and experts, as processes: the answers of one worker, a kill that no
request notices, refusals, and what people are shown."""
import concurrent.futures
import re
import subprocess

import pytest
import requests

from cluster import BUILD, MODEL, Cluster, wait_for

QUESTIONS = ["What is the capital of Kenya?", "What is a mixture of experts?", "Name three rivers.",
             "Count to ten.", "Why is the sky blue?", "Say something about stone and water."]

# pp, dp, tp, ep, etp
LAYOUTS = [(1, 1, 2, 2, 1), (2, 1, 2, 1, 2), (1, 2, 2, 2, 2), (3, 1, 1, 1, 1), (1, 3, 2, 3, 2)]


def flags(layout):
    names = ("pipeline", "data", "tensor", "expert", "expert-tensor")
    return [text for name, size in zip(names, layout) for text in (f"--{name}-parallel-size", str(size))]


def group(layout, local=True):
    pp, dp, tp, _, _ = layout
    n = pp * dp * tp
    return Cluster(workers=0 if local else n, leader_flags=[*flags(layout), "--max-num-seqs", "4",
                                                            *(["--local-workers", str(n)] if local else [])])


def ask(cluster, question):
    answer = cluster.chat(question, max_tokens=24, seed=7, temperature=0.7)
    return answer["choices"][0]["message"]["content"], answer["choices"][0]["digest"]


def ask_all(cluster):
    with concurrent.futures.ThreadPoolExecutor(len(QUESTIONS)) as pool:
        return list(pool.map(lambda q: ask(cluster, q), QUESTIONS))


@pytest.fixture(scope="module")
def expected():
    with group((1, 1, 1, 1, 1)) as cluster:
        return ask_all(cluster)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda l: "pp{}-dp{}-tp{}-ep{}-etp{}".format(*l))
def test_a_layout_answers_as_one_worker_does(layout, expected):
    pp, dp, tp, ep, etp = layout
    with group(layout) as cluster:
        assert ask_all(cluster) == expected
        status = requests.get(cluster.url + "/status", timeout=10).json()
        assert status["layout"] == {"pp": pp, "dp": dp, "tp": tp, "ep": ep, "etp": etp}
        places = [(w["stage"], w["dp_group"], w["tp_index"]) for w in status["workers"]]
        assert places == [(s, d, t) for s in range(pp) for d in range(dp) for t in range(tp)]
        assert sum(w["layers"] for w in status["workers"]) == 4 * dp * tp
        assert f"layout of {pp * dp * tp} workers: pp {pp} dp {dp} tp {tp} ep {ep} etp {etp}" in cluster.leader.log()
        shown = subprocess.run([BUILD / "moectl", "status", "--places", "--url", cluster.url], capture_output=True, text=True, timeout=30)
        assert shown.returncode == 0 and "EXPERTS" in shown.stdout and max(map(len, shown.stdout.split("\n"))) <= 80
        groups = [labels for name, labels in cluster.metrics() if name == "moesaic_dp_group_kv_blocks_used"]
        assert groups == [(("group", str(d)),) for d in range(dp)]
        assert cluster.check_accounts() == "ok"


def test_a_worker_of_a_layout_may_be_killed(expected):
    """The second stage's second TP index: it samples nothing, and its group cannot go on without it."""
    with group((2, 1, 2, 1, 2), local=False) as cluster:
        whole, _ = ask(cluster, QUESTIONS[0])
        rank = {w["name"]: w["rank"] for w in requests.get(cluster.url + "/status", timeout=10).json()["workers"]}
        victim = next(w for w in cluster.workers if rank[w.name] == 3)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(cluster.chat, QUESTIONS[1], max_tokens=200, ignore_eos=True, min_tokens=200)
            wait_for("a running request", lambda: cluster.metric("vllm:num_requests_running") == 1)
            victim.send(9)
            wait_for("the loss", lambda: not cluster.ready())
            cluster.workers.append(cluster.start_worker())
            assert running.result(120)["choices"][0]["finish_reason"] == "length"
        cluster.workers.remove(victim)
        victim.end()
        assert ask_all(cluster) == expected and whole == expected[0][0]
        assert cluster.metric("moesaic_replay_mismatches_total") == 0
        assert cluster.metric("moesaic_replays_total") >= 1
        assert cluster.check_accounts() == "ok"


@pytest.mark.parametrize("wanted, words", [
    (["--tensor-parallel-size", "3"], "--tensor-parallel-size 3: tensor parallel 3 does not divide the 8 segments"),
    (["--pipeline-parallel-size", "5"], "every stage needs a layer, and the model has 4; the nearest layouts are"),
    (["--workers", "3", "--tensor-parallel-size", "2"], "needs 2 workers, not 3; the nearest layouts are"),
    (["--data-parallel-size", "2", "--tensor-parallel-size", "1", "--expert-parallel-size", "4"], "--expert-parallel-size 4: data 2 x tensor 1 parallel is not expert 4"),
    (["--tensor-parallel-size", "1024", "--data-parallel-size", "2"], "more than 1024 workers"),
], ids=lambda x: x if isinstance(x, str) else "")
def test_a_layout_that_cannot_be_is_refused_before_anything_starts(wanted, words):
    for command in ([BUILD / "moe-leader", "--model", MODEL, "--port", "0", "--control-port", "0", "--grpc-port", "0"],
                    [BUILD / "moectl", "plan", MODEL]):
        refused = subprocess.run([*command, *wanted], capture_output=True, text=True, timeout=30)
        assert refused.returncode == 2
        assert words in refused.stdout + refused.stderr


def test_a_plan_is_the_layout_that_is_taken():
    wanted = ["--workers", "6", "--tensor-parallel-size", "2"]
    plan = subprocess.run([BUILD / "moectl", "plan", MODEL, *wanted], capture_output=True, text=True, timeout=30)
    assert plan.returncode == 0 and max(map(len, plan.stdout.split("\n"))) <= 80
    assert re.search(r"^   5  -      cpu        0     2    1  0-3     13-15 ", plan.stdout, re.M)
    with Cluster(workers=0, leader_flags=[*wanted, "--local-workers", "6"]) as cluster:
        table = plan.stdout.replace("  -      cpu", "  local  cpu").split("A worker needs")[0]
        assert table in cluster.leader.log()
    small = subprocess.run([BUILD / "moectl", "plan", MODEL, "--workers", "2", "--worker-memory", "1MiB", "--all"],
                           capture_output=True, text=True, timeout=30)
    assert small.returncode == 3 and "which is too little" in small.stdout and "All layouts of 2 workers" in small.stdout
