"""An application under test: it stores an invoice for each order in a database, and sends an event.

SEND says how. `dual-write`: it commits the invoices, and then sends their events. An order that
comes again has its invoice already, so nothing is done for it: if the program is killed in between,
the event is never sent. `outbox`: invoice and event are committed in one transaction, and a relay
sends the events and marks them when brokers have acknowledged them.

DATABASE is `sqlite:///PATH`, or a URL of PostgreSQL (its password: PGPASSWORD; needs psycopg).
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer

#: Orders and events that are processed together, and how long the producer collects events.
BATCH = 500
LINGER_MS = 500
ACKNOWLEDGED_S = 30.0
SQLITE = "sqlite:///"
TABLES = (
    "CREATE TABLE IF NOT EXISTS invoices (run VARCHAR(200), order_id VARCHAR(100),"
    " PRIMARY KEY (run, order_id))",
    "CREATE TABLE IF NOT EXISTS outbox (run VARCHAR(200), order_id VARCHAR(100),"
    " instance INTEGER, sent INTEGER)",
)


class Shop:
    """The tables of this run; each instance relays the events that it has written itself."""

    def __init__(self, url: str, run: str, instance: int) -> None:
        self._run = run
        self._instance = instance
        self._database: Any
        if url.startswith(SQLITE):
            self._database = sqlite3.connect(url.removeprefix(SQLITE), timeout=30)
            self._place = "?"
        else:
            import psycopg

            self._database = psycopg.connect(url)
            self._place = "%s"
            self._execute("SELECT pg_advisory_xact_lock(20261128)")  # instances create them at once
        for table in TABLES:
            self._execute(table)
        self._database.commit()

    def _execute(self, statement: str, *values: object) -> Any:
        return self._database.execute(statement.replace("?", self._place), values)

    def store(self, orders: list[str], *, with_events: bool) -> list[str]:
        """Store the invoices of some orders in one transaction; the orders that had none."""
        new = []
        for order in orders:
            added = self._execute(
                "INSERT INTO invoices VALUES (?, ?) ON CONFLICT DO NOTHING", self._run, order
            )
            if added.rowcount != 1:
                continue
            new.append(order)
            if with_events:
                row = (self._run, order, self._instance)
                self._execute("INSERT INTO outbox VALUES (?, ?, ?, 0)", *row)
        self._database.commit()
        return new

    def unsent(self) -> list[str]:
        """The orders whose events are not marked as sent."""
        found = self._execute(
            "SELECT order_id FROM outbox WHERE run = ? AND instance = ? AND sent = 0",
            *(self._run, self._instance),
        )
        orders = [row[0] for row in found.fetchmany(BATCH)]
        self._database.commit()
        return orders

    def mark(self, orders: list[str]) -> None:
        """Mark events as sent."""
        for order in orders:
            self._execute(
                "UPDATE outbox SET sent = 1 WHERE run = ? AND order_id = ?", self._run, order
            )
        self._database.commit()


def order_id(message: Message) -> str:
    """The id of an order; empty = it is a probe of brokerstorm, or no message."""
    if message.error() is not None or message.key() == b"brokerstorm-probe":
        return ""
    return str(json.loads(message.value())["order"]["id"])


def send(producer: Producer, orders: list[str]) -> None:
    """Send an event for each order, and wait until brokers have acknowledged them."""
    for order in orders:
        event = json.dumps({"event": "invoiced", "order": order})
        producer.produce(os.environ["OUT"], key=order, value=event)
    end = time.monotonic() + ACKNOWLEDGED_S
    while len(producer):  # `flush` would not let the producer collect them
        producer.poll(0.1)
        if time.monotonic() > end:
            sys.exit(f"the events were not acknowledged within {ACKNOWLEDGED_S:.0f} s")


def main() -> None:
    brokers = {"bootstrap.servers": os.environ["BOOTSTRAP"]}
    consumer = Consumer(
        {
            **brokers,
            "group.id": os.environ["GROUP"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
        }
    )
    producer = Producer({**brokers, "enable.idempotence": True, "linger.ms": LINGER_MS})
    has_outbox = os.environ["SEND"] == "outbox"
    shop = Shop(os.environ["DATABASE"], os.environ["GROUP"], int(os.environ["INSTANCE"]))
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    consumer.subscribe([os.environ["IN"]])
    sys.stdout.write("started\n")
    sys.stdout.flush()
    while not stopping:
        received = consumer.consume(BATCH, timeout=0.05)
        new = shop.store([id for m in received if (id := order_id(m))], with_events=has_outbox)
        if has_outbox:
            send(producer, sent := shop.unsent())
            shop.mark(sent)
        else:
            send(producer, new)
        if received:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:  # another instance has these orders now
                sys.stderr.write(f"{error}\n")
    consumer.close()


if __name__ == "__main__":
    main()
