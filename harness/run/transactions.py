"""Records which messages of the log were in which transaction: the readers of the audit cannot see
it. And those that they are not given."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Final

import numpy as np

from harness.contracts.plan import Plan
from harness.contracts.rows import StreamTransactions
from harness.errors import BrokerstormError
from harness.protocols.cluster import Admin, HasTransactions, TellsHidden
from harness.records import (
    FORMAT_VERSION,
    HEADER_BYTES,
    HEADER_MAGIC,
    MIN_PAYLOAD_BYTES,
    RAW_LOG,
    SEGMENT_HEADER,
    SEGMENT_MAGIC,
    Check,
    Kind,
    TableId,
)
from harness.run.worker_specs import AUDIT_READERS
from harness.rundir import RunDir, write_jsonl
from harness.segments import mapped

#: The capture of what readers of the audit are not given.
HIDDEN: Final = "audit-hidden"
_READER: Final = AUDIT_READERS + 1
#: CRC-32 of a whole payload, its own CRC-32 included.
_RESIDUE: Final = 0x2144DF1C
_LOG = logging.getLogger(__name__)


def record_transactions(plan: Plan, run: RunDir, admin: Admin, *, timeout_s: float) -> None:
    """Write what the logs hold; nothing where no client used transactions. What is not known makes
    a run *unknown*."""
    if not any(producer.transactions for producer in plan.producers):
        return
    try:
        if isinstance(admin, TellsHidden):
            told = admin.hidden(_given(plan, run), timeout_s=timeout_s)
        elif isinstance(admin, HasTransactions):
            told = admin.transactions([topic.name for topic in plan.topics], timeout_s=timeout_s)
        else:
            return
    except BrokerstormError as error:
        _LOG.warning("the transactions of the log were not read: %s", error)
        return
    rows = [asdict(replace(one, hidden=[])) for one in told]
    write_jsonl(
        run.log_transactions, [{key: row[key] for key in row if key != "hidden"} for row in rows]
    )
    if any(one.hidden for one in told):
        _write_hidden(plan, run, told)


def _given(plan: Plan, run: RunDir) -> dict[str, set[tuple[int, int]]]:
    """Stream -> ledger and entry of all that the readers of the audit were given."""
    streams = plan.streams()
    found: dict[str, set[tuple[int, int]]] = {stream: set() for stream in streams}
    for path in sorted(run.raw.glob("audit-*/log-*.seg")):
        rows = mapped(path, TableId.LOG)
        rows = rows[rows["state"] != 0]
        for number in filter(None, np.unique(rows["stream"]).tolist()):
            own = rows[rows["stream"] == number]
            places = zip(own["ledger"].tolist(), own["position"].tolist(), strict=True)
            found[streams[number - 1]].update(places)
    return found


def _write_hidden(plan: Plan, run: RunDir, told: Sequence[StreamTransactions]) -> None:
    """Rows of the log besides the rows of the audit's readers: the capture of one more."""
    folder = run.worker(HIDDEN)
    folder.mkdir(parents=True, exist_ok=True)
    ids = {stream: number for number, stream in enumerate(plan.streams(), start=1)}
    names = [{"id": number, "kind": "stream", "text": stream} for stream, number in ids.items()]
    write_jsonl(folder / "names.jsonl", names)
    found = [(ids[one.stream], message) for one in told for message in one.hidden]
    rows = np.zeros(len(found), RAW_LOG)
    for row, (stream, message) in zip(rows, found, strict=True):
        row["position"], row["ledger"], row["batch"] = message.entry, message.ledger, message.batch
        row["stream"], row["txn"] = stream, message.txn
        row["check"] = check_of(message.data, plan.run_tag)
    rows["client_seq"] = rows["broker_time_ms"] = -1
    rows["state"] = 1
    heads = b"".join(message.data[:HEADER_BYTES].ljust(HEADER_BYTES, b"\0") for _, message in found)
    rows["header"] = np.frombuffer(heads, RAW_LOG["header"])
    header = np.zeros(1, SEGMENT_HEADER)
    header[0] = (
        SEGMENT_MAGIC,
        TableId.LOG,
        RAW_LOG.itemsize,
        _READER,
        0,
        len(rows),
        plan.run_tag,
        0,
    )
    (folder / f"log-{_READER}-000000.seg").write_bytes(header.tobytes() + rows.tobytes())


def check_of(payload: bytes, run_tag: int) -> Check:
    """Check a payload in the way that a reader does (docs/capture-format.md)."""
    if payload[:2] != HEADER_MAGIC:
        return Check.FOREIGN
    is_whole = (
        len(payload) >= MIN_PAYLOAD_BYTES
        and payload[2] == FORMAT_VERSION
        and payload[3] in set(Kind)
        and int.from_bytes(payload[40:44], "little") == len(payload)
        and zlib.crc32(payload) == _RESIDUE
    )
    if not is_whole:
        return Check.CORRUPT
    return Check.OK if int.from_bytes(payload[4:8], "little") == run_tag else Check.OTHER_RUN
