"""Reads the outputs of applications after they ended, and captures which input each names.

output topic  -->  raw/outputs-NAME/deliveries-*.seg, log_bounds.jsonl, names.jsonl
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np

from harness.contracts.plan import ApplicationPlan, Plan
from harness.contracts.rows import Bounds
from harness.errors import BrokerstormError
from harness.protocols.cluster import StoredMessage
from harness.records import (
    DELIVERIES_STRUCT,
    HEADER_BYTES,
    RAW_DELIVERIES,
    SEGMENT_HEADER,
    SEGMENT_MAGIC,
    Check,
    Event,
    TableId,
)
from harness.run.identity import identity_reader, is_probe, shown
from harness.run.manifest import ManifestFile
from harness.run.output_sources import OutputSource
from harness.rundir import RunDir, write_jsonl
from harness.wall_clock import WallClock

_ROW: Final = struct.Struct(DELIVERIES_STRUCT)
#: Rows of a segment.
_ROWS: Final = 1 << 16
#: Outputs that name no input and are shown.
_SHOWN: Final = 3


def output_folder(run: RunDir, application: str) -> Path:
    """The capture of an application's outputs, as a worker's."""
    return run.worker(f"outputs-{application}")


def record_outputs(
    plan: Plan,
    run: RunDir,
    sources: Mapping[str, OutputSource],
    manifest: ManifestFile,
    *,
    timeout_s: float,
) -> None:
    """Capture the outputs of every application. What cannot be read makes the run *unknown*."""
    end = time.monotonic() + timeout_s
    for application in plan.applications:
        source = sources[application.name]
        capture = _OutputCapture(plan, run, application, source)
        bounds: list[Bounds] = []
        try:
            left_s = max(1.0, end - time.monotonic())
            bounds = source.read(capture.take, timeout_s=left_s)
            manifest.update(outputs_read=[*manifest.content.outputs_read, application.name])
        except (BrokerstormError, OSError, ValueError, struct.error) as error:
            manifest.problem("outputs", f"the outputs of {application.name} were not read: {error}")
        finally:
            capture.close(bounds)
        for one in bounds:
            if not one.is_complete:
                how_far = f"in {one.stream} were read to {one.read_to} of {one.end}"
                manifest.problem("outputs", f"the outputs of {application.name} {how_far}")
        if capture.nameless:
            told = {**manifest.content.nameless_outputs, application.name: capture.nameless}
            manifest.update(nameless_outputs=told)
            way = ", ".join(f"{key}: {value}" for key, value in application.identity.items())
            manifest.problem(
                "outputs",
                f"{capture.nameless:,} of {capture.count:,} outputs of {application.name} name no input "
                f"(identity {way or 'the input at the beginning of the value'}): {shown(capture.first)}",
            )


class _OutputCapture:
    """Rows of one application's outputs on their way to the disk."""

    def __init__(
        self, plan: Plan, run: RunDir, application: ApplicationPlan, source: OutputSource
    ) -> None:
        self._plan = plan
        self._owner = application.session
        self._folder = output_folder(run, application.name)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._read_identity = identity_reader(application.identity, plan.run_tag)
        self._clock = WallClock.read_from(run) or WallClock.now()
        self._source = source
        #: Stream of outputs -> its number here: those of the plan have theirs, others the ones
        #: after.
        self._ids = {stream: number for number, stream in enumerate(plan.streams(), start=1)}
        #: Partition, as its source counts -> number of its stream.
        self._streams: dict[int, int] = {}
        self._rows = bytearray(_ROWS * RAW_DELIVERIES.itemsize)
        self._used = self._index = 0
        self.count = self.nameless = 0
        self.first: list[StoredMessage] = []

    def take(self, message: StoredMessage) -> None:
        """Capture one output; outputs of our own probes do not count."""
        header = self._read_identity(message)
        if is_probe(message, self._plan.run_tag):
            return
        self.count += 1
        if header is None:
            self.nameless += 1
            if len(self.first) < _SHOWN:
                self.first.append(message)
        _ROW.pack_into(
            self._rows,
            self._used * RAW_DELIVERIES.itemsize,
            self._clock.t_ns_of_ms(message.t_ms),
            message.position,
            0,
            0,
            self._stream(message.partition),
            0,
            0,
            -1,
            header or bytes(HEADER_BYTES),
            Check.OK if header else Check.FOREIGN,
            Event.OUTPUT,
        )
        self._used += 1
        if self._used == _ROWS:
            self._write()

    def _stream(self, partition: int) -> int:
        if partition not in self._streams:
            name = self._source.stream(partition)
            self._streams[partition] = self._ids.setdefault(name, len(self._ids) + 1)
        return self._streams[partition]

    def _write(self) -> None:
        header = np.zeros(1, SEGMENT_HEADER)
        header[0] = (
            SEGMENT_MAGIC, TableId.DELIVERIES, RAW_DELIVERIES.itemsize, self._owner, self._index, self._used,
            self._plan.run_tag, 0,
        )  # fmt: skip
        path = self._folder / f"deliveries-{self._owner}-{self._index:06d}.seg"
        path.write_bytes(header.tobytes() + self._rows[: self._used * RAW_DELIVERIES.itemsize])
        self._used, self._index = 0, self._index + 1

    def close(self, bounds: list[Bounds]) -> None:
        """Write the rest, and how far each partition was read."""
        if self._used:
            self._write()
        names = [
            {"id": number, "kind": "stream", "text": name} for name, number in self._ids.items()
        ]
        write_jsonl(self._folder / "names.jsonl", names)
        keys = ("stream", "begin", "end", "read_to", "why", "isolation")
        rows = [{key: asdict(one)[key] for key in keys} for one in bounds]
        write_jsonl(self._folder / "log_bounds.jsonl", rows)
