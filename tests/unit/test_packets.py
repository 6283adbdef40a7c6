"""Rules of iptables for the nodes of a run, as words; the kernel's part is in tests/live."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.clusters.cluster import spec_of
from harness.clusters.network import packets
from harness.errors import EnvironmentNotReady, HealError
from harness.owners import short_owner_mark

SAVED = (
    '[7:420] -A INPUT -d 127.0.7.1/32 -p tcp -m comment --comment "brokerstorm run-1 OWN fault-1;" -j DROP\n'
    '[2:80] -A INPUT -s 127.0.7.1/32 -p tcp -m comment --comment "brokerstorm run-1 OWN fault-1;" -j DROP\n'
    '[9:80] -A INPUT -s 127.0.7.1/32 -p tcp -m comment --comment "brokerstorm run-1 OWN fault-12;" -j DROP\n'
)


class Kernel:
    """Answers as iptables does; remembers rules."""

    def __init__(self) -> None:
        self.rules: list[tuple[str, ...]] = []
        self.keeps = False

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        code, out, complaint = 0, "", ""
        if words[0] == "-A":
            self.rules.append(words[2:])
        elif words[0] == "-D" and not self.keeps:
            self.rules.remove(words[2:])
        elif words[0] == "-S":
            out = "-P INPUT ACCEPT\n" + "".join(
                "-A INPUT " + " ".join(f'"{w}"' if " " in w else w for w in rule) + "\n"
                for rule in self.rules
            )
        elif words[0] == "-C":
            code, complaint = 1, "iptables: Bad rule (does a matching rule exist in that chain?)."
        return subprocess.CompletedProcess(words, code, out, complaint)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    monkeypatch.setattr(packets, "_iptables", made)
    return made


@pytest.fixture
def lossy() -> packets.Packets:
    return packets.Packets("run-1", spec_of("kafka"), 7)


def test_rules_are_for_the_addresses_and_ports_of_a_node(
    kernel: Kernel, lossy: packets.Packets
) -> None:
    lossy.lose("fault-1", "kafka-2", "clients", "in", 0.25)
    (rule,) = kernel.rules
    text = " ".join(rule)
    assert "-i lo -p tcp -d 127.0.7.2 --dport 19092" in text
    assert "--mode random --probability 0.250000" in text
    assert text.endswith(f"--comment brokerstorm run-1 {short_owner_mark()} fault-1; -j DROP")


@pytest.mark.parametrize(
    ("link", "way", "expected"),
    [("clients", "both", 2), ("peers", "in", 2), ("peers", "both", 4), ("all", "out", 3)],
)
def test_links_and_ways(
    kernel: Kernel, lossy: packets.Packets, link: str, way: str, expected: int
) -> None:
    lossy.lose("fault-1", "kafka-2", link, way, 0.1)  # type: ignore[arg-type]
    assert len(kernel.rules) == expected
    assert all(
        ("-s" in rule) == ("--sport" in rule) != ("--dport" in rule) for rule in kernel.rules
    )


def test_a_repair_takes_its_own_rules_only(kernel: Kernel, lossy: packets.Packets) -> None:
    lossy.lose("fault-1", "kafka-2", "clients", "in", 0.1)
    lossy.lose("fault-12", "kafka-2", "clients", "in", 0.1)
    lossy.repair("fault-1")
    assert not lossy.is_losing("fault-1")
    assert lossy.is_losing("fault-12")
    lossy.repair("fault-1")


def test_a_rule_that_stays_is_told_with_the_command_that_removes_it(
    kernel: Kernel, lossy: packets.Packets
) -> None:
    lossy.lose("fault-1", "kafka-2", "clients", "in", 0.1)
    kernel.keeps = True
    with pytest.raises(HealError, match="1 rules of iptables stay") as caught:
        lossy.repair("fault-1")
    assert caught.value.hint.startswith("iptables -D INPUT -i lo")


def test_rules_of_another_state_folder_stay(
    kernel: Kernel, lossy: packets.Packets, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Runs of two state folders that begin in the same second can have the same id."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: "/sbin/iptables")
    lossy.lose("fault-1", "kafka-2", "clients", "in", 0.1)
    monkeypatch.setenv("BROKERSTORM_STATE", str(tmp_path))
    packets.clear("run-1")
    assert len(kernel.rules) == 1
    monkeypatch.undo()
    monkeypatch.setattr(packets, "_iptables", kernel)
    assert lossy.is_losing("fault-1")


def test_what_the_kernel_counted(lossy: packets.Packets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets, "_iptables_save", lambda: SAVED.replace("OWN", short_owner_mark()))
    assert lossy.lost("fault-1") == 9
    assert lossy.lost("fault-3") == 0


def test_packets_between_containers_do_not_pass_here(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: "/sbin/iptables")
    contained = packets.Packets("run-1", spec_of("kafka"), 7, peers=False)
    assert contained.why_not("clients") == ""
    assert "between containers" in contained.why_not("all")


def test_a_machine_that_cannot_lose_packets_says_why(
    lossy: packets.Packets, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(EnvironmentNotReady, match="iptables needs root"):
        lossy.why_not("all")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(EnvironmentNotReady, match="not installed") as missing:
        lossy.why_not("all")
    assert "apt install iptables" in missing.value.hint
    monkeypatch.setattr("shutil.which", lambda name: "/sbin/iptables")
    assert lossy.why_not("all") == ""

    def refuse(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(
            words, 2, "", "iptables: Couldn't load match `statistic'\n"
        )

    monkeypatch.setattr(packets, "_iptables", refuse)
    with pytest.raises(EnvironmentNotReady, match="Couldn't load match `statistic'"):
        lossy.why_not("all")
    with pytest.raises(EnvironmentNotReady, match="refuses to lose packets"):
        lossy.lose("fault-1", "kafka-1", "clients", "in", 0.1)
