"""`--self-test DIR`: files of fixed content, to compare with harness/contract/golden byte by
byte."""

from __future__ import annotations

import struct
from pathlib import Path

from . import layouts as lay
from . import payload
from .names import Names
from .schedule import Schedule
from .segments import SegmentWriter
from .spec import Lane
from .template import Template

RUN_TAG = 0xC0FFEE01
TEMPLATE = '{"order": {"id": "{id}"}, "n": {n}, "key": "{key}", "by": "{producer}/{lane}"}'
#: Every byte from 0 to 255, and places of fixed width.
ENCODED = "".join(map(chr, range(256))) + "{id:24}{n:5}{lane:3}{producer:10}%d{n}"
CAPACITY = 4
T_NS = 1_000_000_000_000
#: Duration in ns and share of the rate; the first is the warm-up.
PROFILE = (
    (500_000_000, 0.55), (700_000_000, 0.1), (300_000_000, 0.0), (333_333_333, 1.0), (666_666_667, 0.37)
)  # fmt: skip


def write_golden(folder: Path) -> list[str]:
    """Write every golden file into ``folder`` (made if missing); return their names.

    docs/worker-protocol.md lists the inputs. Half of each segment's rows stay unused.
    """
    folder.mkdir(parents=True, exist_ok=True)
    small = payload.encode(run_tag=RUN_TAG, instance=7, lane=3, seq=42, t_intended_ns=T_NS)
    large = payload.encode(
        run_tag=RUN_TAG, instance=7, lane=4, seq=2**40 + 1, t_intended_ns=T_NS + 20_000,
        kind=lay.WARM_UP, key=17, attempt=2, length=150,
    )  # fmt: skip
    (folder / "payload-52.bin").write_bytes(small)
    (folder / "payload-150.bin").write_bytes(large)
    (folder / "payload-60-90.bin").write_bytes(_eight(payload.Sizes(60, 90, 7)))
    (folder / "payload-mixed.bin").write_bytes(_eight(payload.Sizes(60, 90, 7, (60, 61, 61, 90))))
    (folder / "payload-compressible.bin").write_bytes(_eight(payload.Sizes(60, 300, 7, (), 600)))
    (folder / "payload-template.bin").write_bytes(_eight_from(Template(TEMPLATE, 7)))
    encoded = _eight_from(Template(ENCODED, 7, "latin-1"))
    (folder / "payload-encoded.bin").write_bytes(encoded)
    _due_times(folder)
    names = Names(folder, {"orders-0": 1, "orders-1": 2})
    error = names.id("error", "_MSG_TIMED_OUT: Local: Message timed out")
    group = names.id("subscription", "group")
    _sends(folder, error)
    _log(folder, small, large)
    _deliveries(folder, group, small)
    _transactions(folder, error)
    return sorted(path.name for path in folder.iterdir())


def _eight(sizes: payload.Sizes) -> bytes:
    """Payloads of these sizes, one after the other."""
    lengths = [sizes.of(3, seq) for seq in range(8)]
    return b"".join(
        payload.encode(
            run_tag=RUN_TAG, instance=7, lane=3, seq=seq, t_intended_ns=T_NS + 20_000 * seq,
            length=length, filling=sizes.filling(3, seq, length),
        )
        for seq, length in enumerate(lengths)
    )  # fmt: skip


def _eight_from(template: Template) -> bytes:
    """Payloads around the bodies of a template, one after the other; the last two are second
    attempts."""
    lane = Lane(3, "orders", b"k000005", -1, 5)
    found = []
    for seq in range(8):
        attempt = seq // 6
        body = template.body(lane, seq, attempt)
        found.append(
            payload.encode(
                run_tag=RUN_TAG, instance=7, lane=3, seq=seq, t_intended_ns=T_NS + 20_000 * seq, key=5,
                attempt=attempt, length=len(body) + lay.MIN_PAYLOAD_BYTES, filling=body,
            )
        )  # fmt: skip
    return b"".join(found)


def _due_times(folder: Path) -> None:
    """Write the times of a schedule with a profile: the messages in the warm-up and in all, then
    when each is due.
    """
    schedule = Schedule(T_NS, 97.3, 0.5, 2.0, PROFILE)
    numbers = [schedule.warm_up_count, schedule.total, *map(schedule.due_ns, range(schedule.total))]
    (folder / "due-times.bin").write_bytes(struct.pack(f"<{len(numbers)}Q", *numbers))


def _sends(folder: Path, error: int) -> None:
    rows, at, _ = SegmentWriter(folder, lay.SENDS, 7, RUN_TAG, capacity=CAPACITY).rotate()
    lay.SENDS_OPEN.pack_into(rows, at, 3, 0, lay.LOAD, 42, T_NS, T_NS + 1_500, 1)
    lay.SENDS_DONE.pack_into(
        rows, at + lay.SENDS_DONE_OFFSET, T_NS + 9_000_000, 1234, 0, 0, 1, 0, 0, 0, lay.OK
    )
    at += lay.ROW_BYTES[lay.SENDS]
    lay.SENDS_OPEN.pack_into(
        rows, at, 4, 2, lay.WARM_UP, 2**40 + 1, T_NS + 20_000, T_NS + 21_500, 1
    )
    done = at + lay.SENDS_DONE_OFFSET
    lay.SENDS_DONE.pack_into(rows, done, T_NS + 5 * 10**9, -1, 0, 0, 0, 0, 0, error, lay.INFO)
    rows[done + lay.LATE_OUTCOME_IN_DONE] = lay.OK
    at += lay.ROW_BYTES[lay.SENDS]
    # never answered
    lay.SENDS_OPEN.pack_into(rows, at, 3, 0, lay.LOAD, 43, T_NS + 40_000, T_NS + 41_500, 1)


def _transactions(folder: Path, error: int) -> None:
    rows, at, _ = SegmentWriter(folder, lay.TRANSACTIONS, 7, RUN_TAG, capacity=CAPACITY).rotate()
    asked, done = lay.TRANSACTIONS_ASKED_OFFSET, lay.TRANSACTIONS_DONE_OFFSET
    lay.TRANSACTIONS_BEGUN.pack_into(rows, at, 1, 0, T_NS, 1)
    lay.TRANSACTIONS_ASKED.pack_into(rows, at + asked, T_NS + 2_000_000, lay.COMMIT_ASKED)
    lay.TRANSACTIONS_DONE.pack_into(rows, at + done, T_NS + 9_000_000, 0, lay.OK)
    at += lay.ROW_BYTES[lay.TRANSACTIONS]
    lay.TRANSACTIONS_BEGUN.pack_into(rows, at, 6, 1, T_NS + 10_000_000, 1)
    both = lay.COMMIT_ASKED | lay.ABORT_ASKED
    lay.TRANSACTIONS_ASKED.pack_into(rows, at + asked, T_NS + 20_000_000, both)
    lay.TRANSACTIONS_DONE.pack_into(rows, at + done, T_NS + 30_000_000, error, lay.ABORTED)
    at += lay.ROW_BYTES[lay.TRANSACTIONS]
    # its end was not asked for
    lay.TRANSACTIONS_BEGUN.pack_into(rows, at, 3, 0, T_NS + 40_000_000, 1)


def _log(folder: Path, small: bytes, large: bytes) -> None:
    rows, at, _ = SegmentWriter(folder, lay.LOG, 1, RUN_TAG, capacity=CAPACITY).rotate()
    found = ((1234, 1, small), (1235, 1, large[:-1] + b"!"), (7, 2, b"hello"))
    for position, stream, value in found:
        check = payload.check(value, RUN_TAG)
        lay.LOG_ROW.pack_into(
            rows, at, position, 0, -1, 1_700_000_000_123, stream, 0, 0, 0, check, value[:48], 1
        )
        at += lay.ROW_BYTES[lay.LOG]


def _deliveries(folder: Path, group: int, small: bytes) -> None:
    segments = SegmentWriter(
        folder, lay.DELIVERIES, 2, RUN_TAG, subscription=group, capacity=CAPACITY
    )
    rows, at, _ = segments.rotate()
    events = ((lay.ASSIGN, -1, b""), (lay.DELIVER, 1234, small[:48]), (lay.COMMIT, 1235, b""))
    for number, (kind, position, header) in enumerate(events):
        lay.DELIVERIES_ROW.pack_into(
            rows, at, T_NS + number, position, 0, 0, 1, 0, 1, -1, header, 0, kind
        )
        at += lay.ROW_BYTES[lay.DELIVERIES]
