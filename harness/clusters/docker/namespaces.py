"""Network namespaces of containers, entered from outside: rules of iptables, addresses, and
connections.

The programs come from this machine; an image needs nothing. What is set in a namespace ends with
it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from harness.clusters.docker import engine
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Endpoint

_CHAIN: Final = "INPUT"
_FOR_RULES: Final = {
    "nsenter": "util-linux",
    "iptables": "iptables",
    "iptables-restore": "iptables",
}
_FOR_ADDRESSES: Final = {"nsenter": "util-linux", "ip": "iproute2"}
_RUN_S: Final = 10.0
_ESTABLISHED: Final = "01"  # net/tcp_states.h
_CLONE_NEWNET: Final = 0x40000000  # sched.h


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a node in a container is now: a process in its namespaces, and its address among the
    nodes."""

    pid: int
    address: str


class FindsNode(Protocol):
    """A function that finds the process of a node, for whoever enters its namespaces."""

    def __call__(self, node: str) -> Whereabouts | None:
        """Return where the process of a node is; None when it does not run, or runs on another
        machine.

        Raises:
            EnvironmentNotReady: the engine does not answer.
        """


def why_not() -> str:
    """Why no rules can be made in the namespaces of containers from here; empty when they can, as
    far as is known before there is a container."""
    return _why_not(_FOR_RULES)


def why_no_addresses() -> str:
    """Return why addresses cannot be set here, in the form of `why_not`."""
    return _why_not(_FOR_ADDRESSES)


def _why_not(programs: Mapping[str, str]) -> str:
    if engine.socket_path() is None:
        return "the Docker engine is on another machine (DOCKER_HOST)"
    if os.geteuid() != 0:
        return "entering a container's network needs root"
    for program, package in programs.items():
        if shutil.which(program) is None:
            return f"{program} is not installed (Debian: apt install {package})"
    return ""


def rules(pid: int) -> list[str]:
    """The rules for what arrives in the namespace of a process, as lines of ``iptables -S``.

    Raises:
        EnvironmentNotReady: the process is gone, or the kernel refuses.
    """
    done = _run(pid, ["iptables", "-w", "5", "-S", _CHAIN])
    return [line for line in done.splitlines() if line.startswith("-A ")]


def replace_rules(pid: int, old: Sequence[str], new: Sequence[str]) -> None:
    """Delete rules and append others in one step: no packet finds both or neither.

    Args:
        old: lines that `rules` gave.
        new: what follows ``-A INPUT``.

    Raises:
        EnvironmentNotReady: the process is gone, or the kernel refuses; nothing has changed then.
    """
    lines = [line.replace("-A ", "-D ", 1) for line in old] + [
        f"-A {_CHAIN} {rule}" for rule in new
    ]
    if lines:
        text = "\n".join(["*filter", *lines, "COMMIT", ""])
        _run(pid, ["iptables-restore", "-w", "5", "--noflush"], text)


def add_addresses(pid: int, beside: str, hosts: Sequence[str]) -> None:
    """Add addresses in the namespace of a process, to the interface that has the address
    ``beside``.

    Raises:
        EnvironmentNotReady: no interface has it, or the kernel refuses.
    """
    shown = _run(pid, ["ip", "-o", "-4", "address", "show", "to", f"{beside}/32"]).split()
    if len(shown) < 2:
        raise EnvironmentNotReady(f"no interface in a container's network has the address {beside}")
    lines = "".join(f"address add {host}/32 dev {shown[1]}\n" for host in hosts)
    _run(pid, ["ip", "-batch", "-"], lines)


def established(pid: int) -> set[tuple[str, int]]:
    """(address, port) of this end of each connection of IPv4 in the namespace of a process, those
    that end in IPv6 sockets included; empty when the process is gone."""
    found = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        for words in (line.split() for line in lines):
            if words[3] == _ESTABLISHED:
                host, _, port = words[1].partition(":")
                # The kernel prints words of four bytes in the machine's order; the last is the IPv4
                # address.
                address = socket.inet_ntoa(struct.pack("=I", int(host[-8:], 16)))
                found.add((address, int(port, 16)))
    return found


def connect(pid: int, endpoint: Endpoint, timeout_s: float) -> socket.socket:
    """A connection from the namespace of a process.

    Raises:
        OSError: no node answers, or the namespace is gone.
    """
    found: list[socket.socket | OSError] = []

    def from_there() -> None:
        try:
            _enter(pid)
            found.append(
                socket.create_connection((endpoint.host, endpoint.port), timeout=timeout_s)
            )
        except OSError as error:
            found.append(error)

    # A namespace is a thread's own, and this one is not used for anything else.
    thread = threading.Thread(target=from_there, name="namespace", daemon=True)
    thread.start()
    thread.join()
    if isinstance(found[0], OSError):
        raise found[0]
    return found[0]


def _enter(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns came with Python 3.12
    handle = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(handle, _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(handle)


def _run(pid: int, command: Sequence[str], text: str = "") -> str:
    whole = ["nsenter", "-t", str(pid), "-n", *command]
    try:
        done = subprocess.run(
            whole, input=text, capture_output=True, text=True, timeout=_RUN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentNotReady(
            f"cannot run {command[0]} in a container's network: {error}"
        ) from error
    if done.returncode:
        complaint = (done.stderr.strip().splitlines() or ["no output"])[0][:200]
        raise EnvironmentNotReady(f"{command[0]} in a container's network: {complaint}")
    return done.stdout
