"""Reads orders and writes an invoice for each: the program that runs in production."""

from __future__ import annotations

import os
import signal
import sys

from kafka import KafkaConsumer, KafkaProducer


def main() -> None:
    brokers = os.environ["BOOTSTRAP"].split(",")
    consumer = KafkaConsumer(
        os.environ["IN"],
        bootstrap_servers=brokers,
        group_id=os.environ["GROUP"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
    )
    producer = KafkaProducer(bootstrap_servers=brokers, acks="all", linger_ms=5)
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    sys.stdout.write("started\n")
    sys.stdout.flush()
    while not stopping:
        orders = [order for part in consumer.poll(timeout_ms=200).values() for order in part]
        if not orders:
            continue
        sent = [producer.send(os.environ["OUT"], value=order.value + b" paid") for order in orders]
        for invoice in sent:
            invoice.get(timeout=30)
        consumer.commit()  # after the invoices are stored
    consumer.close()


if __name__ == "__main__":
    main()
