#!/usr/bin/env python3
"""run.py: builds and runs every test and says how many passed, failed and were skipped.

  dev      ASan and UBSan: unit, kernels, golden, fault and fuzz-corpus tests, a short simulation
  tsan     the tests that use threads, over the in-memory fabric and channel
  release  kernels and goldens as users get them, 1,000 simulated seeds, real processes with real clients
  fuzz     libFuzzer for a few minutes, shared by all fuzzers

The seconds of CPU time behind each step are those of all its processes. What runs beside what, and why: docs/testing.md.

A failing step's output is printed; the others stay quiet. Logs are under build/test-logs.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "test-logs"
FUZZ_MINUTES_IN_CI = 4
CORES = len(os.sched_getaffinity(0))


RUNNING = set()  # each is a group of its own, which no signal to this process's group reaches


def end_all(number, _frame):
    for pid in list(RUNNING):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    sys.exit(128 + number)


Took = collections.namedtuple("Took", "wall cpu")  # seconds, the CPU's of all processes together


class Totals:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.notes = []

    def add(self, passed=0, failed=0, skipped=0, note=None):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped
        if note:
            self.notes.append(note)


def run(name, command, env=None, timeout=3000):
    """Runs a command with its output in a log file. Returns (exit code, 124 when it took too long, output, Took)."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{name}.log"
    start = time.monotonic()
    with open(log, "wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   env={**os.environ, **(env or {})}, start_new_session=True)
        RUNNING.add(process.pid)
        process.returncode, cpu = wait(process, timeout)
        RUNNING.discard(process.pid)
    return process.returncode, log.read_text(errors="replace"), Took(time.monotonic() - start, cpu)


def wait(process, timeout):
    """As subprocess.run does, which does not tell what a process used: it never outlives the call, nor what it started when it is cut short."""
    timed_out = threading.Event()

    def end():  # its group; not Popen.kill, which may reap it
        os.killpg(process.pid, signal.SIGKILL)

    too_late = threading.Timer(timeout, lambda: (timed_out.set(), end()))
    too_late.start()
    try:
        _, status, usage = os.wait4(process.pid, 0)
    except BaseException:
        end()
        os.wait4(process.pid, 0)
        raise
    finally:
        too_late.cancel()
    return 124 if timed_out.is_set() else os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime


def report(name, ok, took, what):
    print(f"{'ok  ' if ok else 'FAIL'} {name:<18} {took.wall:6.1f} s  {took.cpu:6.1f} s CPU  {what}".rstrip(), flush=True)


def simple(totals, name, command, **kwargs):
    code, output, took = run(name, command, **kwargs)
    last = output.strip().split("\n")[-1][:120]
    report(name, code == 0, took, last)
    totals.add(passed=code == 0, failed=code != 0)
    if code != 0:
        print(output[-6000:])
    return code == 0


def build(totals, preset, targets=("all",)):
    for step, command in (("configure", ["cmake", "--preset", preset]),
                          ("build", ["cmake", "--build", "--preset", preset, "--target", *targets])):
        code, output, took = run(f"{step}-{preset}", command)
        if code != 0:
            report(f"{step} {preset}", False, took, "")
            print(output[-6000:])
            totals.add(failed=1)
            return False
    report(f"build {preset}", True, took, "")
    return True


def targets_of(pattern):
    """The programs of the tests whose name matches."""
    files = [f for folder in ("unit", "golden", "sim") for f in (ROOT / "tests" / folder).glob("*.c")]
    return sorted(f"{f.parent.name}_{f.stem}" for f in files if re.match(pattern, f"{f.parent.name}/{f.stem}"))


def ctest(totals, preset, name, selection, env=None, more=0):
    """Runs ctest on one build, with so many tests more at once than there are cores, and adds up its JUnit report."""
    junit = LOGS / f"{name}.xml"
    junit.unlink(missing_ok=True)
    command = ["ctest", "--test-dir", f"build/{preset}", "--output-on-failure", "--output-junit", str(junit),
               "--no-tests=error", "-j", str(CORES + more), *selection]
    code, output, took = run(name, command, env)
    counts = {"run": 0, "fail": 0, "notrun": 0}
    skipped = []
    if junit.exists():
        for case in xml.parse(junit).getroot().iter("testcase"):
            status = case.get("status")
            counts[status] = counts.get(status, 0) + 1
            if status == "notrun":
                skipped.append(case.get("name"))
            for part in re.findall(r"^SKIPPED (.*)$", case.findtext("system-out") or "", re.M):
                counts["notrun"] += 1
                skipped.append(f"{case.get('name')} ({part})")
    failed = counts["fail"] if counts["fail"] or code == 0 else 1
    report(name, code == 0, took, f"{counts['run']} passed, {failed} failed, {counts['notrun']} skipped")
    totals.add(counts["run"], failed, counts["notrun"], f"skipped in {name}: {', '.join(skipped)}" if skipped else None)
    if code != 0:
        print(output[-12000:])


def end_to_end(totals):
    """A file of tests on each core, and then, one after the other, the tests that need the machine for themselves."""
    # The files in the order of their names: xdist would begin with those of the most tests, which end first.
    beside = ["-n", str(CORES), "--dist", "loadfile", "--no-loadscope-reorder", "-m", "not alone"]
    parts = [run(name, ["tests/e2e/run.sh", "-rs", *selection, "tests/e2e"])
             for name, selection in (("e2e", beside), ("e2e-alone", ["-m", "alone"]))]
    counts = collections.Counter()
    # "SKIPPED [2] tests/e2e/test_hosts.py:34: needs root": how many, where and why.
    skipped = [line for _, output, _ in parts for line in re.findall(r"^SKIPPED (\[\d+\] .*)$", output, re.M)]
    for code, output, _ in parts:
        numbers = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped|error)", output)}
        failed = numbers.get("failed", 0) + numbers.get("error", 0)
        counts.update(passed=numbers.get("passed", 0), skipped=numbers.get("skipped", 0), failed=failed if failed or code == 0 else 1)
    took = Took(sum(took.wall for _, _, took in parts), sum(took.cpu for _, _, took in parts))
    report("e2e", not counts["failed"], took, f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    totals.add(counts["passed"], counts["failed"], counts["skipped"], f"skipped in e2e: {', '.join(skipped)}" if skipped else None)
    for code, output, _ in parts:
        if code != 0:
            print(output[-12000:])


def fuzz(totals, minutes, seed=0):
    """All fuzzers share the minutes, which are those of one core. seed 0: another one each time."""
    fuzzers = sorted(p.stem for p in (ROOT / "tests" / "fuzz").glob("fuzz_*.c"))
    if not build(totals, "fuzz", fuzzers):
        return
    seconds = max(5, int(minutes * 60 / max(1, len(fuzzers))))
    # A fuzzer has one thread, so each has a core of its own for all of its seconds.
    with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
        for fuzzer, (code, output, took) in zip(fuzzers, pool.map(lambda name: run_fuzzer(name, seconds, seed), fuzzers)):
            executions = re.search(r"number_of_executed_units: (\d+)", output)
            report(fuzzer, code == 0, took, f"{executions.group(1) if executions else '?'} executions")
            totals.add(passed=code == 0, failed=code != 0)
            if code != 0:
                print(output[-6000:])


def run_fuzzer(fuzzer, seconds, seed):
    corpus = ROOT / "tests" / "fuzz" / "corpus" / fuzzer.removeprefix("fuzz_")
    found = ROOT / "build" / "fuzz" / "found" / fuzzer
    found.mkdir(parents=True, exist_ok=True)
    command = [f"build/fuzz/{fuzzer}", f"-max_total_time={seconds}", f"-seed={seed}", "-timeout=10", "-rss_limit_mb=3000",
               f"-artifact_prefix={found}/", "-print_final_stats=1", "-verbosity=0", str(found), str(corpus)]
    return run(fuzzer, command, timeout=seconds + 300)


def everything(totals):
    simple(totals, "tidy", [sys.executable, "tests/tidy.py"])
    simple(totals, "format", ["sh", "-c", "git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror"])
    if build(totals, "dev"):
        # Many of these wait, for other threads and processes or for a clock, and leave their core to one more.
        ctest(totals, "dev", "dev", ["-LE", "sim"], more=1)
        ctest(totals, "dev", "dev-sim", ["-L", "sim"], {"SIM_SEEDS": "30"})
    if build(totals, "tsan", targets_of(THREADED)):
        # A report whose older stack is forgotten matches no suppression: keep the longest history there is.
        suppressions = f"suppressions={ROOT}/tests/tsan.supp halt_on_error=1 second_deadlock_stack=1 history_size=7"
        # UCX hooks madvise in every thread, also where the sanitizer has already let go of it.
        ctest(totals, "tsan", "tsan", ["-R", THREADED], {"TSAN_OPTIONS": suppressions, "UCX_MEM_EVENTS": "n"}, more=1)
    if build(totals, "release"):
        ctest(totals, "release", "release", ["-L", "kernels|golden"])
        ctest(totals, "release", "sim", ["-L", "sim"], {"SIM_SEEDS": "1000"})
        end_to_end(totals)
    # One seed, so that a change is not judged by another's luck; `make fuzz` draws anew.
    fuzz(totals, FUZZ_MINUTES_IN_CI, seed=1)


# Tests whose own code uses threads. The others would only cost time under TSan.
THREADED = ("unit/(base_log|base_ring|base_env_real|net_|leader_http|leader_api|leader_rpc|leader_grpc|leader_run|leader_losses|leader_long_prompt|"
            "leader_render|leader_scores|worker_pool|worker_ranks|worker_threads|worker_weights)|golden/logits")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fuzz", type=float, metavar="MINUTES", help="only the fuzzers, for MINUTES each")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_all)
    totals = Totals()
    start = time.monotonic()
    if arguments.fuzz:
        count = len(list((ROOT / "tests" / "fuzz").glob("fuzz_*.c")))
        fuzz(totals, arguments.fuzz * count)
    else:
        everything(totals)
    for note in totals.notes:
        print(note)
    print(f"took {(time.monotonic() - start) / 60:.1f} minutes")
    print(f"{totals.passed} passed, {totals.failed} failed, {totals.skipped} skipped")
    return 1 if totals.failed or not totals.passed else 0


if __name__ == "__main__":
    sys.exit(main())
