"""pulsar-client: one process, one role (docs/worker-protocol.md)."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

# The C++ core logs to file descriptor 1, which is for the protocol alone: it gets the one of
# stderr, and the protocol a copy of the old one. Before the client is loaded.
_protocol = os.dup(1)
os.dup2(2, 1)
sys.stdout = os.fdopen(_protocol, "w", encoding="utf-8")

import pulsar  # noqa: E402
from consumer import ConsumerRole  # noqa: E402
from options import authentication, split  # noqa: E402
from producer import ProducerRole  # noqa: E402
from reader import ReaderRole  # noqa: E402
from worker_kit.failure import WorkerFailure  # noqa: E402
from worker_kit.process import Session, main  # noqa: E402


def connected(session: Session, call: Any) -> tuple[pulsar.Client, dict[str, Any]]:
    """The client, and the options of the call that makes the producer or consumer."""
    spec = session.spec
    of_client, of_call = split(spec.options, pulsar.Client.__init__, call)
    try:
        return pulsar.Client(spec.bootstrap, **of_client, **authentication(spec.options)), of_call
    except (pulsar.PulsarException, ValueError, TypeError) as error:
        raise WorkerFailure(
            f"pulsar-client refused to start: {type(error).__name__}: {error}"
        ) from error


def produce(session: Session) -> None:
    # A ticket and its callback are in no cycle, and walking the tickets of all sends in flight took
    # a tenth of the process.
    gc.disable()
    session.check_options(lambda: connected(session, pulsar.Client.create_producer))
    ProducerRole(session, *connected(session, pulsar.Client.create_producer)).run()


def consume(session: Session) -> None:
    is_reader = session.spec.part.get("reader")
    role = ReaderRole if is_reader else ConsumerRole
    call = pulsar.Client.create_reader if is_reader else pulsar.Client.subscribe
    session.check_options(lambda: connected(session, call))
    role(session, *connected(session, call)).run()


if __name__ == "__main__":
    code = main(
        {"producer": produce, "consumer": consume},
        {"client_version": pulsar.__version__},
        (pulsar.PulsarException,),
    )
    sys.stdout.flush()
    os._exit(code)  # what is captured is captured: the core's threads need not agree
