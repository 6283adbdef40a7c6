"""An application under test: it reads orders from JetStream and publishes an invoice for each, with
nats-py.

ACK says when it acknowledges an order: `before` the invoice is published, or `after`. With ID=true,
an invoice has the message id of its order, so that servers store it once within the stream's
duplicate window.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from itertools import count

import nats
from nats.aio.msg import Msg
from nats.errors import Error
from nats.errors import TimeoutError as NatsTimeout
from nats.js import JetStreamContext

#: Orders that are processed together, and how long the work on them takes.
BATCH = 100
WORK_S = 0.2
#: How long an order stays with an instance that does not acknowledge it.
ACK_WAIT_S = 3.0
PUBLISH_S = 3.0
RETRY_S = 0.2


async def publish(js: JetStreamContext, partition: int, order: Msg) -> None:
    """Publish the invoice of an order until a server has acknowledged it."""
    headers = {}
    if os.environ["ID"] == "true":
        headers["Nats-Msg-Id"] = f"{order.metadata.stream}-{order.metadata.sequence.stream}"
    for attempt in count(1):
        try:
            await js.publish(
                f"{os.environ['OUT']}-{partition}",
                order.data + b" paid",
                headers=headers or None,
                timeout=PUBLISH_S,
            )
            return
        except (Error, OSError) as error:
            sys.stderr.write(f"attempt {attempt} of an invoice: {error!r}\n")
            await asyncio.sleep(RETRY_S)


async def serve(js: JetStreamContext, partition: int, stopping: asyncio.Event) -> None:
    """Process the orders of one stream."""
    stream, group = f"{os.environ['IN']}-{partition}", os.environ["GROUP"]
    config = nats.js.api.ConsumerConfig(ack_wait=ACK_WAIT_S)
    orders = await js.pull_subscribe(stream, durable=group, stream=stream, config=config)
    while not stopping.is_set():
        try:
            batch = await orders.fetch(BATCH, timeout=0.5)
        except NatsTimeout:
            continue
        except (Error, OSError) as error:
            sys.stderr.write(f"no orders: {error!r}\n")
            await asyncio.sleep(RETRY_S)
            continue
        if os.environ["ACK"] == "before":
            await settle(batch)
        await asyncio.sleep(WORK_S)
        await asyncio.gather(*(publish(js, partition, order) for order in batch))
        if os.environ["ACK"] == "after":
            await settle(batch)


async def settle(batch: list[Msg]) -> None:
    """Acknowledge orders; one whose acknowledgement gets lost comes again."""
    for order in batch:
        try:
            await order.ack()
        except (Error, OSError) as error:
            sys.stderr.write(f"not acknowledged: {error!r}\n")


async def say(error: Exception) -> None:
    sys.stderr.write(f"{error!r}\n")


async def main() -> None:
    servers = os.environ["BOOTSTRAP"].split(",")
    client = await nats.connect(servers=servers, max_reconnect_attempts=-1, error_cb=say)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    js = client.jetstream(timeout=5.0)
    tasks = [serve(js, number, stopping) for number in range(int(os.environ["PARTITIONS"]))]
    sys.stdout.write("started\n")
    sys.stdout.flush()
    await asyncio.gather(*tasks)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
