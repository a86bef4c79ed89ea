"""hosts.py: several machines on this one, for tests of groups that span a network. Needs root.

Each has a network, a host name and System V memory of its own, so that neither UCX nor the leader can take two of them for one machine.
Between them is either a bridge of the kernel's, or a wire that delays, loses and slows packets as it is told. The wire is a program and
no queue of the kernel's (tc netem), because many kernels come without that one, and because its losses come from a seed.

This machine is one of them: its device has the first address, and the test's leader and clients live here.
"""
import ctypes
import fcntl
import heapq
import os
import pathlib
import random
import select
import signal
import struct
import subprocess
import sys
import time

from cluster import die_with_parent, wait_for

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
FRAME_BYTES_MAX = 65536


def why_not():
    """Why this machine cannot play several, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    probe = subprocess.run(["unshare", "--net", "--ipc", "--uts", "ip", "link", "add", "veth-a", "type", "veth", "peer", "name", "veth-b"],
                           capture_output=True, text=True)
    return None if probe.returncode == 0 else f"no network namespaces: {probe.stderr.strip()}"


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Host:
    """One machine: processes that are started with its prefix run there."""

    def __init__(self, name):
        self.name = name
        # It holds the namespaces; they go with the last process in them.
        script = 'hostname "$0" && echo ready && exec sleep infinity'
        self.holder = subprocess.Popen(["unshare", "--net", "--ipc", "--uts", "sh", "-c", script, name], stdout=subprocess.PIPE,
                                       preexec_fn=die_with_parent)
        assert self.holder.stdout.readline() == b"ready\n"
        self.prefix = ["nsenter", "--net", "--ipc", "--uts", "--target", str(self.holder.pid)]
        self.run("ip", "link", "set", "lo", "up")

    def run(self, *command):
        subprocess.run([*self.prefix, *command], check=True, capture_output=True)

    def end(self):
        self.holder.kill()
        self.holder.wait()


class Hosts:
    """with Hosts(2) as hosts: hosts[0].prefix, hosts.device, hosts.address. Without a delay, loss or rate the kernel connects them."""

    def __init__(self, n, delay_ms=0.0, loss=0.0, mbit=0.0):
        tag = os.getpid() % 10000
        self.device = f"moe{tag}"  # this machine's
        self.bridge = f"moebr{tag}"
        self.net = f"10.{128 + tag % 64}.{tag // 64}"
        self.address = f"{self.net}.1"
        self.hosts = [Host(f"host-{i + 1}") for i in range(n)]
        self.wire = None
        try:
            if delay_ms or loss or mbit:
                self.lay_wire(delay_ms, loss, mbit)
            else:
                self.lay_bridge()
        except BaseException:
            self.end()
            raise

    def __getitem__(self, i):
        return self.hosts[i]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def lay_bridge(self):
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{self.address}/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        for i, host in enumerate(self.hosts):
            end = f"{self.device}p{i}"
            ip("link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", str(host.holder.pid))
            ip("link", "set", end, "master", self.bridge, "up")
            self.address_host(i)
        self.device = self.bridge

    def address_host(self, i):
        host = self.hosts[i]
        host.run("ip", "addr", "add", f"{self.net}.{i + 2}/24", "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")

    def lay_wire(self, delay_ms, loss, mbit):
        pids = [str(host.holder.pid) for host in self.hosts]
        self.wire = subprocess.Popen([sys.executable, __file__, self.device, str(delay_ms), str(loss), str(mbit), *pids],
                                     stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        assert self.wire.stdout.readline() == b"ready\n"
        ip("addr", "add", f"{self.address}/24", "dev", self.device)
        ip("link", "set", self.device, "up")
        for i in range(len(self.hosts)):
            self.address_host(i)

    def cut(self, i):
        """Takes a host off the network."""
        self.hosts[i].run("ip", "link", "set", "eth0", "down")

    def end(self):
        for host in self.hosts:
            host.end()
        if self.wire is not None:
            self.wire.kill()
            self.wire.wait()
        # Ends of a veth go with the namespace of the other end, but a moment later.
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)


# --- the wire, which runs as a program of its own

def open_tap(name, pid):
    """A device in the network of the process; frames are read from and written to what this returns."""
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    if pid is not None:
        there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        assert LIBC.setns(there, CLONE_NEWNET) == 0
        os.close(there)
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    assert LIBC.setns(own, CLONE_NEWNET) == 0
    os.close(own)
    return tap


class Wire:
    def __init__(self, taps, delay_s, loss, bytes_per_s):
        self.taps = taps
        self.delay_s, self.loss, self.bytes_per_s = delay_s, loss, bytes_per_s
        self.random = random.Random(1)
        self.known = {}  # the device behind which a hardware address is
        self.free_at = dict.fromkeys(taps, 0.0)  # when what was sent towards a device has left
        self.waiting = []  # (due, number, device, frame)
        self.n_frames = 0

    def take(self, tap):
        try:
            frame = os.read(tap, FRAME_BYTES_MAX)
        except (BlockingIOError, OSError):
            return  # nothing there, or its host is gone
        self.known[frame[6:12]] = tap
        to = self.known.get(frame[:6])
        for other in self.taps if to is None else [to]:
            if other != tap and self.random.random() >= self.loss:
                self.send_later(other, frame)

    def send_later(self, tap, frame):
        now = time.monotonic()
        begins = max(now, self.free_at[tap])
        self.free_at[tap] = begins + (len(frame) / self.bytes_per_s if self.bytes_per_s else 0)
        self.n_frames += 1
        heapq.heappush(self.waiting, (self.free_at[tap] + self.delay_s, self.n_frames, tap, frame))

    def deliver(self):
        while self.waiting and self.waiting[0][0] <= time.monotonic():
            _, _, tap, frame = heapq.heappop(self.waiting)
            try:
                os.write(tap, frame)
            except OSError:
                pass  # its device is down or gone: lost, as on a real one

    def run(self):
        while True:
            pause = max(0.0, self.waiting[0][0] - time.monotonic()) if self.waiting else None
            for tap in select.select(self.taps, [], [], pause)[0]:
                self.take(tap)
            self.deliver()


def main(device, delay_ms, loss, mbit, *pids):
    taps = [open_tap(device, None), *[open_tap("eth0", pid) for pid in pids]]
    print("ready", flush=True)
    Wire(taps, float(delay_ms) / 1e3, float(loss), float(mbit) * 125000).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
