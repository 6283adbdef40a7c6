"""An application under test: it reads orders and writes an invoice for each, with confluent-kafka.

COMMIT says when it commits the position of what it has read: `before` the invoices are written, or
`after`.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from confluent_kafka import Consumer, Producer

#: Orders that are processed between two commits, and how long the work on them takes.
BATCH = 500
WORK_S = 0.5


def main() -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["BOOTSTRAP"],
            "group.id": os.environ["GROUP"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
        }
    )
    producer = Producer({"bootstrap.servers": os.environ["BOOTSTRAP"], "linger.ms": 5})
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    consumer.subscribe([os.environ["IN"]])
    sys.stdout.write("started\n")
    sys.stdout.flush()
    while not stopping:
        orders = [m for m in consumer.consume(BATCH, timeout=0.02) if m.error() is None]
        if not orders:
            continue
        if os.environ["COMMIT"] == "before":
            consumer.commit(asynchronous=False)
        time.sleep(WORK_S)
        for order in orders:
            producer.produce(os.environ["OUT"], key=order.key(), value=order.value() + b" paid")
            producer.poll(0)
        if producer.flush(30.0):
            sys.exit("the invoices were not acknowledged within 30 s")
        if os.environ["COMMIT"] == "after":
            consumer.commit(asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    main()
