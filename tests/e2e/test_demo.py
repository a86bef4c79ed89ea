"""test_demo.py: the first command of README, as a new user sees it."""
import os
import pathlib
import re
import subprocess

from cluster import BUILD, ROOT


def test_the_demo_answers_measures_and_leaves_nothing_behind():
    environment = {**os.environ, "BUILD": str(BUILD)}
    # A group of its own, so that what it might leave running can be found.
    demo = subprocess.Popen(["deploy/demo.sh"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True,
                            start_new_session=True)
    shown, _ = demo.communicate(timeout=120)
    assert demo.returncode == 0, shown
    assert "The capital of Kenya is Nairobi." in shown
    assert "output tokens/s" in shown and "time to first token" in shown
    rows = [line.split() for line in shown.split("\n") if line.strip().endswith("#")]
    assert {row[0] for row in rows} == {"0", "1"}, "both workers computed experts"
    assert len(rows) == 16 and all(int(row[2]) > 0 for row in rows)
    for way in ("curl http", "OpenAI(base_url", "grpc.insecure_channel"):
        assert way in shown
    left = subprocess.run(["pgrep", "-g", str(demo.pid)], capture_output=True, text=True).stdout
    assert left == "", "the demo left processes running"
    pids = re.findall(r"local: worker started name \S+ pid (\d+)", (ROOT / "build" / "demo" / "leader.log").read_text())
    assert len(pids) == 2 and not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids), "nor workers"
