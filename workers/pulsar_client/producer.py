"""Producer role on pulsar-client. Answers come on threads of the C++ core, concurrently.

A lane of mode partition has a producer on exactly its topic (``...-partition-3``); keyed and routed
lanes share a producer on the whole topic, and the client routes.
"""

from __future__ import annotations

import mmap
import threading
import time
from functools import partial
from typing import Any, NamedTuple

import pulsar
from options import accepted
from outcomes import FULL, note_death, outcome_of, result_name
from worker_kit import layouts as lay
from worker_kit.open_loop import BLOCKED_NS, OpenLoop, Resend, Share
from worker_kit.process import Session
from worker_kit.streams import StreamIds
from worker_kit.template import parted_as_text

#: Between two tries of a patient application whose message was refused because the queue is full.
FULL_PAUSE_S = 0.002
CLOSE_TIMEOUT_S = 2.0
REFUSALS = (pulsar.PulsarException, ValueError, TypeError, RuntimeError)


class PendingSend(NamedTuple):
    """One send: which message, and where the completion of its row begins."""

    lane_index: int
    seq: int
    due_ns: int
    kind: int
    attempt: int
    rows: mmap.mmap
    at: int


class ProducerRole(OpenLoop):
    def __init__(
        self,
        session: Session,
        client: pulsar.Client,
        options: dict[str, Any],
        share: Share | None = None,
    ) -> None:
        super().__init__(session, share)
        self.client = client
        self.options = options
        self.synchronous = session.spec.part.get("calls", "async") == "sync"
        self.streams = StreamIds(session)
        self.properties = dict(self.headers) or None
        #: By topic and partition (-1: the client routes); the sending threads share them.
        self.made: dict[tuple[str, int], pulsar.Producer] = {}
        self.producers: list[pulsar.Producer] = []
        self.keys: list[str | None] = []
        self.refused = False
        self.sender = threading.get_ident()

    def for_thread(self, share: Share) -> ProducerRole:
        role = ProducerRole(self.session, self.client, self.options, share)
        role.made = self.made
        role.connect()
        return role

    def connect(self) -> None:
        for lane in self.lanes:
            topic = self.session.spec.topics[lane.topic]
            alone = topic.partitions > 1 and lane.partition >= 0
            address = f"{topic.address}-partition-{lane.partition}" if alone else topic.address
            place = (lane.topic, lane.partition if alone else -1)
            if place not in self.made:
                self.made[place] = accepted(self.client.create_producer, address, **self.options)
            self.producers.append(self.made[place])
            self.keys.append(lane.key.decode() if lane.key else None)

    def serve(self, seconds: float) -> None:
        if seconds:
            time.sleep(seconds)

    def flush(self, seconds: float) -> None:
        """Batches leave by the client's own delay; its `flush` could wait for brokers much
        longer."""
        time.sleep(min(seconds, 0.01))

    def close(self) -> None:
        if self.open_calls():
            return
        closing = threading.Thread(target=self.client.close, name="close", daemon=True)
        closing.start()
        closing.join(CLOSE_TIMEOUT_S)

    def offer(self, first: int, stop: int, kind: int) -> int:
        """Send a run of messages. Nearly all of its time is the client's."""
        count, dues = len(self.lanes), self.dues_ns(first, stop)
        self.sender = threading.get_ident()
        for i in range(first, stop):
            now = time.monotonic_ns()
            due = dues[i - first] if dues else now
            self.attempted = i + 1
            took = self._send(i % count, self.turns.seq(i), due, kind, 0)
            if took > BLOCKED_NS and self.control.stop_load:
                return i + 1
        return stop

    def resend(self, what: Resend) -> None:
        self._send(what.lane_index, what.seq, what.due_ns, what.kind, what.attempt)

    def _send(self, index: int, seq: int, due_ns: int, kind: int, attempt: int) -> int:
        """Row, call, and how long the call took in nanoseconds."""
        lane = self.lanes[index]
        value = self.payload(index, seq, due_ns, kind, attempt)
        properties = self.properties
        if self.template:
            properties = self.text_headers(value)
            value, identity = parted_as_text(value)
            properties.update(identity)
        rows, at = self.open_row(lane.lane, seq, due_ns, kind, attempt, time.monotonic_ns())
        ticket = PendingSend(index, seq, due_ns, kind, attempt, rows, at)
        begun = self.blocked_since_ns = time.monotonic_ns()
        if self.synchronous:
            self._call(ticket, value, properties)
        else:
            self._call_async(ticket, value, properties)
        took, self.blocked_since_ns = time.monotonic_ns() - begun, 0
        self.blocked_ns += took if took > BLOCKED_NS else 0
        return took

    def _call_async(
        self, ticket: PendingSend, value: bytes, properties: dict[str, str] | None
    ) -> None:
        """Once; and again for as long as the client refuses because it is full, if the application
        waits."""
        send, key = self.producers[ticket.lane_index].send_async, self.keys[ticket.lane_index]
        answered = partial(self._answered, ticket)
        while True:
            self.refused = False
            try:
                send(value, answered, properties=properties, partition_key=key)
            except REFUSALS as error:
                self._finish(ticket, lay.FAIL, result_name(error), str(error))
            if not self.refused:
                return
            time.sleep(FULL_PAUSE_S)
            if self.control.stopped:
                return

    def _call(self, ticket: PendingSend, value: bytes, properties: dict[str, str] | None) -> None:
        try:
            found = self.producers[ticket.lane_index].send(
                value, properties=properties, partition_key=self.keys[ticket.lane_index]
            )
        except pulsar.PulsarException as error:
            self._answered(ticket, error, None)
        except REFUSALS as error:
            self._finish(ticket, lay.FAIL, result_name(error), str(error))
        else:
            self._answered(ticket, pulsar.Result.Ok, found)

    # -- outcomes; on the client's threads, or on ours when the client refused at once

    def _answered(self, ticket: PendingSend, result: object, message_id: Any) -> None:
        if result == pulsar.Result.Ok:
            self._stored(ticket, message_id)
            return
        name, in_call = result_name(result), threading.get_ident() == self.sender
        if name in FULL and self.wait_when_full and in_call:
            self.refused = True
            return
        note_death(self.session.report, result)
        self._finish(ticket, outcome_of(name, in_call=in_call and not self.synchronous), name, "")

    def _stored(self, ticket: PendingSend, found: Any) -> None:
        rows, at, now = ticket.rows, ticket.at, time.monotonic_ns()
        with self.lock:
            if self.capture:
                if rows[at + lay.OUTCOME_IN_DONE]:
                    rows[at + lay.LATE_OUTCOME_IN_DONE] = lay.OK
                    return
                lane = self.lanes[ticket.lane_index]
                partition = lane.partition if lane.partition >= 0 else max(0, found.partition())
                lay.SENDS_DONE.pack_into(
                    rows, at, now, found.entry_id(), found.ledger_id(), 0,
                    self.streams[lane.topic][partition], found.batch_index(), 0, 0, lay.OK,
                )  # fmt: skip
            self.ok += 1

    def _finish(self, ticket: PendingSend, outcome: int, name: str, text: str) -> None:
        again = partial(
            self.schedule_resend,
            ticket.lane_index,
            ticket.seq,
            ticket.due_ns,
            ticket.kind,
            ticket.attempt,
        )
        self.finish(ticket.rows, ticket.at, outcome, f"{name}: {text}" if text else name, again)
