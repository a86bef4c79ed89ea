"""test_hosts.py: a group whose workers are on several machines: what travels how, over networks that are slow, lossy or cut.

The machines are namespaces of this one (hosts.py).
"""
import re
import signal

import pytest

from cluster import Cluster, Reader, wait_for
from hosts import Hosts, why_not

# Alone: the machines' names and addresses are the same in each run, and a lossy wire is also slow.
pytestmark = [pytest.mark.alone, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]

QUESTIONS = ["What is the capital of Kenya?", "Who are you?", "Count to twenty.", "Tell me a story about a fox. " * 8]


class Group(Cluster):
    """Workers on hosts: places[i] is the host of the i-th."""

    def __init__(self, hosts, places, folder, spares=(), sizes=()):
        token = folder / "token"
        token.write_text("let-me-in")
        control = ["--control-token-file", token, "--control-insecure"]
        super().__init__(workers=len(places),
                         leader_flags=[*control, *sizes, "--control-host", hosts.address, "--interface", hosts.device],
                         worker_flags=[*control, "--interface", "eth0", "--log-level", "debug"])
        self.hosts, self.places = hosts, [*places, *spares]

    def start(self):
        self.start_leader()
        self.workers = [self.start_worker(f"{self.hosts.address}:{self.control_port}", self.hosts[place].prefix)
                        for place in self.places]
        self.wait_ready()


def digests(cluster):
    return [cluster.chat(question, max_tokens=24)["choices"][0]["digest"] for question in QUESTIONS]


@pytest.fixture(scope="module")
def lone(cluster):
    """What a group on one machine answers."""
    return digests(cluster)


def texts(reader):
    return "".join(re.findall(r'"content":"((?:[^"\\]|\\.)*)"', "\n".join(reader.events)))


def members(group):
    """{rank: (host, lanes)} of the workers' own words; a spare is none yet."""
    found = {}
    for place, worker in zip(group.places, group.workers):
        for rank, lanes in re.findall(r"\bready epoch \d+ rank (\d+) .*lanes (.*)", worker.log()):
            found[int(rank)] = (place, lanes)
    return found


def sent(group):
    """What each exchange of the workers' last epoch cost, summed over them: {kind: {name: number}}."""
    total = {}
    for worker in group.workers:
        for kind, rest in re.findall(r"\bsent epoch \d+ kind (\w+) (.*)", worker.log()):
            for name, number in re.findall(r"(\w+) (\d+)", rest):
                total.setdefault(kind, {}).setdefault(name, 0)
                total[kind][name] += int(number)
    return total


def moe_layers(group):
    return len({dict(labels)["layer"] for name, labels in group.metrics() if name == "moesaic_expert_tokens_total"})


def test_neighbours_share_memory_and_hosts_talk_tcp(lone, tmp_path):
    """Two hosts with two workers each give the answers of one machine, and no message more than the layout needs."""
    with Hosts(2) as hosts, Group(hosts, [0, 0, 1, 1], tmp_path) as group:
        told = members(group)
        for rank, (place, lanes) in told.items():
            print(f"rank {rank} on {hosts[place].name}: {lanes}")
            for peer, (other, _) in told.items():
                if peer == rank:
                    continue
                lane = re.search(rf"rank {peer} ([\w/+]+)", lanes)[1]
                assert ("sysv" in lane) == (place == other) and ("tcp/eth0" in lane) == (place != other), lanes
            assert re.search(r"leader tcp/eth0", lanes), lanes
        assert digests(group) == lone
        layers = moe_layers(group)
        group.leader.send(signal.SIGTERM)
        group.leader.end_after(signal.SIGTERM)
        wait_for("the workers' sums", lambda: all("kind combine" in w.log() for w in group.workers))
        print("exchange   messages a layer  with rows   bytes a layer  of rows")
        for kind, t in sorted(sent(group).items()):
            exchanges = t["steps"] * layers  # of all workers together
            print(f"{kind:10} {t['messages'] / exchanges:16.2f} {t['messages_with_rows'] / exchanges:9.2f}"
                  f" {t['bytes'] / exchanges:15.0f} {t['row_bytes'] / exchanges:9.0f}")
            assert t["messages"] == exchanges * 3, "one to each other rank, who cannot know that there are no rows"
            assert t["row_bytes"] > 0 and t["bytes"] - t["row_bytes"] < 200 * t["messages"], "small heads"


def test_groups_that_split_heads_stay_on_one_host(lone, tmp_path):
    """Two TP groups, one on each host, though their workers join by turns: only experts' rows cross the network."""
    sizes = ["--data-parallel-size", "2", "--tensor-parallel-size", "2"]
    with Hosts(2) as hosts, Group(hosts, [0, 1, 0, 1], tmp_path, sizes=sizes) as group:
        places = {rank: place for rank, (place, _) in members(group).items()}
        assert places[0] == places[1] != places[2] == places[3]
        assert digests(group) == lone


def test_a_slow_wire_that_loses_packets_changes_no_bit(lone, tmp_path):
    with Hosts(2, delay_ms=1, loss=0.01, mbit=200) as hosts, Group(hosts, [0, 1], tmp_path) as group:
        assert digests(group) == lone
        assert group.metric("moesaic_workers_lost_total") == 0


def test_a_host_that_is_cut_off_is_replaced_by_a_spare(lone, tmp_path):
    """Streams pause and go on with the same tokens on the host that waited."""
    with Hosts(3) as hosts:
        with Group(hosts, [0, 1], tmp_path, spares=[2]) as group:
            whole = Reader(group.url, 5, 400)
            whole.join(60)
            assert whole.complete()
            story = Reader(group.url, 5, 400)
            wait_for("some tokens", lambda: len(story.events) > 40)
            hosts.cut(max(place for place, _ in members(group).values()))
            story.join(90)
            assert story.complete(), (story.failure, story.events[-2:])
            assert texts(story) == texts(whole)
            assert digests(group) == lone
