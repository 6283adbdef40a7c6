"""Contract of producers: what they say of a send that did not go well. Fail is certain, info is
not."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from harness.contract.checks import check
from harness.contract.driving import Rows, dense, equal, expect, messages, outcomes
from harness.contract.rig import Rig
from harness.records import Outcome
from harness.systems import System

#: An application that re-sends makes at most so many attempts of a message, so far apart.
MOST_ATTEMPTS, RESEND_NS = 10, 500_000_000
RESENT = {"results": "resent"}
#: A call that waited so long waited for room.
BLOCKED_NS = 1_000_000_000


def refuses_by_size(system: System) -> bool:
    """Its topics have a limit for messages."""
    return bool(system.size_setting)


def _all_refused(rig: Rig, sends: Rows, count: int, topic: str) -> None:
    equal("outcomes", outcomes(sends), {Outcome.FAIL})
    equal("fail", count, len(sends))
    equal("messages stored", len(rig.stored(topic)), 0)


@check("producer", "largest_message")
def too_large_for_the_client_is_a_fail(rig: Rig) -> None:
    """Check that a message that the client refuses has the outcome fail, and is not stored."""
    topic = rig.topic()
    options = rig.worker.contract.words("largest_message", bytes=1000)
    producer = rig.producer(
        topic, rate=50, warm_up_s=0, load_s=0.5, payload=2000, options=options
    ).send_all()
    _all_refused(rig, producer.sends, producer.done_line.fail, topic)
    expect(producer.errors_of(producer.sends), "its rows name no error")


@check("producer", applies=refuses_by_size)
def refused_by_the_broker_is_a_fail(rig: Rig) -> None:
    """Check that a message that the broker refuses has the outcome fail, and is not stored."""
    topic = rig.topic(config={rig.system.size_setting: "500"})
    producer = rig.producer(topic, rate=50, warm_up_s=0, load_s=0.5, payload=1000).send_all()
    _all_refused(rig, producer.sends, producer.done_line.fail, topic)
    equal("error lines, one a class", len(producer.errors), len(producer.errors_of(producer.sends)))


@check("producer", "send_timeout", freezes_brokers=True)
def no_answer_in_time_is_info_and_a_full_queue_a_fail(rig: Rig) -> None:
    """Every broker frozen: it cannot be known what became of a send. A full queue is only asked of
    a client that has the words for it."""
    words = rig.worker.contract
    options = {**words.words("send_timeout", ms=2000, s=2), **words.words("queue", count=20)}
    topic, fills = rig.topic(), bool(words.queue)
    asked = {"when_full": "fail" if fills else "wait"}
    producer = rig.producer(topic, rate=100, load_s=60, options=options, asked=asked)
    producer.begin()
    producer.wait_stats(lambda stats: stats.ok > 50)
    with rig.frozen_brokers(topic):
        producer.wait_stats(lambda stats: stats.info > 0 and (stats.fail > 0 or not fills))
    producer.finish()
    sends = producer.sends
    equal(
        "outcomes", outcomes(sends), {Outcome.OK, Outcome.INFO, *([Outcome.FAIL] if fills else [])}
    )
    info, fail = (sends[sends["outcome"] == outcome] for outcome in (Outcome.INFO, Outcome.FAIL))
    equal("rows of outcome info", len(info), producer.done_line.info)
    expect(producer.errors_of(info), "rows of outcome info name no error")
    equal(
        "errors that are fail and info", producer.errors_of(info) & producer.errors_of(fail), set()
    )
    first = next(error for error in producer.errors if not error.fatal)
    equal("name of its error line", first.name, first.text.partition(":")[0])
    _check_stored(rig, topic, sends)


def _check_stored(rig: Rig, topic: str, sends: Rows) -> None:
    """Ok is stored, fail is not; info may be either."""
    stored = set(messages(rig.stored(topic)["header"]))
    ok, fail = (
        set(messages(sends[sends["outcome"] == each])) for each in (Outcome.OK, Outcome.FAIL)
    )
    equal("acknowledged and not stored", sorted(ok - stored), [])
    equal("failed and stored", sorted(fail & stored), [])


@check("producer", "queue", freezes_brokers=True)
def a_full_queue_is_waited_for(rig: Rig) -> None:
    """Check that a producer waits for room in a full queue, and that this time is the client's
    (`blocked_ns`).
    """
    topic = rig.topic(partitions=1)  # some clients have a queue a partition
    options = rig.worker.contract.words("queue", count=20)
    producer = rig.producer(topic, rate=1000, load_s=60, options=options)
    producer.begin()
    before = producer.wait_stats(lambda stats: stats.ok > 50)
    # full within 20 ms, however slow or fast brokers and machine are
    with rig.frozen_brokers(topic):
        producer.wait_stats(lambda stats: stats.blocked_ns > BLOCKED_NS)
    producer.finish()
    sends = producer.sends
    equal(
        "rows (none for a message that was not offered)", len(sends), producer.done_line.attempted
    )
    expect(dense(sends), "the sequences of a lane are not 0, 1, 2 ...")
    # the very last one may still have been waiting for room when the load was stopped
    equal("outcomes", outcomes(sends[:-1]), {Outcome.OK})
    blocked_ns = producer.done_line.blocked_ns
    expect(
        blocked_ns > BLOCKED_NS,
        f"blocked_ns is {blocked_ns} at the end, was more than {BLOCKED_NS}",
    )
    later_ns = producer.later_since_ns(before)
    told = f"it was {later_ns / 1e9:.1f} s later, of {blocked_ns / 1e9:.1f} s blocked"
    expect(later_ns < blocked_ns / 2, f"blocked time was charged to the generator: {told}")


@check("producer", "largest_message", supports=RESENT, by_kit=True)
def an_application_that_sends_again_does_so_ten_times_at_most(rig: Rig) -> None:
    """Refused by the client itself, at once: each message is tried until the application gives
    up."""
    options = rig.worker.contract.words("largest_message", bytes=1000)
    producer = rig.producer(
        rig.topic(), rate=40, load_s=1, payload=2000, asked=RESENT, options=options
    ).send_all()
    tries = _tries(producer.sends)
    expect(len(tries) > 10, f"{len(tries)} messages")
    done = producer.done_line
    counts = {key: getattr(done, key) for key in ("attempted", "open")}
    equal("counts", counts, {"attempted": MOST_ATTEMPTS * len(tries), "open": 0})
    for rows in tries.values():
        equal("attempts", [int(row["attempt"]) for row in rows], list(range(MOST_ATTEMPTS)))
        equal("outcomes", {int(row["outcome"]) for row in rows}, {Outcome.FAIL})
        same = {(int(row["t_intended_ns"]), int(row["kind"])) for row in rows}
        equal("intended times and kinds of a message", len(same), 1)
        apart = min(
            int(after["t_start_ns"] - before["t_done_ns"]) for before, after in pairwise(rows)
        )
        expect(apart >= RESEND_NS, f"sent again after {apart / 1e9:.2f} s, must be 0.5 s or more")


def _tries(sends: Rows) -> dict[tuple[int, int], list[np.void]]:
    tries: dict[tuple[int, int], list[np.void]] = {}
    for row in sends:
        tries.setdefault((int(row["lane"]), int(row["seq"])), []).append(row)
    return tries


@check("producer", "queue", supports=RESENT, freezes_brokers=True)
def what_failed_is_sent_again_until_it_is_stored(rig: Rig) -> None:
    """Or until the application gives up, which a slow machine or a small queue may bring about."""
    topic = rig.topic()
    options = rig.worker.contract.words("queue", count=20)
    asked = {**RESENT, "when_full": "fail"}
    producer = rig.producer(topic, rate=500, load_s=4, asked=asked, options=options)
    producer.begin()
    producer.wait_stats(lambda stats: stats.ok > 50)
    with rig.frozen_brokers(topic):
        producer.wait_stats(lambda stats: stats.fail > 100)
    producer.wait_stats(lambda stats: stats.attempted - stats.resent >= 2000, 60)
    producer.finish()
    stored_again = 0
    for rows in _tries(producer.sends).values():
        ordered = sorted(rows, key=lambda row: int(row["attempt"]))
        attempts, last = len(ordered), ordered[-1]["outcome"]
        equal("attempts", [int(row["attempt"]) for row in ordered], list(range(attempts)))
        expect(
            all(row["outcome"] != Outcome.OK for row in ordered[:-1]),
            "sent again although it was stored",
        )
        expect(
            last != Outcome.FAIL or attempts == MOST_ATTEMPTS, f"given up after {attempts} attempts"
        )
        stored_again += last == Outcome.OK and attempts > 1
    expect(stored_again, "no message was stored that had failed before")
