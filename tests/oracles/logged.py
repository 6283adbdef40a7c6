"""Oracles of outcome against log: lost, refused yet stored, stranger, misplaced, repeated,
hanging."""

from __future__ import annotations

from collections import Counter

from harness.records import Check, Outcome
from tests.oracles.facts import Facts, Hit, Identity, Place, identity, place
from tests.oracles.removed import is_removed, topic_of_lane

OK, FAIL, INFO = Outcome.OK, Outcome.FAIL, Outcome.INFO


def time_of(facts: Facts, name: Identity) -> int:
    row = facts.sent.get(name)
    if row is not None:
        return int(row["t_done_ns"] or row["t_start_ns"])
    copies = facts.copies.get(name)
    return int(copies[0]["t_intended_ns"]) if copies else 0


def absence(facts: Facts, name: Identity, where: Place | None, stream: int = 0) -> frozenset[str]:
    """What is missing to say that the log does not hold the message."""
    context = facts.context
    unmet = set()
    if where is not None:
        bounds, position, counts = context.stream_bounds(where[0]), where[2], context.has_offsets
        if not (facts.read_whole(where[0]) or (counts and position < bounds.read_to)):
            unmet.add("audit-complete")
        if not (bounds.begin == 0 or (counts and position >= bounds.begin)):
            unmet.add("log-kept")
    else:
        streams = [stream] if stream else facts.topic_streams(name[1])
        known = [context.stream_bounds(s) for s in streams]
        if not known or not all(map(facts.read_whole, streams)):
            unmet.add("audit-complete")
        if not known or not all(b.begin == 0 for b in known):
            unmet.add("log-kept")
    if not context.readiness_restored:
        unmet.add("readiness-restored")
    return frozenset(unmet)


def expected_absence(facts: Facts, name: Identity) -> frozenset[str]:
    return absence(facts, name, facts.acked_place(name), facts.lane_stream(name[1]))


def is_read(facts: Facts, unmet: frozenset[str] | set[str], where: Place | None) -> bool:
    """The reading came to the place: that is proved, or the log holds something there or behind
    it."""
    if "audit-complete" not in unmet:
        return True
    if where is None or not facts.context.has_offsets:
        return False
    return any(stream == where[0] and position >= where[2] for stream, _, position, _ in facts.at)


def claims(facts: Facts) -> dict[Place, Identity]:
    """Corrupt rows by place, with the message whose acknowledgement named it."""
    absent = [
        n for n, r in facts.sent.items() if r["outcome"] == OK and not acked_is_stored(facts, n)
    ]
    elsewhere = [n for n in misplaced(facts)]
    found: dict[Place, Identity] = {}
    order = {
        name: number for number, name in enumerate(sorted(facts.sent, key=lambda n: (n[3] > 0, n)))
    }
    for name in (*sorted(absent, key=order.__getitem__), *sorted(elsewhere, key=order.__getitem__)):
        where = facts.acked_place(name)
        row = facts.at.get(where) if where else None
        if where and row is not None and row["check"] == Check.CORRUPT:
            found.setdefault(where, name)
    return found


def misplaced(facts: Facts) -> list[Identity]:
    found: list[Identity] = []
    if facts.context.has_queues_only:  # the copy at the place may have been given away
        return found
    for name, row in facts.sent.items():
        where = facts.acked_place(name)
        copies = facts.copies.get(name, [])
        if row["outcome"] == OK and copies and where and where not in [place(c) for c in copies]:
            found.append(name)
    return found


def acked_is_stored(facts: Facts, name: Identity) -> bool:
    """Stored, be it in a transaction that was aborted or never ended: acknowledged before that was
    known."""
    return facts.present(name) or name in facts.withheld


def acked_lost(facts: Facts) -> list[Hit]:
    hits = []
    corrupt = set(claims(facts).values())
    for name, row in facts.sent.items():
        if (
            row["outcome"] != OK
            or acked_is_stored(facts, name)
            or name in corrupt
            or resent(facts, name)
        ):
            continue
        unmet = set(expected_absence(facts, name))
        if not is_read(facts, unmet, facts.acked_place(name)):
            continue
        if facts.context.instance(name[0]).end_ns <= 0:
            unmet.add("producer-ended")
        where = facts.acked_place(name)
        how = "removed" if is_removed(facts, name, where) else shape(facts, name)
        is_lost = how == "removed" or row["ledger"] != -1
        cls, split = ("acked-lost", how) if is_lost else ("dedup-silent-loss", "")
        hits.append(Hit(cls, name, split, frozenset(unmet), time_of(facts, name)))
    return hits


def resent(facts: Facts, name: Identity) -> bool:
    """Another attempt of the same message is stored."""
    stored = [*facts.copies, *facts.taken]
    return any(other[:3] == name[:3] and other[3] != name[3] for other in stored)


def shape(facts: Facts, name: Identity) -> str:
    stored = [n[2] for n in (*facts.copies, *facts.taken) if n[:2] == name[:2] and n in facts.sent]
    if not stored:
        return "all"
    return "prefix" if name[2] < min(stored) else "tail" if name[2] > max(stored) else "middle"


def false_nack(facts: Facts) -> list[Hit]:
    made_up = any(fault.details.false_errors for fault in facts.context.faults)
    unmet = frozenset({"answers-kept"} if made_up else ())
    return [
        Hit("false-nack", name, t_ns=time_of(facts, name), unmet=unmet)
        for name, row in facts.sent.items()
        if row["outcome"] == FAIL and facts.present(name)
    ]


def wrong_ack_position(facts: Facts) -> list[Hit]:
    corrupt = set(claims(facts).values())
    return [
        Hit(
            "wrong-ack-position",
            name,
            unmet=absence(facts, name, facts.acked_place(name)) & {"audit-complete"},
            t_ns=time_of(facts, name),
        )
        for name in misplaced(facts)
        if name not in corrupt and not is_removed(facts, name, facts.acked_place(name))
    ]


def info(facts: Facts) -> list[Hit]:
    hits = []
    for name, row in facts.sent.items():
        if row["outcome"] == INFO and facts.present(name):
            hits.append(Hit("info-stored", name, t_ns=time_of(facts, name)))
        elif row["outcome"] == INFO and name not in facts.undecided:
            unmet = expected_absence(facts, name) & {"audit-complete"}
            if not is_read(facts, unmet, facts.acked_place(name)):
                continue
            hits.append(
                Hit("info-not-stored", name, unmet=frozenset(unmet), t_ns=time_of(facts, name))
            )
    return hits


def nobody_sent(facts: Facts, name: Identity) -> bool:
    """Of a message without a send record: is it known that there was no send?"""
    instance, lane, seq, attempt = name
    sending = {i for i, _, _, a in facts.sent if a == 0}
    if instance not in facts.context.instances and instance not in sending:
        return True
    beyond = seq > facts.top(instance, lane) or attempt > 0
    return facts.context.instance(instance).complete and beyond


def strangers(facts: Facts) -> list[Hit]:
    hits = []
    for name in dict.fromkeys([*facts.copies, *sorted(facts.taken)]):
        if name in facts.sent:
            continue
        cls, split = (
            ("phantom", "never sent")
            if nobody_sent(facts, name)
            else ("send-record-missing", "stored")
        )
        hits.append(Hit(cls, name, split, t_ns=time_of(facts, name)))
    for row in facts.log:
        split = {Check.FOREIGN: "foreign", Check.OTHER_RUN: "other run"}.get(row["check"])
        if split:
            hits.append(Hit("phantom", ("row", *place(row)), split, frozenset({"topic-ours"})))
    return hits


def holes(facts: Facts) -> list[Hit]:
    hits = []
    for instance, lane in {n[:2] for n in facts.sent if n[3] == 0}:
        for seq in range(facts.top(instance, lane)):
            name = (instance, lane, seq, 0)
            if name not in facts.sent and not facts.present(name):
                hits.append(Hit("send-record-missing", name, "not stored"))
    return hits


def corrupt(facts: Facts) -> list[Hit]:
    claimed = claims(facts)
    return [
        Hit("corrupt", claimed.get(place(row), ("row", *place(row))), "in the log")
        for row in facts.log
        if row["check"] == Check.CORRUPT
    ]


def wrong_partition(facts: Facts) -> list[Hit]:
    context = facts.context
    hits = []
    for name, rows in facts.copies.items():
        instance, lane, _, _ = name
        if name not in facts.sent or lane >= context.n_lanes:
            continue
        expected = facts.lane_stream(lane)
        homes = (expected, int(context.moved[expected]))
        if expected and any(row["stream"] not in homes for row in rows):
            hits.append(Hit("wrong-partition", name, "partition", t_ns=time_of(facts, name)))
        if not context.lane_is_keyed[lane]:
            continue
        if name in scattered(facts, [instance], lane):
            hits.append(Hit("wrong-partition", name, "key", t_ns=time_of(facts, name)))
        every = sorted({i for i, ln, _, _ in facts.copies if ln == lane})
        if keys_are_shared(facts) and name in scattered(facts, every, lane):
            hits.append(Hit("wrong-partition", name, "shared", t_ns=time_of(facts, name)))
    return hits


def keys_are_shared(facts: Facts) -> bool:
    return any(i.promise.required.get("keys") for i in facts.context.instances.values())


def growths_of(facts: Facts, lane: int) -> list[int]:
    topic = topic_of_lane(facts, lane)
    return [f.start_ns for f in facts.context.faults if f.effective and topic in f.details.grown]


def scattered(facts: Facts, instances: list[int], lane: int) -> set[Identity]:
    """Messages of a key outside the partition that holds most copies, of equals the lowest. Of a
    topic that grew: in one partition more, as they come up, than there were numbers of partitions
    until then."""
    own = sorted(
        (time_of(facts, name), place(row), name)
        for name, rows in facts.copies.items()
        if name[0] in instances and name[1] == lane and name in facts.sent
        for row in rows
    )
    times = growths_of(facts, lane)
    found = Counter(where[0] for _, where, _ in own)
    home = min(found, key=lambda stream: (-found[stream], stream))
    if not times:
        return {name for _, where, name in own if where[0] != home}
    seen: list[int] = []
    wrong = set()
    for t_ns, where, name in own:
        if where[0] not in seen:
            seen.append(where[0])
        if seen.index(where[0]) > sum(t <= t_ns for t in times):
            wrong.add(name)
    return wrong


def write_duplicate(facts: Facts) -> list[Hit]:
    hits = []
    for name, rows in facts.copies.items():
        if name not in facts.sent:
            continue
        if len(rows) > 1:
            hits.append(Hit("write-duplicate", name, "same send", t_ns=time_of(facts, name)))
        attempts = [n[3] for n in facts.copies if n[:3] == name[:3] and n in facts.sent]
        if len(attempts) > 1 and name[3] == max(attempts):
            hits.append(
                Hit("write-duplicate", name, "application re-send", t_ns=time_of(facts, name))
            )
    return hits


def unchecked(facts: Facts) -> list[Hit]:
    """Failures that the client told and an application of `results: ignored` never read."""
    hits = []
    for name, row in facts.sent.items():
        if facts.context.instance(name[0]).results != "ignored" or not row["t_done_ns"]:
            continue
        error = facts.context.names.get(row["error"], "error without a name")
        if row["outcome"] == FAIL:
            hits.append(Hit("unchecked-failure", name, error, t_ns=time_of(facts, name)))
        elif row["outcome"] == INFO:
            what = "stored after all" if facts.present(name) else "not stored"
            hits.append(
                Hit("unchecked-failure", name, f"{error}, {what}", t_ns=time_of(facts, name))
            )
    return hits


def given_up(facts: Facts) -> list[Hit]:
    """Messages that were sent again until the application had enough of it."""
    hits = []
    for name, row in facts.sent.items():
        is_resent = facts.context.instance(name[0]).results == "resent"
        if not is_resent or name[3] or row["outcome"] not in (FAIL, INFO):
            continue
        every = [n for n in (*facts.sent, *facts.copies, *facts.taken) if n[:3] == name[:3]]
        answered = any(n in facts.sent and facts.sent[n]["outcome"] == OK for n in every)
        if not answered and not any(facts.present(n) for n in every):
            hits.append(Hit("given-up", name, t_ns=time_of(facts, name)))
    return hits


def hang(facts: Facts) -> list[Hit]:
    hits = []
    for name, row in facts.sent.items():
        instance = facts.context.instance(name[0])
        if row["outcome"] != INFO and not row["t_done_ns"]:
            continue  # answered, only the time is missing
        until = row["t_done_ns"] or instance.end_ns or facts.context.end_ns
        answers = [at for at, oldest in instance.moved if oldest <= row["t_start_ns"]]
        start = max([row["t_start_ns"], *answers])
        frozen = sum(running_overlap(start, until, span) for span in instance.frozen)
        if instance.deadline_ns and until - start - frozen > instance.deadline_ns:
            split = "completed late" if row["t_done_ns"] else "never completed"
            unmet = frozenset() if instance.end_ns else frozenset({"producer-ended"})
            hits.append(Hit("hang", name, split, unmet, row["t_start_ns"]))
    return hits


def running_overlap(start: int, until: int, span: tuple[int, int]) -> int:
    return max(min(until, span[1]) - max(start, span[0]), 0)


ORACLES = (
    acked_lost,
    false_nack,
    wrong_ack_position,
    info,
    strangers,
    holes,
    corrupt,
    wrong_partition,
    write_duplicate,
    hang,
    unchecked,
    given_up,
)
__all__ = ["ORACLES", "absence", "identity", "nobody_sent", "time_of"]
