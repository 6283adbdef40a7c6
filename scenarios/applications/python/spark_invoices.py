"""An application under test: Structured Streaming of Spark writes an invoice for each order.

CHECKPOINT says where the query keeps its position: `kept` in a folder that the next process finds,
or `lost`: in a new folder at each start, as in a container without a volume. FROM is
`startingOffsets`: where a query without a checkpoint begins.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

#: Between two looks at the progress of the query.
LOOK_S = 0.2


def session() -> SparkSession:
    """Spark in this process, with the connector of Kafka from JARS, which is a class path."""
    os.environ["JAVA_HOME"] = str(Path(os.environ["JAVA"]).resolve().parents[1])
    jars = sorted(Path(os.environ["JARS"]).parent.glob("*.jar"))
    settings = {
        "spark.jars": ",".join(map(str, jars)),  # Spark's own come first
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "600m",
        # A short life on few cores: most of it is starting.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.noDataProgressEventInterval": "1000",
    }
    builder = SparkSession.builder.master("local[2]").appName("invoices")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    brokers = {"kafka.bootstrap.servers": os.environ["BOOTSTRAP"]}
    folder = Path(os.environ["FOLDER"])
    if os.environ["CHECKPOINT"] == "kept":
        checkpoint = folder / "checkpoint"
    else:
        checkpoint = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=folder))
    spark = session()
    orders = (
        spark.readStream.format("kafka")
        .options(**brokers, subscribe=os.environ["IN"], startingOffsets=os.environ["FROM"])
        .load()
    )
    paid = F.concat(F.col("value"), F.lit(bytearray(b" paid"))).alias("value")
    query = (
        orders.select("key", paid)
        .writeStream.format("kafka")
        .options(**brokers, topic=os.environ["OUT"], checkpointLocation=str(checkpoint))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    # Spark keeps positions in its checkpoint only; the group shows others how far the query is.
    group = {"bootstrap.servers": os.environ["BOOTSTRAP"], "group.id": os.environ["GROUP"]}
    shown = Consumer(group)
    is_started = False
    ends = None
    while not stopping and query.isActive:
        if not is_started and (checkpoint / "sources" / "0" / "0").exists():
            is_started = True
            sys.stdout.write("started\n")
            sys.stdout.flush()
        progress = query.lastProgress
        if progress and progress["sources"][0]["endOffset"] not in (None, ends):
            ends = progress["sources"][0]["endOffset"]
            show_positions(shown, ends)
        time.sleep(LOOK_S)
    failed = query.exception()
    query.stop()
    spark.stop()
    if failed:
        sys.exit(str(failed))


def show_positions(shown: Consumer, ends: str | dict[str, dict[str, int]]) -> None:
    """Commit the end of a batch whose invoices are written."""
    found = json.loads(ends) if isinstance(ends, str) else ends
    positions = [
        TopicPartition(topic, int(partition), offset)
        for topic, partitions in found.items()
        for partition, offset in partitions.items()
    ]
    shown.commit(offsets=positions, asynchronous=False)


if __name__ == "__main__":
    main()
