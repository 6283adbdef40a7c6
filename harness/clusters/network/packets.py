"""Packets that get lost on this machine's loopback interface: rules of iptables, on the addresses
of one run.

A rule drops a share of the packets to or from a port of a node, at random (iptables' ``statistic``
match), and TCP sends them again: nothing is in the way of connections but the kernel. Each rule is
tagged with the run id, so that `clean` finds it. tc's ``netem`` would be the other way; fewer
kernels have it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from typing import Final, Literal

from harness.clusters.layout import addresses
from harness.clusters.layout.compose import ClusterLayout
from harness.errors import EnvironmentNotReady, HealError
from harness.owners import short_owner_mark

_CHAIN: Final = "INPUT"  # on loopback every packet passes it once, whatever sent it
_TAG: Final = "brokerstorm"
_RUN_S: Final = 10.0
_RANDOM: Final = ("-m", "statistic", "--mode", "random", "--probability")
_PACKETS: Final = re.compile(r"^\[(\d+):\d+\]")


class Packets:
    """`LosesPackets` for the nodes of one run. Thread-safe: the kernel's table is the only state.

    Args:
        peers: nodes reach each other over loopback too; those in containers do not.
    """

    def __init__(self, run_id: str, spec: ClusterLayout, block: int, *, peers: bool = True) -> None:
        self._peers = peers
        self._run_id = run_id
        self._spec = spec
        self._block = block

    def why_not(self, link: str) -> str:
        """Why no packet of a link can be lost in this cluster; empty when they can.

        Raises:
            EnvironmentNotReady: this machine cannot lose any.
        """
        if link != "clients" and not self._peers:
            return (
                "packets between containers do not pass loopback: only `link: clients` is possible"
            )
        if os.geteuid() != 0:
            raise EnvironmentNotReady(
                "iptables needs root", hint="run as root, or leave packet-loss out"
            )
        if not shutil.which("iptables"):
            raise EnvironmentNotReady(
                "iptables is not installed", hint="Debian: apt install iptables"
            )
        done = _iptables(
            "-C", _CHAIN, *_RANDOM, "0.5", "-m", "comment", "--comment", "none", "-j", "DROP"
        )
        # A rule that is not there is what is to be found; another complaint is about the kernel.
        if not ("Bad rule" in done.stderr or "matching rule" in done.stderr or not done.returncode):
            raise EnvironmentNotReady(_first_line(done.stderr), hint="leave packet-loss out")
        return ""

    def lose(
        self, name: str, node: str, link: str, way: Literal["both", "in", "out"], share: float
    ) -> None:
        """Drop a share of the packets of a node's ports from now on, until `repair` of the same
        name.

        Args:
            link: "clients", "peers" or "all": ports that these connect to.
            way: as the node sees it.
            share: of packets, 0 to 1.

        Raises:
            EnvironmentNotReady: the kernel refuses a rule.
        """
        for rule in self._rules(name, node, link, way, share):
            done = _iptables("-A", _CHAIN, *rule)
            if done.returncode:
                raise EnvironmentNotReady(
                    f"iptables refuses to lose packets: {_first_line(done.stderr)}"
                )

    def repair(self, name: str) -> None:
        """Remove the rules of a name. Idempotent.

        Raises:
            HealError: one stays.
        """
        _delete(tag(self._run_id, name))

    def is_losing(self, name: str) -> bool:
        return any(True for _ in _tagged(tag(self._run_id, name)))

    def lost(self, name: str) -> int:
        """Packets that were dropped so far by the rules of a name."""
        done = _iptables_save()
        rules = [line for line in done.splitlines() if f'"{tag(self._run_id, name)}"' in line]
        return sum(int(match[1]) for line in rules if (match := _PACKETS.match(line)))

    def has_ports(self, node: str, link: str) -> bool:
        """Whether anybody of the link connects to this node."""
        return bool(self._ports(node, link))

    def _ports(self, node: str, link: str) -> list[int]:
        service = next(service for service in self._spec.services if service.name == node)
        sides = [side for side in ("clients", "peers") if link in (side, "all")]
        names = {
            port for side in sides for role in service.roles
            for port in self._spec.detours.get(side, {}).get(role, ())
        }  # fmt: skip
        return sorted(self._spec.ports[name] for name in names)

    def _rules(
        self, name: str, node: str, link: str, way: str, share: float
    ) -> Iterator[list[str]]:
        service = next(service for service in self._spec.services if service.name == node)
        host = addresses.address(self._block, service.number)
        ends = [end for end, ways in (("d", ("both", "in")), ("s", ("both", "out"))) if way in ways]
        for port in self._ports(node, link):
            for end in ends:
                where = ["-i", "lo", "-p", "tcp", f"-{end}", host, f"--{end}port", str(port)]
                what = [
                    *_RANDOM,
                    f"{share:.6f}",
                    "-m",
                    "comment",
                    "--comment",
                    tag(self._run_id, name),
                ]
                yield [*where, *what, "-j", "DROP"]


def clear(run_id: str) -> None:
    """Remove every rule of a run. Does nothing where there can be none.

    Raises:
        HealError: one stays.
    """
    if os.geteuid() == 0 and shutil.which("iptables") is not None:
        _delete(tag(run_id, ""))


def tag(run_id: str, name: str) -> str:
    """The comment of a rule: the run, whose it is, and a name. Ends in a semicolon, so that no name
    begins with another one; without a name it is the beginning of all of a run's."""
    of_run = f"{_TAG} {run_id} {short_owner_mark()} "
    return f"{of_run}{name};" if name else of_run


def _tagged(comment: str) -> Iterator[list[str]]:
    """The rules whose comment begins with a tag, as arguments that delete each."""
    for line in _iptables("-S", _CHAIN).stdout.splitlines():
        words = shlex.split(line)
        if "--comment" in words and words[words.index("--comment") + 1].startswith(comment):
            yield words[2:]


def _delete(comment: str) -> None:
    for rule in list(_tagged(comment)):
        _iptables("-D", _CHAIN, *rule)
    if left := list(_tagged(comment)):
        raise HealError(
            f"{len(left)} rules of iptables stay in chain {_CHAIN}",
            hint=f"iptables -D {_CHAIN} {shlex.join(left[0])}",
        )


def _iptables(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["iptables", "-w", "5", *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_RUN_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def _iptables_save() -> str:
    try:
        done = subprocess.run(
            ["iptables-save", "-c", "-t", "filter"],
            capture_output=True,
            text=True,
            timeout=_RUN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[0][:200]
