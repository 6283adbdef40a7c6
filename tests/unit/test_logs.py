"""Lines of a run's logs: found by time without reading the rest, and chosen by what they say."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.log_stamp import Stamp, Stamped
from harness.logs import Excerpt, LogLines, RunLogs, Subject, reading
from harness.rundir import RunDir, read_json, write_json, write_jsonl
from harness.wall_clock import WallClock
from tests.planted.tiny import History
from tests.planted.tiny_journals import EPOCH_NS

WALL_NS = 1_795_363_700_000_000_000  # at the start of load
SECOND_NS = 1_000_000_000
ADDRESS = "persistent://public/bs-1/orders"
UNIX = (Stamp("{unix} "),)


def at(seconds: float) -> str:
    """A broker's time, of a second into the load."""
    when = datetime.fromtimestamp(WALL_NS / 1e9 + seconds, UTC)
    return f"[{when:%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03d}]"


def run_with(
    tmp_path: Path, nodes: dict[str, list[str]], client: Sequence[str] = (), system: str = "kafka"
) -> RunDir:
    """A run whose logs say this."""
    wall = datetime.fromtimestamp(WALL_NS // SECOND_NS, UTC).isoformat()
    run = History(system=system, partitions=12, buckets=1).sent(1).write(tmp_path / "run")
    manifest = {**read_json(run.manifest), "epoch_wall": wall}
    manifest["workers"][0]["log_stamp"] = "%{level}|{unix}|"
    write_json(run.manifest, manifest)
    for node, lines in nodes.items():
        log = run.cluster / node / "logs" / "stdout.log"
        log.parent.mkdir(parents=True)
        log.write_text("".join(f"{line}\n" for line in lines))
    worker = run.worker(manifest["workers"][0]["name"])
    worker.mkdir(parents=True)
    (worker / "stderr.log").write_text("".join(f"{line}\n" for line in client))
    return run


def around(run: RunDir, seconds: float, *, most: int = 50, names: tuple[str, ...] = ()) -> LogLines:
    moment = EPOCH_NS + round(seconds * SECOND_NS)
    workers = [row["name"] for row in read_json(run.manifest)["workers"]]
    subject = Subject(moments_ns=[moment], streams=["orders-1"], workers=workers, names=names)
    return RunLogs.read_from(run).around(subject, most)


def said(found: LogLines) -> list[tuple[str, str]]:
    return [(line.why, line.said.rpartition("] ")[2]) for line in found.lines]


# -- excerpts


def test_an_excerpt_is_what_a_reader_of_all_lines_would_pick(tmp_path: Path) -> None:
    rng = random.Random(7)
    for case in range(20):
        rows = []
        for second in range(rng.choice((0, 5, 4000))):
            stamp_ns = (1000 + second) * SECOND_NS + rng.randrange(-400, 400) * 1_000_000
            rows.append(
                (
                    stamp_ns,
                    f"line {second}",
                    [f"\tat {i}" for i in range(rng.choice((0, 0, 0, 30)))],
                )
            )
        path = tmp_path / f"{case}.log"
        text = "".join(
            f"{ns / 1e9:.3f} {first}\n" + "".join(f"{line}\n" for line in more)
            for ns, first, more in rows
        )
        path.write_text("a banner without a time\n" * rng.choice((0, 3000)) + text)
        begin = rng.randrange(990, 5100) * SECOND_NS
        end = begin + rng.choice((0, 3, 500, 9000)) * SECOND_NS
        found = [(e.text.partition(" ")[2], list(e.more)) for e in Excerpt(path, UNIX, begin, end)]
        assert found == [(first, more) for ns, first, more in rows if begin <= ns <= end]


def test_a_large_log_is_bisected_and_not_held(tmp_path: Path) -> None:
    path = tmp_path / "large.log"
    with path.open("w") as file:
        for second in range(200_000):
            file.write(f"{second}.5 {'x' * 80}\n")
    read = 0

    class Counting(Stamp):
        def read(self, line: bytes) -> Stamped | None:
            nonlocal read
            read += 1
            return super().read(line)

    begin = 150_000 * SECOND_NS
    tracemalloc.start()
    found = list(Excerpt(path, (Counting("{unix} "),), begin, begin + 9 * SECOND_NS))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == 9
    assert read < 2000
    assert peak < 1 << 20


def test_offsets_name_the_bytes_of_an_entry(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"1.0 one\n2.0 two\n\tat a\n\xff\xfe\n3.0 three\n")
    (entry,) = Excerpt(path, UNIX, 2 * SECOND_NS, 2 * SECOND_NS)
    assert (
        path.read_bytes()[entry.offset : entry.offset + entry.size]
        == b"2.0 two\n\tat a\n\xff\xfe\n"
    )


def test_long_lines_and_long_traces_are_cut_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("1.0 " + "y" * 100_000 + "\n" + "\tat b\n" * 100 + "2.0 next\n")
    entry, following = Excerpt(path, UNIX, 0, 9 * SECOND_NS)
    assert entry.text.endswith(f"... ({100_005 - reading.LINE_BYTES:,} more bytes)")
    assert (len(entry.more), entry.more_left) == (reading.ENTRY_LINES, 100 - reading.ENTRY_LINES)
    assert (following.text, following.said) == ("2.0 next", "next")


def test_a_log_that_says_too_much_at_a_time_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.log"
    path.write_text("1.0 again\n" * 100)
    monkeypatch.setattr(reading, "EXCERPT_BYTES", 500)
    excerpt = Excerpt(path, UNIX, 0, 9 * SECOND_NS)
    assert len(list(excerpt)) == 51
    assert excerpt.is_cut


# -- clocks


def test_a_wall_clock_that_was_set_is_followed() -> None:
    clock = WallClock(
        [(0, 100), (10 * SECOND_NS, 10 * SECOND_NS + 100), (20 * SECOND_NS, 80 * SECOND_NS)]
    )
    for t_ns, wall_ns in ((5 * SECOND_NS, 5 * SECOND_NS + 100), (25 * SECOND_NS, 85 * SECOND_NS)):
        assert (clock.wall_ns(t_ns), clock.t_ns(wall_ns)) == (wall_ns, t_ns)
    assert clock.t_ns(50) == -50  # before the first reading


def test_the_readings_of_a_run(tmp_path: Path) -> None:
    run = run_with(tmp_path, {})
    write_jsonl(run.metrics, [{"t_ns": EPOCH_NS + SECOND_NS, "wall_ns": WALL_NS + 61 * SECOND_NS}])
    clock = WallClock.read_from(run)
    assert clock is not None
    assert clock.wall_ns(EPOCH_NS) == WALL_NS
    assert clock.wall_ns(EPOCH_NS + 2 * SECOND_NS) == WALL_NS + 62 * SECOND_NS


# -- which lines


def test_lines_by_what_they_say_of_a_message_and_how_near_they_are(tmp_path: Path) -> None:
    leader = (
        "INFO [Broker id=2] Leader orders-{} with topic id x starts at leader epoch 1 from offset 3"
    )
    run = run_with(
        tmp_path,
        {
            "kafka-1": [
                f"{at(1)} INFO [Partition orders-1 broker=1] too early (kafka.cluster.Partition)",
                f"{at(7)} {leader.format(1)}",
                f"{at(7)} {leader.format(11)}",
                f"{at(8.5)} WARN [a] a warning 1.5 s before",
                f"{at(9)} INFO [b] a second before",
                f"{at(10.1)} INFO [c] at that time",
                f"{at(12)} INFO [d] of the producer bs-7-producer",
                f"{at(13)} INFO [e] Error in orders-1",
            ]
        },
        client=[f"%6|{(WALL_NS + 6 * SECOND_NS) / 1e9}|CONN|producer-1| [f] connected"],
    )
    found = around(run, 10, names=("bs-7-producer",))
    assert said(found) == [
        ("client", "connected"),
        ("leader", "Leader orders-1 with topic id x starts at leader epoch 1 from offset 3"),
        ("warning", "a warning 1.5 s before"),
        ("near", "at that time"),
        ("named", "of the producer bs-7-producer"),
        ("named", "Error in orders-1"),
    ]
    assert found.lines[1].t_s == 7


@pytest.mark.parametrize(
    ("system", "lines"),
    [
        (
            "pulsar",
            [
                f"{at(10)} INFO Created topic {ADDRESS}-partition-1 - dedup is disabled (o.a.p.B)",
                f"{at(10)} INFO Created topic {ADDRESS}-partition-11 - dedup is disabled (o.a.p.B)",
            ],
        ),
        (
            "qpid",
            [f"{at(10)[1:-1]} INFO  [Group] (q.m.h.role_changed) - HA-1010 : Role Changed : ", ""],
        ),
    ],
)
def test_a_new_leader_in_the_words_of_a_system(
    tmp_path: Path, system: str, lines: list[str]
) -> None:
    run = run_with(tmp_path, {}, system=system)
    plan = read_json(run.plan)
    plan["topics"][0]["address"] = ADDRESS
    write_json(run.plan, plan)
    log = run.cluster / "node-1" / "logs" / "stdout.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"{line}\n" for line in lines))
    assert [kind for kind, _ in said(around(run, 10))] == ["leader", "near"][: 1 + bool(lines[1])]


def test_the_least_telling_are_left_out_and_counted(tmp_path: Path) -> None:
    near = [f"{at(10)} INFO [a] nothing {i}" for i in range(30)]
    named = [f"{at(9 + i / 10)} INFO [b] orders-1 {i}" for i in range(5)]
    run = run_with(tmp_path, {"kafka-1": [*named, *near], "kafka-2": near})
    found = around(run, 10, most=4)
    assert said(found) == [("named", f"orders-1 {i}") for i in range(1, 5)]
    assert found.left_out == {"kafka-1": 31, "kafka-2": 30}


def test_a_stack_trace_stays_with_its_line_and_is_searched_too(tmp_path: Path) -> None:
    trace = ["java.io.IOException: gone", "\tat kafka.Log(orders-1)", "Caused by: it"]
    run = run_with(
        tmp_path, {"kafka-1": [f"{at(6)} ERROR [a] Failed", *trace, f"{at(6.1)} INFO [b] x"]}
    )
    (line,) = around(run, 10).lines
    assert (line.why, line.more) == ("named", tuple(trace))


def test_rounds_share_the_logs_of_their_campaigns_brokers(tmp_path: Path) -> None:
    run = run_with(tmp_path, {"kafka-1": [f"{at(10)} INFO [a] of all rounds"]})
    campaign = RunDir(tmp_path / "campaign").create()
    write_json(campaign.campaign, {"runs": ["run"]})
    run.cluster.rename(campaign.cluster)
    run.root.rename(campaign.root / "run")
    (line,) = around(RunDir(campaign.root / "run"), 10).lines
    assert (line.source, line.file) == ("kafka-1", "cluster/kafka-1/logs/stdout.log")


def test_logs_whose_lines_have_no_time_are_told_and_not_placed(tmp_path: Path) -> None:
    run = run_with(tmp_path, {"kafka-1": ["orders-1 at no time"]}, client=["orders-1"])
    manifest = read_json(run.manifest)
    del manifest["workers"][0]["log_stamp"]
    write_json(run.manifest, manifest)
    found = around(run, 10)
    assert (found.lines, found.unplaced) == ((), (manifest["workers"][0]["name"],))


def test_a_run_that_does_not_say_when_it_was_places_nothing(tmp_path: Path) -> None:
    run = run_with(tmp_path, {"kafka-1": [f"{at(10)} INFO [a] orders-1"]})
    write_json(run.manifest, {**read_json(run.manifest), "epoch_wall": ""})
    assert around(run, 10).why_none == "the run does not say when it was"
