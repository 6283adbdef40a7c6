"""Contract of producers: what they send and write down, rows, identity, payloads."""

from __future__ import annotations

import json
import math
import os
import signal
from typing import Final

import numpy as np

from harness.connections.security import ANYBODY
from harness.contract.checks import check
from harness.contract.driving import Rows, dense, equal, expect, messages, outcomes, places
from harness.contract.rig import KEYS, LOAD_S, RUN_TAG, WARM_UP_S, Rig
from harness.contracts.worker import LanePart
from harness.records import HEADER_MAGIC, Event, Kind, Outcome, TableId
from harness.records import Check as Payload
from harness.systems import System

#: A body with every place, and characters that take several bytes.
TEMPLATE: Final = (
    '{"id": "{id}", "n": {n}, "key": "{key}", "lane": {lane}, "by": "Bäcker {producer}"}'
)


def is_log(system: System) -> bool:
    """Return whether the system keeps logs."""
    return not system.is_queue


@check("producer")
def every_send_is_one_row_with_one_outcome(rig: Rig) -> None:
    """Check that every send has one row with one outcome and its place, in lanes by partition."""
    _whole(rig, "partition")


@check(
    "producer",
    cases={"key": {"mode": "key"}, "routed": {"mode": "routed"}},
    slow={"routed"},
    applies=is_log,
)
def every_send_is_one_row_with_one_outcome_in_lanes_of(rig: Rig, mode: str) -> None:
    """Check that every send has one row with one outcome and its place, in lanes by key or without
    one."""
    _whole(rig, mode)


def _whole(rig: Rig, mode: str) -> None:
    topic = rig.topic()
    producer = rig.producer(topic, mode=mode).send_all()
    sends, count = producer.sends, int((WARM_UP_S + LOAD_S) * rig.rate)
    other = sends[sends["outcome"] != Outcome.OK]
    expect(
        not len(other),
        f"{len(other)} of {count} sends are not acknowledged: {sorted(producer.errors_of(other))}",
    )
    for name, found in (
        ("rows", len(sends)),
        *((key, getattr(producer.done_line, key)) for key in ("attempted", "ok")),
    ):
        equal(f"{name} of {count} messages", found, count)
    expect(dense(sends), "the sequences of a lane are not 0, 1, 2 ...")
    lanes = {"partition": rig.partitions[topic], "key": KEYS, "routed": 1}[mode]
    equal("lanes", set(sends["lane"].tolist()), set(range(lanes)))
    warm_up = int(WARM_UP_S * rig.rate)
    equal(
        "probes, warm-up and load",
        np.bincount(sends["kind"]).tolist(),
        [0, warm_up, count - warm_up],
    )
    _check_times(sends)
    _check_stored(rig, topic, sends, mode)


def _check_times(sends: Rows) -> None:
    expect(
        (np.diff(sends["t_intended_ns"]) > 0).all(), "t_intended_ns does not grow from row to row"
    )
    expect(
        (sends["t_start_ns"] >= sends["t_intended_ns"]).all(),
        "a call began before its message was due",
    )
    expect((sends["t_done_ns"] >= sends["t_start_ns"]).all(), "a call was answered before it began")


def _check_stored(rig: Rig, topic: str, sends: Rows, mode: str) -> None:
    """Check that each message is where the client says that it is."""
    log = rig.stored(topic)
    equal("checks of the payloads", set(log["check"].tolist()), {Payload.OK})
    equal("messages stored", sorted(messages(log["header"])), sorted(messages(sends)))
    dues = dict(zip(messages(sends), sends["t_intended_ns"].tolist(), strict=True))
    equal(
        "intended times stored",
        dict(zip(messages(log["header"]), log["header"]["t_intended_ns"].tolist(), strict=True)),
        dues,
    )
    if rig.system.is_queue:
        return
    found = dict(zip(messages(log["header"]), places(log), strict=True))
    told = dict(zip(messages(sends), places(sends), strict=True))
    equal(
        "places of messages that are not where the client says",
        [m for m in told if told[m] != found[m]],
        [],
    )
    if mode == "partition":
        expect(
            (sends["stream"] == sends["lane"] + 1).all(),
            "a message of a partition lane is in another one",
        )
    if mode == "key":
        streams = {lane: len(set(sends["stream"][sends["lane"] == lane])) for lane in range(KEYS)}
        equal(
            "keys in several partitions", [lane for lane, count in streams.items() if count > 1], []
        )
        expect(
            (log["header"]["key"] == log["header"]["lane"]).all(),
            "headers do not have the number of the key",
        )
    _check_sequence_ids(log, sends)


def _check_sequence_ids(log: Rows, sends: Rows) -> None:
    """Check that the log has the sequence ids that a client shows (``client_name`` is not 0)."""
    if not sends["client_name"].any() or not log["client_name"].any():
        return
    shown = dict(zip(messages(sends), sends["client_seq"].tolist(), strict=True))
    kept = dict(zip(messages(log["header"]), log["client_seq"].tolist(), strict=True))
    equal(
        "sequence ids that differ from those in the log",
        [m for m in shown if shown[m] != kept[m]],
        [],
    )


@check("producer", supports={"threads": "many"}, by_kit=True)
def threads_share_the_lanes(rig: Rig) -> None:
    """Each has a schedule of its own, which may begin with one message more."""
    topic, threads = rig.topic(), 4
    producer = rig.producer(topic, asked={"threads": threads}).send_all()
    sends, count = producer.sends, int((WARM_UP_S + LOAD_S) * rig.rate)
    expect(dense(sends), "the sequences of a lane are not 0, 1, 2 ...")
    more = len(sends) - count
    expect(0 <= more <= threads, f"{len(sends)} rows of {count} messages with {threads} threads")
    equal("ok", producer.done_line.ok, len(sends))
    equal("lanes", set(sends["lane"].tolist()), set(range(rig.partitions[topic])))
    equal("messages stored", sorted(messages(rig.stored(topic)["header"])), sorted(messages(sends)))


@check("producer", supports={"payload": "range"}, by_kit=True)
def sizes_differ_by_message(rig: Rig) -> None:
    """Check that sizes of payloads differ within their range."""
    topic, least, most = rig.topic(), 100, 2000
    producer = rig.producer(topic, payload=least, asked={"payload_max_bytes": most}).send_all()
    log = rig.stored(topic)
    equal("checks of the payloads", set(log["check"].tolist()), {Payload.OK})
    equal("messages stored", len(log), producer.done_line.ok)
    instance = producer.spec.numbers["instance"]
    told = zip(messages(log["header"]), log["header"]["length"].tolist(), strict=True)
    wrong = {m: size for m, size in told if size != size_of(*m, instance, least, most)}
    equal("messages of another size than theirs, by lane and seq", wrong, {})


def size_of(lane: int, seq: int, instance: int, least: int, most: int) -> int:
    """The size of a message as docs/worker-protocol.md has it (SplitMix64 of instance, lane and
    seq)."""
    mixed = ((seq + 1) * 0x9E3779B97F4A7C15 + (instance << 32 | lane)) % 2**64
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
    return least + ((mixed ^ mixed >> 31) >> 32) * (most - least + 1) // 2**32


@check("producer", supports={"payload": "mixed"}, by_kit=True)
def sizes_are_those_of_a_table(rig: Rig) -> None:
    """Check that sizes of payloads follow the table."""
    topic, table = rig.topic(), [100, 100, 101, 900, 2000]
    asked = {"payload_max_bytes": table[-1], "payload_sizes": table}
    producer = rig.producer(topic, payload=table[0], asked=asked).send_all()
    log = rig.stored(topic)
    equal("checks of the payloads", set(log["check"].tolist()), {Payload.OK})
    equal("messages stored", len(log), producer.done_line.ok)
    instance = producer.spec.numbers["instance"]
    told = zip(messages(log["header"]), log["header"]["length"].tolist(), strict=True)
    wrong = {m: size for m, size in told if size != table[size_of(*m, instance, 0, len(table) - 1)]}
    equal("messages of another size than theirs, by lane and seq", wrong, {})


@check("producer", supports={"payload": "template"}, slow=True)
def bodies_of_a_template_are_stored(rig: Rig) -> None:
    """Check that the log holds the body of each message, and its identity in a header. The golden
    files have the bytes themselves."""
    topic = rig.topic()
    producer = rig.producer(topic, asked={"payload_template": TEMPLATE}).send_all()
    log = rig.stored(topic)
    equal("checks of the payloads", set(log["check"].tolist()), {Payload.OK})
    equal("messages stored", sorted(messages(log["header"])), sorted(messages(producer.sends)))


@check("producer", supports={"header_values": "template"}, slow=True)
def keys_and_headers_of_a_template_are_sent(rig: Rig) -> None:
    """Check that another client reads the body, the key in it, and the header of each message."""
    topic = rig.topic()
    asked: dict[str, object] = {
        "payload_template": TEMPLATE,
        "header_templates": [["trace", "t-{id}-{n}"]],
    }
    if not rig.system.is_queue:
        group = LanePart(
            topic=topic, mode="key", first=0, count=KEYS, partitions=rig.partitions[topic]
        )
        asked["lane_groups"] = [group.model_copy(update={"key": "customer-{number}"})]
    producer = rig.producer(topic, load_s=0.25, asked=asked).send_all()
    bodies = [
        (json.loads(value), sent)
        for value, sent in _read(rig, topic)
        if value[:2] != HEADER_MAGIC  # no probe
    ]
    equal("messages that another client reads", len(bodies), producer.done_line.ok)
    expect(bodies, "another client reads no message")
    wrong = [
        (body, sent.get("trace"))
        for body, sent in bodies
        if sent.get("trace") != f"t-{body['id']}-{body['n']}"
        or body["key"] != ("" if rig.system.is_queue else f"customer-{body['lane']}")
    ]
    equal("messages with another header or key than theirs", wrong, [])


@check("consumer", supports={"payload": "template"}, slow=True)
def bodies_of_a_template_are_recognised(rig: Rig) -> None:
    """Check that a consumer finds the identity of each message in its header."""
    topic = rig.topic()
    consumer = rig.consumer(topic)
    producer = rig.feed(topic, asked={"payload_template": TEMPLATE})
    count = producer.done_line.ok
    consumer.wait_stats(lambda stats: stats.delivered >= count)
    consumer.leave()
    got = consumer.events(Event.DELIVER)
    equal("checks of the payloads", set(got["check"].tolist()), {Payload.OK})
    equal("messages handed over", sorted(messages(got["header"])), sorted(messages(producer.sends)))


@check("producer", supports={"filling": "compressible"}, by_kit=True)
def payloads_are_whole_whatever_their_filling(rig: Rig) -> None:
    """Check payloads of different sizes. The golden files have the bytes themselves."""
    topic = rig.topic()
    asked = {"payload_max_bytes": 2000, "payload_compressible": 600}
    producer = rig.producer(topic, payload=52, asked=asked).send_all()
    log = rig.stored(topic)
    equal("checks of the payloads", set(log["check"].tolist()), {Payload.OK})
    equal("messages stored", len(log), producer.done_line.ok)


@check("producer", supports={"turns": "table"}, by_kit=True)
def a_lane_with_more_turns_has_more_messages(rig: Rig) -> None:
    """Message i has the lane of turn i modulo the table's length; sequences stay dense."""
    topic, turns = rig.topic(partitions=3), [2, 0, 0, 1, 0, 2, 0]
    producer = rig.producer(topic, asked={"turns": turns}).send_all()
    sends = producer.sends
    expect(dense(sends), "the sequences of a lane are not 0, 1, 2 ...")
    in_order = sends[np.argsort(sends["t_intended_ns"], kind="stable")]
    wanted = [turns[i % len(turns)] for i in range(len(sends))]
    equal("lanes in order of time", in_order["lane"].tolist(), wanted)
    equal("messages stored", sorted(messages(rig.stored(topic)["header"])), sorted(messages(sends)))


@check("producer", supports={"rate": "profile"}, by_kit=True)
def a_rate_profile_is_followed(rig: Rig) -> None:
    """Half the rate in the warm-up, a pause, a tenth, then all of it: due times as
    docs/worker-protocol.md has them, by adding the rate up over time."""
    topic, part_ns = rig.topic(), round(LOAD_S * 1e9 / 4)
    profile = [[round(WARM_UP_S * 1e9), 0.5], [part_ns, 0.0], [part_ns, 0.1], [2 * part_ns, 1.0]]
    producer = rig.producer(topic, asked={"rate_profile": profile}).send_all()
    sends, wanted, before, begin_ns = producer.sends, [], 0.0, 0
    for duration_ns, share in profile:
        rate, first = rig.rate * share, before
        before += rate * (duration_ns / 1e9)
        indexes = range(math.ceil(first), math.ceil(before))
        wanted += [begin_ns + int((i - first) * (1e9 / rate)) for i in indexes]
        begin_ns += int(duration_ns)
    expect(dense(sends), "the sequences of a lane are not 0, 1, 2 ...")
    due = np.sort(sends["t_intended_ns"])
    equal("due times, from the first on", (due - due[0]).tolist(), wanted)
    equal(
        "messages of the warm-up",
        int((sends["kind"] == Kind.WARM_UP).sum()),
        math.ceil(rig.rate * WARM_UP_S / 2),
    )
    equal("messages stored", sorted(messages(rig.stored(topic)["header"])), sorted(messages(sends)))


@check("producer", by_kit=True)
def a_payload_size_and_an_unlimited_rate_without_capture(rig: Rig) -> None:
    """Check a load at full speed that writes no rows (a measurement)."""
    topic = rig.topic()
    asked = {"capture": False}
    producer = rig.producer(
        topic, rate=0, warm_up_s=0, load_s=0.4, payload=1000, asked=asked
    ).send_all()
    expect(not list(producer.folder.glob("*.seg")), "wrote rows although capture is off")
    ok = producer.done_line.ok
    equal("attempted", producer.done_line.attempted, ok)
    expect(ok > 0, "sent nothing in 0.4 s at an unlimited rate")
    log = rig.stored(topic)
    equal("messages stored", len(log), ok)
    equal("payload lengths", set(log["header"]["length"].tolist()), {1000})
    equal("kinds", set(log["header"]["kind"].tolist()), {Kind.LOAD})


@check("producer", by_kit=True)
def kill_9_leaves_readable_rows(rig: Rig) -> None:
    """Check that the rows of a producer that was killed (SIGKILL) are readable."""
    topic = rig.topic()
    producer = rig.producer(topic, load_s=30)
    producer.begin()
    producer.wait_stats(lambda stats: stats.ok > rig.rate / 2)
    assert producer.pid is not None
    os.kill(producer.pid, signal.SIGKILL)
    equal("exit code", producer.wait_end(), -signal.SIGKILL)
    expect(not producer.done.is_set(), "said done")
    sends = producer.sends
    expect(dense(sends), "the sequences of a lane are not 0, 1, 2 ...")
    expect(outcomes(sends) <= {Outcome.NONE, Outcome.OK}, f"outcomes {outcomes(sends)}")
    known = np.count_nonzero(sends["outcome"])
    expect(
        known >= producer.stats.ok,
        f"{known} rows have an outcome, and it reported {producer.stats.ok}",
    )
    stored = set(messages(rig.stored(topic)["header"]))
    equal("stored without a row", sorted(stored - set(messages(sends))), [])
    lost = set(messages(sends[sends["outcome"] == Outcome.OK])) - stored
    equal("acknowledged and not stored", sorted(lost), [])


@check("producer", "older_version")
def an_older_version_writes_the_same_rows(rig: Rig) -> None:
    """Check that an older version of the client writes the same rows."""
    version = rig.worker.contract.older_version
    producer = rig.producer(rig.topic(), version=version).send_all()
    said = producer.ready_line.client_version if producer.ready_line else ""
    expect(said.startswith(version), f"client_version {said}, asked for {version}")
    sends = producer.sends
    equal("rows", len(sends), producer.done_line.ok)
    equal("outcomes", outcomes(sends), {Outcome.OK})
    expect((sends["stream"] > 0).all(), "a row without its stream")


def _call_check(calls: str, batch: int) -> None:
    @check("producer", cases={calls: {"batch": batch}}, supports={"calls": calls})
    def a_call_is_made_when_its_last_message_is_due(rig: Rig, batch: int) -> None:
        """The last call of warm-up and load is as long as the schedule has messages left."""
        count = int(WARM_UP_S * 200) + int(1.05 * 200)
        asked = {"calls": calls, "batch": batch}
        # a call for one message must not wait for more of them
        options = rig.worker.contract.words("linger", ms=0) if calls == "sync" else {}
        producer = rig.producer(
            rig.topic(), rate=200, load_s=1.05, asked=asked, options=options
        ).send_all()
        sends = producer.rows(TableId.SENDS)
        equal("rows", len(sends), count)
        equal("ok", producer.done_line.ok, count)
        expect(dense(sends), "the sequences of a lane are not 0, 1, 2 ...")
        for made in np.split(sends, range(batch, len(sends), batch)):
            early = made["t_start_ns"].min() < made["t_intended_ns"].max()
            expect(not early, "a call began before its last message was due")
        expect(producer.done_line.blocked_ns > 0, "calls that wait for an answer took no time")


_call_check("sync", 1)
_call_check("batch", 25)


#: Headers that every client can name, and some that JMS cannot.
_PLAIN: Final = {"tenant": "acme", "text": "Käse 42", **{f"x_{k}": "y" * 20 for k in range(20)}}
_ODD: Final = {"trace-id": "4bf92f3577b34da6", "X.Retry-Count": "3"}


@check("producer", supports={"headers": "identifiers"})
def headers_are_sent(rig: Rig) -> None:
    """In every message, with their values, for another client that reads them."""
    headers = _PLAIN if "any" not in rig.worker.supports["headers"] else {**_PLAIN, **_ODD}
    topic = rig.topic()
    asked = {"headers": [list(each) for each in headers.items()]}
    producer = rig.producer(topic, load_s=0.25, asked=asked).send_all()
    found = [sent for value, sent in _read(rig, topic) if _is_ours(value)]
    equal("messages read again", len(found), producer.done_line.ok)
    expect(found, "no message was read again")
    # a client may add its own
    ours = ({name: sent.get(name) for name in headers} for sent in found)
    equal(
        "headers of a message", next((sent for sent in ours if sent != headers), headers), headers
    )


def _read(rig: Rig, topic: str) -> list[tuple[bytes, dict[str, str]]]:
    """Value and headers of each message of a topic, as another client reads them."""
    address = rig.system.address(topic, RUN_TAG) or topic
    security = rig.cluster.security or ANYBODY.clients
    reader = rig.system.headers()
    return list(reader.read(rig.cluster.bootstrap, address, rig.partitions[topic], security))


def _is_ours(value: bytes) -> bool:
    return value[:2] == HEADER_MAGIC and value[3] != 0  # no probe
