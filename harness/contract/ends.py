"""Contract of producers: how their life goes and ends. Told to, frozen, without disk, without
brokers."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from harness.contract.checks import check
from harness.contract.driving import DrivenWorker, NotHere, dense, equal, expect, outcomes
from harness.contract.rig import Rig
from harness.records import Outcome
from harness.systems import System

#: Refuses every connection.
NOBODY = "127.0.0.1:1"
SEGMENT_ROWS = 65_536
#: A load that is ended before its time.
LONG_S = 30.0
FROZEN_S = 2.0


def _running(rig: Rig) -> DrivenWorker:
    producer = rig.producer(rig.topic(), load_s=LONG_S)
    producer.begin()
    producer.wait_stats(lambda stats: stats.attempted > rig.rate / 4)
    return producer


@check("producer", by_kit=True)
def stop_load_ends_the_offering_and_drain_the_run(rig: Rig) -> None:
    """Check that no message is offered after ``stop-load``, and that ``drain`` waits for every
    outcome."""
    producer = _running(rig)
    producer.tell("stop-load")

    def no_more(_stats: object) -> bool:
        """Two lines of stats, a second apart, have the same count."""
        last = [line["attempted"] for line in producer.said if line["type"] == "stats"][-2:]
        return len(last) == 2 and last[0] == last[1]

    attempted = producer.wait_stats(no_more, LONG_S / 2).attempted
    producer.finish()
    equal("rows", len(producer.sends), attempted)
    equal("ok", producer.done_line.ok, attempted)


def _by_command(producer: DrivenWorker) -> None:
    producer.tell("stop")


def _by_signal(producer: DrivenWorker) -> None:
    assert producer.pid is not None
    os.kill(producer.pid, signal.SIGTERM)


_ENDS = {"end of input": DrivenWorker.close_input, "stop": _by_command, "SIGTERM": _by_signal}


@check(
    "producer", cases={name: {"how": name} for name in _ENDS}, slow={"stop", "SIGTERM"}, by_kit=True
)
def it_ends_at_once_and_orderly_at(rig: Rig, how: str) -> None:
    """Check that a worker ends at once, with every row and a `done` line."""
    producer = _running(rig)
    _ENDS[how](producer)
    equal("exit code", producer.wait_end(10), 0)
    expect(producer.done.is_set(), "ended without a done line")
    equal("rows", len(producer.sends), producer.done_line.attempted)


@check("producer", by_kit=True)
def a_frozen_process_reports_the_time(rig: Rig) -> None:
    """Check that a process that was stopped (SIGSTOP) reports the time, and does not count it as
    lateness."""
    producer = _running(rig)
    assert producer.pid is not None
    # On a busy machine it may have stood still before, also since its last line.
    before = producer.stats
    os.kill(producer.pid, signal.SIGSTOP)
    time.sleep(FROZEN_S)
    os.kill(producer.pid, signal.SIGCONT)
    noticed_ns = time.monotonic_ns() + 1_000_000_000
    frozen_ns = (
        producer.wait_stats(lambda stats: stats.t_ns > noticed_ns).frozen_ns - before.frozen_ns
    )
    most_ns = time.monotonic_ns() - before.t_ns
    told = f"frozen for {FROZEN_S:g} s, and it says {frozen_ns / 1e9:.1f} s"
    expect(FROZEN_S / 2 * 1e9 < frozen_ns < most_ns, told)
    expect(any(line.get("kind") == "frozen" for line in producer.said), "no event of kind frozen")
    producer.finish()
    later_ns = producer.later_since_ns(before)
    expect(
        later_ns < frozen_ns,
        f"frozen time was charged to the generator: it was {later_ns / 1e9:.1f} s later",
    )


def is_fast(system: System) -> bool:
    """A segment of rows is full in seconds."""
    return not system.is_queue


@check("producer", applies=is_fast, by_kit=True)
def a_full_disk_is_a_clear_error_and_loses_nothing(rig: Rig) -> None:
    """Check that a worker whose disk is full ends with one clear error, and that every row it wrote
    is readable.
    """
    if os.geteuid() != 0:
        raise NotHere("needs root, to mount a small file system")
    disk = rig.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], check=True)
    try:
        _fill(rig, disk)
    finally:
        rig.close()
        subprocess.run(["umount", str(disk)], check=True)


def _fill(rig: Rig, disk: Path) -> None:
    """One segment of 6 MB fits, two do not."""
    spec = rig.worker
    gathers = spec.contract.words("linger", ms=0) or "batch" not in spec.supports.get("calls", ())
    # A request for each message would take minutes to fill a segment.
    asked = {} if gathers else {"calls": "batch", "batch": 512}
    producer = rig.producer(
        rig.topic(), rate=0, warm_up_s=0, load_s=60, payload=52, asked=asked, folder=disk / "p"
    )
    producer.begin()
    equal("exit code", producer.wait_end(60), 4)
    error = producer.errors[-1]
    expect(error.fatal, "its error line does not say that it is fatal")
    for word in ("No space left on device", "-000001"):
        expect(word in error.text, f"its error does not name {word}: {error.text}")
    expect(not producer.done.is_set(), "said done")
    sends = producer.sends
    equal("rows", len(sends), SEGMENT_ROWS)
    expect(dense(sends), "the sequences of a lane are not 0, 1, 2 ...")
    equal("outcomes (calls in flight are waited for)", outcomes(sends), {Outcome.OK})
    equal("half-made files", [path.name for path in producer.folder.glob("*.part")], [])


@check("producer")
def an_option_that_the_client_lacks_ends_it_with_its_own_words(rig: Rig) -> None:
    """Check that an option that the client does not know ends the worker, with a name that is
    near."""
    wrong, *near = [*rig.worker.contract.misspelt, "no.such.option"][:2]
    error = rig.producer(rig.topic(), options={wrong: "1"}).refused()
    said = f"{error.text} {error.hint}"
    expect(wrong in error.text, f"its error does not name the option {wrong}: {error.text}")
    if rig.worker.contract.misspelt[1:]:
        expect(near[0] in said, f"its error does not name the near option {near[0]}: {said}")


def _gives_up(rig: Rig) -> dict[str, str]:
    return rig.worker.contract.words("gives_up", ms=3000, s=3)


@check("producer", quick_with="gives_up")
def brokers_that_do_not_answer_end_it_before_ready(rig: Rig) -> None:
    """Check that a worker ends before it is ready if no broker answers."""
    bootstrap = rig.cluster.bootstrap.partition("://")
    nobody = f"{bootstrap[0]}://{NOBODY}" if bootstrap[1] else NOBODY
    rig.producer("nowhere", options=_gives_up(rig), bootstrap=nobody).refused()


def makes_no_topics(system: System) -> bool:
    """Return whether a producer does not create the topic that it asks for. Pulsar creates it; Qpid
    has no such thing.
    """
    return system.has_offsets


@check("producer", applies=makes_no_topics)
def an_unknown_topic_ends_it_before_ready(rig: Rig) -> None:
    """Check that a worker ends before it is ready if its topic does not exist."""
    error = rig.producer("no-such-topic", options=_gives_up(rig)).refused()
    expect("no-such-topic" in error.text, f"its error does not name the topic: {error.text}")
