"""The real proxy before servers of our own that answer as brokers do: what each impairment does to
bytes."""

from __future__ import annotations

import os
import queue
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faults.kit.round_trips import measure
from harness import waiting
from harness.clusters.cluster import spec_of
from harness.clusters.layout import addresses
from harness.clusters.layout.detours import DetourMap
from harness.clusters.network.proxied import LocalDetours
from harness.clusters.nodes.processes import run_processes
from harness.owners import ROLE
from harness.protocols.network import (
    ANSWERS,
    CLIENT_DETOURS,
    CLIENT_ROLES,
    CLIENTS,
    PEER_DETOURS,
    PRODUCERS,
    REQUESTS,
    AnswerChange,
    Flow,
    Impairment,
    Stalled,
    Wire,
)
from harness.systems.kafka import SYSTEM as KAFKA

pytestmark = pytest.mark.live
NEEDS = frozenset({CLIENT_DETOURS, PEER_DETOURS, REQUESTS, ANSWERS})


class Broker:
    """Answers requests of Kafka's form, each with its correlation id, on one address."""

    def __init__(self, host: str, port: int) -> None:
        self.kinds: queue.Queue[int] = queue.Queue()
        #: Requests wait for their answers while it is not set.
        self.answers = threading.Event()
        self.answers.set()
        #: By kind of request, what is answered; else an error's number.
        self.bodies: dict[int, bytes] = {}
        self._listening = socket.create_server((host, port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        with link:
            try:
                while size := link.recv(4, socket.MSG_WAITALL):
                    body = link.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)
                    kind = int.from_bytes(body[:2])
                    self.kinds.put(kind)
                    self.answers.wait()
                    said = self.bodies.get(kind, b"\0\0")
                    link.sendall(struct.pack(">i", 4 + len(said)) + body[4:8] + said)
            except OSError:
                return

    def close(self) -> None:
        self._listening.close()


class Rig:
    """Three such brokers behind the detours of a Kafka cluster."""

    def __init__(self, folder: Path, needs: frozenset[str] = NEEDS) -> None:
        spec = spec_of("kafka")
        self.run_id = f"test-detours-{time.monotonic_ns()}"
        self.block = addresses.claim(self.run_id, folder, spec.ports.values())
        self.detours = LocalDetours(self.run_id, folder, DetourMap(spec, self.block, needs))
        self.brokers = {
            (f"kafka-{n}", port): Broker(addresses.address(self.block, n), spec.ports[port])
            for n in (1, 2, 3)
            for port in ("client", "peer", "controller")
        }
        for service in self.detours.plan.sources():
            (folder / service / "conf").mkdir(parents=True)
            self.detours.write_hosts(service)
        self.detours.start()
        self.wire = self.between(CLIENTS, "kafka-1")

    def between(self, source: str, target: str) -> Wire:
        return next(w for w in self.detours.wires() if (w.source, w.target) == (source, target))

    def both(self) -> list[Flow]:
        return [Flow(self.wire, "target"), Flow(self.wire, "source")]

    def took(self, ballast: int = 0, timeout_s: float = 3.0) -> float | None:
        return measure(KAFKA.request, [self.wire], timeout_s=timeout_s, ballast=ballast)[
            str(self.wire)
        ]

    def open(self) -> socket.socket:
        """A connection of a client, used once already."""
        end = self.wire.endpoints["client"]
        link = socket.create_connection((end.host, end.port), timeout=5)
        self.say(link)
        assert link.recv(10, socket.MSG_WAITALL)
        return link

    def say(self, link: socket.socket, kind: str = "ApiVersions") -> None:
        link.sendall(request(kind))

    def close(self) -> None:
        self.detours.down()
        for broker in self.brokers.values():
            broker.close()
        addresses.release(self.run_id)


def heartbeat(number: int) -> bytes:
    """A whole request, version 0: its answer is an error's number."""
    body = struct.pack(">h2sih2s", 2, b"me", 1, 2, b"it")
    return struct.pack(">ihhih", 10 + len(body), 12, 0, number, -1) + body


def request(kind: str, ballast: int = 0) -> bytes:
    return struct.pack(">ihhih", 10 + ballast, KAFKA.request_kinds[kind], 0, 7, -1) + b"x" * ballast


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("detours"))
    yield made
    made.close()
    assert list(run_processes(made.run_id)) == []


@pytest.fixture(autouse=True)
def _as_before(rig: Rig) -> Iterator[None]:
    yield
    rig.detours.repair("fault")
    assert not rig.detours.is_impaired("fault")
    assert rig.took() is not None


def test_every_way_is_open(rig: Rig) -> None:
    wires = rig.detours.wires()
    assert len(wires) == 3 + 6
    assert all(took is not None for took in measure(KAFKA.request, wires).values())


def test_what_is_held_arrives_when_repaired(rig: Rig) -> None:
    with rig.open() as link:
        rig.detours.impair("fault", [Flow(rig.wire, "target")], Impairment("hold"))
        rig.say(link)
        link.settimeout(0.3)
        with pytest.raises(TimeoutError):
            link.recv(10)
        assert rig.took(timeout_s=0.3) is None
        rig.detours.repair("fault")
        link.settimeout(5)
        assert len(link.recv(10, socket.MSG_WAITALL)) == 10


def test_one_direction_of_one_pair(rig: Rig) -> None:
    pair, back = rig.between("kafka-1", "kafka-2"), rig.between("kafka-2", "kafka-1")
    rig.detours.impair("fault", [Flow(pair, "target")], Impairment("hold"))
    seen = measure(KAFKA.request, [pair, back, rig.wire], timeout_s=0.3)
    assert seen[str(pair)] is None
    assert seen[str(back)] is not None
    assert seen[str(rig.wire)] is not None


def test_what_is_swallowed_never_arrives(rig: Rig) -> None:
    with rig.open() as link:
        rig.detours.impair("fault", rig.both(), Impairment("swallow"))
        rig.say(link)
        link.settimeout(0.3)
        with pytest.raises(TimeoutError):  # open, and silent
            link.recv(10)
        rig.detours.repair("fault")
        link.settimeout(5)
        assert link.recv(10) == b""


def test_delay(rig: Rig) -> None:
    before = rig.took()
    rig.detours.impair("fault", [Flow(rig.wire, "target")], Impairment("delay", delay_s=0.3))
    now = rig.took()
    assert before is not None
    assert now is not None
    assert before < 0.3 <= now


def test_throttle(rig: Rig) -> None:
    before = rig.took(ballast=100_000)
    rig.detours.impair("fault", rig.both(), Impairment("throttle", kilobytes_per_s=200))
    now = rig.took(ballast=100_000)
    assert before is not None
    assert now is not None
    assert now > before + 0.3


def test_reset(rig: Rig) -> None:
    with rig.open() as link:
        rig.detours.impair("fault", rig.both(), Impairment("reset"))
        assert link.recv(10) == b""
    end = rig.wire.endpoints["client"]
    with socket.create_connection((end.host, end.port), timeout=5) as link:
        rig.say(link)
        with pytest.raises(ConnectionResetError):
            link.recv(10)


def test_only_a_connection_with_the_request_is_stalled(rig: Rig) -> None:
    """Found although the first bytes of it were sent before, and what is behind it waits, too."""
    stall = Impairment("stall", delay_s=1.0, requests=("EndTxn",), share=1.0)
    with rig.open() as link, rig.open() as other:
        whole = request("Produce", 2_000_000) + request("EndTxn") + request("Heartbeat")
        link.sendall(whole[:1_000_000])
        rig.detours.impair("fault", [Flow(rig.wire, "target")], stall)
        began = time.monotonic()
        link.sendall(whole[1_000_000:])
        assert link.recv(10, socket.MSG_WAITALL)
        rig.say(other, "Heartbeat")
        assert other.recv(10, socket.MSG_WAITALL)
        assert time.monotonic() - began < 1.0
        assert link.recv(10, socket.MSG_WAITALL)
        assert link.recv(10, socket.MSG_WAITALL)
        assert time.monotonic() - began >= 1.0
    assert rig.detours.stalled("fault") == Stalled(seen=1, held=1)


def test_a_stalled_request_arrives_after_its_sender_has_left(rig: Rig) -> None:
    broker = rig.brokers["kafka-1", "client"]
    with rig.open() as link:
        stall = Impairment("stall", delay_s=0.5, requests=("EndTxn",), share=1.0)
        rig.detours.impair("fault", [Flow(rig.wire, "target")], stall)
        broker.kinds = queue.Queue()
        rig.say(link, "EndTxn")
    assert broker.kinds.get(timeout=5) == KAFKA.request_kinds["EndTxn"]


def changed(act: Any, *, number: int = 0, delay_s: float = 0.0, **how: Any) -> Impairment:
    """A change of the answers to every heartbeat, or to that of a number."""
    return Impairment(
        "answer",
        delay_s=delay_s,
        requests=("Heartbeat",),
        share=1.0,
        number=number,
        answer=AnswerChange(act, **how),
    )


def answer_to(link: socket.socket, number: int) -> int:
    """The error in the answer to a heartbeat of this number."""
    link.sendall(heartbeat(number))
    length, answered, error = struct.unpack(">iih", link.recv(10, socket.MSG_WAITALL))
    assert (length, answered) == (6, number)
    return int(error)


@pytest.mark.parametrize("instead", [True, False])
def test_an_answer_says_an_error_in_place_of_the_broker_or_after_it_worked(
    rig: Rig, instead: bool
) -> None:
    broker = rig.brokers["kafka-1", "client"]
    with rig.open() as link:
        assert answer_to(link, 1) == 0
        change = changed("error", error="NOT_COORDINATOR", instead=instead, number=2)
        rig.detours.impair("fault", rig.both(), change)
        broker.kinds = queue.Queue()
        assert [answer_to(link, number) for number in (2, 3, 4)] == [0, 16, 0]
        found = rig.detours.answered("fault")
        rig.detours.repair("fault")
        assert not rig.detours.is_impaired("fault")
        assert answer_to(link, 5) == 0
    assert (found.seen, found.met, found.unfit) == (3, 1, 0)
    assert [text.split(" ", 1)[1] for text in found.described] == [
        'Heartbeat v0 of "" (correlation id 3)'
    ]
    assert broker.kinds.qsize() == (3 if instead else 4)


def test_an_answer_in_place_of_the_brokers_waits_for_those_before_it(rig: Rig) -> None:
    """The answers of a connection come in the order of its requests."""
    with rig.open() as link:
        change = changed("error", error="NOT_COORDINATOR", instead=True, number=2)
        rig.detours.impair("fault", rig.both(), change)
        link.sendall(heartbeat(1) + heartbeat(2) + heartbeat(3))
        answers = [struct.unpack(">iih", link.recv(10, socket.MSG_WAITALL)) for _ in range(3)]
    assert answers == [(6, 1, 0), (6, 2, 16), (6, 3, 0)]


def test_a_request_that_follows_another_is_carried_out_after_its_answer(rig: Rig) -> None:
    """Of each client, by its id: the other request may have come on another connection."""
    broker = rig.brokers["kafka-1", "client"]
    with rig.open() as first, rig.open() as link:
        change = changed("error", error="NOT_COORDINATOR", before=True, delay_s=60.0)
        rig.detours.impair("fault", rig.both(), replace(change, after="JoinGroup"))
        assert answer_to(link, 1) == 0
        rig.say(first, "JoinGroup")
        assert first.recv(10, socket.MSG_WAITALL)
        broker.kinds = queue.Queue()
        assert [answer_to(link, number) for number in (2, 3)] == [16, 0]
        assert rig.detours.answered("fault").met == 1
        assert broker.kinds.qsize() == 1
        rig.detours.repair("fault")
        assert waiting.wait_until(lambda: broker.kinds.qsize() == 2, 5, every_s=0.01)
        assert answer_to(link, 4) == 0


def test_an_answer_is_dropped_and_the_connection_stays_or_is_closed(rig: Rig) -> None:
    with rig.open() as link:
        rig.detours.impair("fault", rig.both(), changed("drop", number=1))
        link.sendall(heartbeat(1))
        assert answer_to(link, 2) == 0
        rig.detours.repair("fault")
        rig.detours.impair("fault", rig.both(), changed("drop", close=True))
        link.sendall(heartbeat(3))
        assert link.recv(10) == b""


def test_a_connection_is_closed_after_an_answer(rig: Rig) -> None:
    with rig.open() as link:
        rig.detours.impair("fault", rig.both(), changed("close", number=2))
        assert [answer_to(link, number) for number in (1, 2)] == [0, 0]
        assert link.recv(10) == b""


def metadata(*, leader: int) -> bytes:
    """An answer of version 0: brokers 1 and 2, and who leads the only partition."""
    brokers = b"".join(struct.pack(">ih2si", node, 2, b"me", 9092) for node in (1, 2))
    partition = struct.pack(">hii", 0, 0, leader) + struct.pack(">ii", 0, 0)
    topic = struct.pack(">hh2s", 0, 2, b"it") + struct.pack(">i", 1) + partition
    return struct.pack(">i", 2) + brokers + struct.pack(">i", 1) + topic


def ask(link: socket.socket, kind: int, version: int, body: bytes) -> bytes:
    """The answer to a request, without its length and number."""
    whole = struct.pack(">hhih", kind, version, 9, -1) + body
    link.sendall(struct.pack(">i", len(whole)) + whole)
    length = struct.unpack(">i", link.recv(4, socket.MSG_WAITALL))[0]
    return link.recv(length, socket.MSG_WAITALL)[4:]


@pytest.mark.extended
def test_brokers_name_the_leader_of_before_or_one_that_is_gone(rig: Rig) -> None:
    broker, kind = rig.brokers["kafka-1", "client"], KAFKA.request_kinds["Metadata"]
    everything = struct.pack(">i", 0)
    try:
        with rig.open() as link:
            for gone in (False, True):
                change = replace(changed("stale", gone=gone), requests=("Metadata",))
                rig.detours.impair("fault", rig.both(), change)
                for leader in (1, 2):
                    broker.bodies[kind] = metadata(leader=leader)
                    said = ask(link, kind, 0, everything)
                    named = struct.unpack(">i", said[-12:-8])[0]
                    assert named == (3 if gone else 1)
                    assert struct.unpack(">i", said[:4])[0] == (3 if gone else 2)
                assert rig.detours.answered("fault").met == (2 if gone else 1)
                rig.detours.repair("fault")
            assert ask(link, kind, 0, everything) == metadata(leader=2)
    finally:
        broker.bodies.clear()


@pytest.mark.extended
def test_a_bit_of_messages_is_flipped_toward_a_consumer(rig: Rig) -> None:
    """Never a bit that no checksum covers: not in the head of any of several batches, nor in the
    beginning of one that the broker cut off."""
    broker, kind = rig.brokers["kafka-1", "client"], KAFKA.request_kinds["Fetch"]
    batch = struct.pack(">qi", 0, 28) + bytes(28)
    records = 3 * batch + batch[:30]
    partition = struct.pack(">ihqqi", 0, 0, 0, 0, -1) + struct.pack(">i", len(records)) + records
    fetched = struct.pack(">iih2si", 0, 1, 2, b"it", 1) + partition
    asked = struct.pack(">iiiib", -1, 500, 1, 1 << 20, 0) + struct.pack(">ih2si", 1, 2, b"it", 1)
    asked += struct.pack(">iqi", 0, 0, 1 << 20)
    broker.bodies[kind] = fetched
    try:
        with rig.open() as link:
            change = replace(changed("flip"), requests=("Fetch",))
            rig.detours.impair("fault", rig.both(), change)
            answers = [ask(link, kind, 4, asked) for _ in range(100)]
            rig.detours.repair("fault")
            assert ask(link, kind, 4, asked) == fetched
        begin = len(fetched) - len(records)
        for answer in answers:
            (at,) = (
                i for i, pair in enumerate(zip(answer, fetched, strict=True)) if len({*pair}) == 2
            )
            assert at < begin + 3 * len(batch)
            assert (at - begin) % len(batch) >= 21  # what the checksum covers
    finally:
        broker.bodies.clear()


def test_a_request_is_lost_with_its_answer(rig: Rig) -> None:
    broker = rig.brokers["kafka-1", "client"]
    with rig.open() as link:
        rig.detours.impair("fault", rig.both(), changed("drop", instead=True, number=1))
        broker.kinds = queue.Queue()
        link.sendall(heartbeat(1))
        assert answer_to(link, 2) == 0
        assert rig.detours.answered("fault").met == 1
    assert broker.kinds.qsize() == 1


def test_an_answer_that_is_held_goes_on_when_the_fault_ends(rig: Rig) -> None:
    with rig.open() as link:
        rig.detours.impair("fault", rig.both(), changed("delay", delay_s=60.0))
        link.sendall(heartbeat(1))
        assert waiting.wait_until(lambda: rig.detours.answered("fault").met == 1, 5, every_s=0.01)
        rig.detours.repair("fault")
        assert struct.unpack(">iih", link.recv(10, socket.MSG_WAITALL)) == (6, 1, 0)


def test_an_answer_that_comes_after_the_fault_is_the_brokers(rig: Rig) -> None:
    """Its request came while the fault lasted."""
    with rig.open() as link:
        broker = rig.brokers["kafka-1", "client"]
        broker.kinds = queue.Queue()
        broker.answers.clear()
        rig.detours.impair("fault", rig.both(), changed("error", error="NOT_COORDINATOR"))
        link.sendall(heartbeat(1))
        broker.kinds.get(timeout=5)
        rig.detours.repair("fault")
        broker.answers.set()
        assert struct.unpack(">iih", link.recv(10, socket.MSG_WAITALL)) == (6, 1, 0)


def test_impairments_of_one_wire_are_repaired_each_by_its_name(rig: Rig) -> None:
    rig.detours.impair("other", [Flow(rig.wire, "source")], Impairment("delay", delay_s=0.2))
    rig.detours.impair("fault", rig.both(), Impairment("hold"))
    rig.detours.repair("fault")
    assert rig.detours.is_impaired("other")
    assert (rig.took() or 0) >= 0.2
    rig.detours.repair("other")
    rig.detours.repair("other")
    assert not rig.detours.is_impaired("other")


def test_a_node_has_another_address_and_then_the_old_one_again(rig: Rig) -> None:
    def resolved(source: str) -> str:
        lines = (rig.detours.folder / source / "conf" / "hosts").read_text().splitlines()
        return next(line.split()[0] for line in lines if line.endswith(" kafka-2.peer"))

    old = rig.between("kafka-1", "kafka-2")
    moved = rig.detours.rename("fault", "kafka-2")
    new = next(wire for wire in moved if wire.source == "kafka-1" and "peer" in wire.endpoints)
    assert resolved("kafka-1") == new.endpoints["peer"].host != old.endpoints["peer"].host
    assert resolved("kafka-2").endswith(".2")
    seen = measure(KAFKA.request, [old])
    assert seen[str(old)] is None
    assert measure(KAFKA.request, [new])[str(new)] is not None
    rig.detours.repair("fault")
    assert resolved("kafka-1") == old.endpoints["peer"].host
    assert measure(KAFKA.request, [old])[str(old)] is not None
    assert measure(KAFKA.request, [new])[str(new)] is None


ASK = (
    "import socket, sys; link = socket.create_connection((sys.argv[1], int(sys.argv[2])));"
    "link.settimeout(0.5); link.sendall(bytes.fromhex(sys.argv[3])); print(len(link.recv(4)))"
)


def answered(rig: Rig, role: str) -> bool:
    """Whether the first broker answers a process with this role."""
    end = rig.detours.plan.splits()[0].listen
    command = [sys.executable, "-c", ASK, end.host, str(end.port), request("ApiVersions").hex()]
    env = {**os.environ, ROLE: role} if role else {**os.environ}
    return subprocess.run(command, env=env, capture_output=True, check=False).stdout == b"4\n"


def test_connections_are_told_apart_by_the_role_of_their_process(tmp_path: Path) -> None:
    rig = Rig(tmp_path, NEEDS | {CLIENT_ROLES})
    end = rig.detours.plan.splits()[0].listen
    try:
        cut = Flow(rig.between(PRODUCERS, "kafka-1"), "target")
        rig.detours.impair("fault", [cut], Impairment("hold"))
        assert {role: answered(rig, role) for role in ("producer", "consumer", "pipeline", "")} == {
            "producer": False, "consumer": True, "pipeline": True, "": True
        }  # fmt: skip
        with socket.create_connection((end.host, end.port), timeout=5) as link:
            rig.say(link)
            assert link.recv(10, socket.MSG_WAITALL)
            assert rig.detours.found_by(rig.detours.wires()) >= {CLIENTS}
            assert PRODUCERS not in rig.detours.found_by(rig.detours.wires())
        rig.detours.repair("fault")
        assert answered(rig, "producer")
    finally:
        rig.close()


def test_each_instance_of_an_application_has_wires_of_its_own(tmp_path: Path) -> None:
    first, second = "application-billing-1", "application-billing-2"
    rig = Rig(tmp_path, NEEDS | {CLIENT_ROLES})
    for name in (first, second, second):
        rig.detours.give_wires(name)
    try:
        rig.detours.impair(
            "fault", [Flow(rig.between(first, "kafka-1"), "target")], Impairment("hold")
        )
        wires = [rig.between(name, "kafka-1") for name in (first, second)]
        took = measure(KAFKA.request, wires)
        assert took[str(wires[0])] is None
        assert took[str(wires[1])] is not None
        assert [answered(rig, role) for role in (first, second, "producer")] == [False, True, True]
        rig.detours.rename("other", "kafka-2")  # the addresses of instances are no names of nodes
        rig.detours.repair("other")
        rig.detours.repair("fault")
        assert answered(rig, first)
    finally:
        rig.close()


def test_a_later_process_takes_over(rig: Rig) -> None:
    rig.detours.impair("fault", rig.both(), Impairment("hold"))
    later = LocalDetours(rig.run_id, rig.detours.folder, rig.detours.plan)
    later.adopt()
    assert later.is_impaired("fault")
    later.repair("fault")
    assert rig.took() is not None
