"""Audit role on pulsar-client: whole topics, by readers, one after the other.

The client shows no sequence ids of what is stored; judging what only they can tell needs the Java reader.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import pulsar
from consumer import stream_ids
from options import accepted
from outcomes import result_name
from worker_kit import layouts as lay
from worker_kit import payload
from worker_kit.failure import WorkerFailure
from worker_kit.payload import RESIDUE
from worker_kit.process import Session
from worker_kit.segments import SegmentWriter

READ_MS = 200


@dataclass(slots=True)
class Progress:
    """Read progress of one stream; ``why`` is empty while it is being read."""

    stream: str
    stream_id: int
    address: str
    read: int = 0
    why: str = ""


class AuditRole:
    def __init__(self, session: Session, client: pulsar.Client, options: dict[str, Any]) -> None:
        part = session.spec.part
        self.session = session
        self.control = session.control
        self.client = client
        self.options = options
        self.stall_s: float = part["stall_s"]
        self.isolation: str = part["isolation"]
        numbers = {number: address for address, number in stream_ids(session).items()}
        self.progress = [
            Progress(name, number, numbers[number])
            for name in part["streams"]
            for number in [session.names.id("stream", name)]
        ]
        self.segments = SegmentWriter(session.spec.folder, lay.LOG, part["reader"], session.spec.run_tag)
        self.rows, self.at, self.end = self.segments.rotate()
        self.prefixes = payload.accepted_prefixes(session.spec.run_tag)
        self.read = 0

    def counts(self) -> dict[str, int]:
        return {"read": self.read, "streams_open": sum(not each.why for each in self.progress)}

    def run(self) -> None:
        self.session.report.counts = self.counts
        self.session.ready()
        self.control.started.wait()
        try:
            for state in self.progress:
                if self._is_over():
                    break
                self._read(state)
        finally:
            self._write_bounds()

    def _is_over(self) -> bool:
        return self.control.stopped or time.monotonic_ns() >= self.control.deadline_ns

    def _read(self, state: Progress) -> None:
        """One topic from its first message to the last id it had when its reader was made."""
        try:
            reader = accepted(
                self.client.create_reader, state.address, pulsar.MessageId.earliest, **self.options
            )
        except pulsar.PulsarException as error:
            state.why = "error"
            self.session.report.error(result_name(error), f"{state.stream}: {error}")
            return
        heard = time.monotonic()
        while not state.why and not self._is_over():
            try:
                if not reader.has_message_available():
                    state.why = "end"
                    break
                self._row(state, reader.read_next(timeout_millis=READ_MS))
                heard = time.monotonic()
            except pulsar.PulsarException as error:
                if time.monotonic() - heard > self.stall_s:
                    state.why = "stall"
                    self.session.report.event(
                        "stall", f"{state.stream} at {state.read}: {result_name(error)}"
                    )
        reader.close()

    def _row(self, state: Progress, message: pulsar.Message) -> None:
        value, found = message.data(), message.message_id()
        is_ours = value[:8] in self.prefixes and crc32(value) == RESIDUE
        check = lay.CHECK_OK if is_ours else payload.check(value, self.session.spec.run_tag)
        if self.at == self.end:
            self.rows, self.at, self.end = self.segments.rotate()
        lay.LOG_ROW.pack_into(
            self.rows, self.at, found.entry_id(), found.ledger_id(), -1, message.publish_timestamp(),
            state.stream_id, found.batch_index(), 0, 0, check, value[:48], 1,
        )  # fmt: skip
        self.at += lay.ROW_BYTES[lay.LOG]
        state.read += 1
        self.read += 1

    def _write_bounds(self) -> None:
        path = self.session.spec.folder / "log_bounds.jsonl"
        lines = []
        for state in self.progress:
            why = state.why or "deadline"
            end = state.read if why == "end" else state.read + 1
            row = {"stream": state.stream, "stream_id": state.stream_id, "begin": 0, "end": end,
                   "read_to": state.read, "why": why, "isolation": self.isolation}  # fmt: skip
            lines.append(json.dumps(row))
        try:
            path.write_text("\n".join(lines) + "\n")
        except OSError as error:
            raise WorkerFailure(f"cannot write {path}: {error.strerror}") from error
