"""Readers of pulsar-client: one for each partition, from the first message on, without a
subscription."""

from __future__ import annotations

import threading
import time
from typing import Any

import pulsar
from consumer import CLOSE_TIMEOUT_S, RECEIVE_MS, Journal, stream_ids
from options import accepted
from outcomes import note_death, result_name
from worker_kit.process import Session


class ReaderRole:
    """A consumer that acknowledges nothing. Each reader has a thread of its own: `read_next`
    blocks."""

    def __init__(self, session: Session, client: pulsar.Client, options: dict[str, Any]) -> None:
        self.session = session
        self.control = session.control
        self.report = session.report
        self.client = client
        self.options = options
        self.work_s: float = session.spec.part.get("work_s", 0.0)
        self.journal = Journal(session)

    def counts(self) -> dict[str, object]:
        return {"delivered": self.journal.delivered, "epoch": self.journal.epoch, "positions": {}}

    def run(self) -> None:
        self.report.counts = self.counts
        own = {self.session.spec.topics[name].address for name in self.session.spec.part["topics"]}
        addresses = [
            each for each in stream_ids(self.session) if each.partition("-partition-")[0] in own
        ]
        readers = [self._reader(address) for address in addresses]
        self.journal.assigned()
        self.report.event("assign", f"{len(readers)} readers", epoch=1)
        self.session.ready()
        threads = [
            threading.Thread(target=self._read, args=(reader,), daemon=True) for reader in readers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        closing = threading.Thread(target=self.client.close, name="close", daemon=True)
        closing.start()
        closing.join(CLOSE_TIMEOUT_S)

    def _reader(self, address: str) -> pulsar.Reader:
        return accepted(
            self.client.create_reader,
            address,
            pulsar.MessageId.earliest,
            reader_name=self.session.spec.name,
            **self.options,
        )

    def _read(self, reader: pulsar.Reader) -> None:
        while not (self.control.stopped or time.monotonic_ns() >= self.control.deadline_ns):
            if self.report.died:
                time.sleep(RECEIVE_MS / 1000)
                continue
            try:
                message = reader.read_next(timeout_millis=RECEIVE_MS)
            except pulsar.Timeout:
                continue
            except pulsar.PulsarException as error:
                note_death(self.report, error)
                self.report.error(result_name(error), f"read_next: {error}")
                time.sleep(RECEIVE_MS / 1000)
                continue
            self.journal.deliver(message)
            if self.work_s:
                time.sleep(self.work_s)
