"""A network of its own for every broker, and mounts of its own for a test: Linux namespaces, if the tests run as root.

    broker 1 (10.77.0.1) ─┐
    broker 2 (10.77.0.2) ─┼─ bridge in the hub (10.77.0.254) ─ the clients
    broker 3 (10.77.0.3) ─┘

Every namespace is held open by an idle process, and ends with it: even if a test is killed, no interface, no filter and
no mount is left behind. The clients are in the hub because the test enters it (`entered`): a network namespace belongs
to a thread, and the threads and processes that it starts from then on inherit it. So no packet leaves the namespaces,
and any number of such networks with the same addresses can exist at the same time.

Packets are dropped by a filter on the receiver's side. Neither end is notified: a connection does not break, it gets no
more packets, and after `heal` it continues when TCP retransmits. The kernels that we test on have no netem, so a slow
link is one with little bandwidth: packets wait in a token bucket.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Self

from tests.chaos.processes import BROKERS, TIMEOUT_S

_CLONE_NEWNET = 0x40000000
_HUB_HOST = "10.77.0.254"
_INTERFACE = "eth0"
_DOOR = "table inet chaos { chain door { type filter hook input priority 0; policy accept; }; }\n"


@cache
def why_no_namespaces() -> str | None:
    """Return a sentence about why there can be no namespaces here, or None if there can."""
    if os.geteuid() != 0:
        return "network namespaces are made by root alone"
    missing = [tool for tool in ("ip", "nft", "nsenter", "tc", "unshare") if shutil.which(tool) is None]
    if missing:
        return f"network namespaces want {', '.join(missing)} (Debian: iproute2, nftables, util-linux)"
    try:
        with Network((1,)) as network:
            network.heal()
    except (AssertionError, OSError, subprocess.SubprocessError) as problem:
        return f"the kernel gives no network with a bridge and a filter: {problem}"
    return None


class Namespace:
    """A Linux namespace of `kind` "net" or "mount", which exists as long as the process that holds it."""

    def __init__(self, kind: str) -> None:
        self._kind = {"net": "net", "mount": "mnt"}[kind]
        self._option = f"--{kind}"
        # cat ends with its input, so also when the test process is killed.
        self._holder = subprocess.Popen(
            ["unshare", self._option, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        # The namespace exists when cat answers.
        self._holder.stdin.write(b"\n")
        self._holder.stdin.flush()
        assert self._holder.stdout.readline() == b"\n", "unshare made no namespace"

    def __repr__(self) -> str:
        return f"<Namespace {self._kind} of process {self.pid}>"

    @property
    def pid(self) -> int:
        return self._holder.pid

    @property
    def path(self) -> str:
        return f"/proc/{self.pid}/ns/{self._kind}"

    @property
    def command(self) -> tuple[str, ...]:
        """Return the prefix with which a command runs in this namespace. The prefix is replaced by the command and
        keeps its process id."""
        return ("nsenter", f"{self._option}={self.path}")

    def run(self, *command: str, text: str = "") -> None:
        done = subprocess.run([*self.command, *command], input=text.encode(), capture_output=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, f"{' '.join(command)} {text}: {done.stderr.decode()}"

    def close(self) -> None:
        self._holder.kill()
        self._holder.communicate()


class Network:
    """`with Network() as network, network.entered(): …`, and brokers started behind `command(number)`."""

    def __init__(self, numbers: Iterable[int] = BROKERS) -> None:
        self._numbers = tuple(numbers)
        self._hub = Namespace("net")
        self._houses = {number: Namespace("net") for number in self._numbers}

    def __repr__(self) -> str:
        return f"<Network of brokers {self._numbers}, hub {self._hub!r}>"

    def __enter__(self) -> Self:
        try:
            self._connect()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for one in (self._hub, *self._houses.values()):
            one.close()

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def host(self, number: int) -> str:
        return f"10.77.0.{number}"

    def command(self, number: int) -> tuple[str, ...]:
        return self._houses[number].command

    def _connect(self) -> None:
        lines = ["link add bridge type bridge", f"address add {_HUB_HOST}/24 dev bridge", "link set bridge up"]
        for number, house in self._houses.items():
            lines += [
                f"link add to{number} type veth peer name {_INTERFACE} netns {house.pid}",
                f"link set to{number} master bridge up",
            ]
        self._hub.run("ip", "-batch", "-", text="link set lo up\n" + "\n".join(lines) + "\n")
        for number, house in self._houses.items():
            own = [
                "link set lo up",
                f"address add {self.host(number)}/24 dev {_INTERFACE}",
                f"link set {_INTERFACE} up",
            ]
            house.run("ip", "-batch", "-", text="\n".join(own) + "\n")
            house.run("nft", "--file", "-", text=_DOOR)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Put the calling thread, and the threads and processes that it starts, into the hub."""
        with Path("/proc/thread-self/ns/net").open("rb") as outside, Path(self._hub.path).open("rb") as hub:
            _enter(hub.fileno())
            try:
                yield
            finally:
                _enter(outside.fileno())

    # Faults.

    def drop(self, sender: int, receiver: int) -> None:
        """Drop all packets from `sender` to `receiver`, in this direction only."""
        self._add_rule(receiver, f"ip saddr {self.host(sender)} drop")

    def cut(self, one: int, other: int) -> None:
        self.drop(one, other)
        self.drop(other, one)

    def cut_off(self, number: int) -> None:
        """Isolate a broker from the other brokers; the clients still reach it."""
        for other in self._numbers:
            if other != number:
                self.cut(number, other)

    def cut_off_from_brokers_and_clients(self, number: int) -> None:
        self._add_rule(number, f"iifname {_INTERFACE} drop")

    def lose(self, number: int, percent: int) -> None:
        """Drop this percentage of the incoming packets, at random."""
        self._add_rule(number, f"iifname {_INTERFACE} numgen random mod 100 < {percent} drop")

    def narrow(self, number: int, rate: str) -> None:
        """Limit the outgoing rate: packets wait for at most a fifth of a second, others are lost."""
        shape = f"qdisc replace dev {_INTERFACE} root tbf rate {rate} burst 16kb latency 200ms"
        self._houses[number].run("tc", *shape.split())

    def heal(self) -> None:
        for house in self._houses.values():
            house.run("nft", "flush", "chain", "inet", "chaos", "door")
            house.run("tc", "qdisc", "replace", "dev", _INTERFACE, "root", "pfifo_fast")

    def _add_rule(self, number: int, rule: str) -> None:
        self._houses[number].run("nft", "add", "rule", "inet", "chaos", "door", *rule.split())


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
