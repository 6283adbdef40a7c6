"""Messages of kind PROBE through client endpoints, some of them read back; health of nodes without
HTTP."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pulsar

from harness.admin.failover import LOGS_HINT
from harness.admin.health import first_bytes
from harness.admin.probe import probe_payload
from harness.connections.security import Auth, Security
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Node
from harness.systems.pulsar import READ_ENTRY, REQUESTS
from harness.systems.pulsar.names import bundle_of, full_name
from harness.waiting import wait_while

_THREADS = 8
_OPERATION_S = 10
_CLOSE_S = 5.0


def what_to_probe(
    streams: Sequence[str], namespace: str, bundles: Sequence[str]
) -> tuple[list[str], set[str]]:
    """Full names of the topics that take a probe: every stream, and one topic in each bundle
    without any; and which of them are read back, one a bundle."""
    through: dict[str, str] = {}
    for address in (*streams, *fillers(namespace, bundles)):
        through.setdefault(bundle_of(address, bundles), address)
    return list(dict.fromkeys([*streams, *through.values()])), set(through.values())


def fillers(namespace: str, bundles: Sequence[str]) -> Iterator[str]:
    """Topics for probes, one in each bundle; by their names faults know that no client uses
    them."""
    left = set(bundles)
    number = 0
    while left:
        address = full_name(namespace, f"__probe-{number}")
        number += 1
        if (bundle := bundle_of(address, bundles)) in left:
            left.remove(bundle)
            yield address


def probe_topics(
    endpoints: str,
    security: Security,
    addresses: Sequence[str],
    *,
    read: Collection[str],
    run_tag: int,
    deadline: float,
) -> None:
    """Store a probe in each topic and read those in ``read`` again.

    Raises:
        EnvironmentNotReady: the topics that took or gave none by ``deadline`` (time.monotonic).
    """
    if not addresses:
        return
    client = pulsar.Client(
        f"{'pulsar+ssl' if security.tls else 'pulsar'}://{endpoints}",
        operation_timeout_seconds=_OPERATION_S,
        connection_timeout_ms=3000,
        # refusals are expected here
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
        **secured(security),
    )
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="probe")
    try:
        results = pool.map(
            lambda one: _probe(client, one, one in read, run_tag, deadline), addresses
        )
        failed = [f"{topic} ({why})" for topic, why in zip(addresses, results, strict=True) if why]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        closing = ThreadPoolExecutor(1, thread_name_prefix="probe-close")
        with suppress(Exception):
            closing.submit(client.close).result(_CLOSE_S)
        closing.shutdown(wait=False)
    if failed:
        raise EnvironmentNotReady(
            f"{len(failed)} topics took no probe message: {', '.join(failed[:5])}",
            hint=LOGS_HINT,
        )


def secured(security: Security) -> dict[str, Any]:
    """Arguments of the client."""
    tls, auth = security.tls, security.auth
    found: dict[str, Any] = {"authentication": _authentication(auth)} if auth else {}
    if tls:
        found |= {"tls_validate_hostname": tls.check_host_name}
        files = {"trust_certs": tls.ca, "certificate": tls.certificate, "private_key": tls.key}
        found |= {f"tls_{name}_file_path": str(path) for name, path in files.items() if path}
    return found


def _authentication(auth: Auth) -> pulsar.Authentication:
    if auth.mechanism == "token":
        return pulsar.AuthenticationToken(auth.secret.reveal())
    said = {
        "issuer_url": auth.token_url,
        "client_id": auth.client_id,
        "client_secret": auth.secret.reveal(),
    }
    wanted = {"scope": auth.scope, "audience": auth.audience}
    return pulsar.AuthenticationOauth2(
        json.dumps(said | {key: one for key, one in wanted.items() if one})
    )


def _probe(client: pulsar.Client, address: str, read: bool, run_tag: int, deadline: float) -> str:
    """Why it did not work; empty when it did. Tries again until the deadline: ownership may be
    moving."""

    def attempt() -> str:
        within_s = max(1.0, min(deadline - time.monotonic(), _OPERATION_S))
        try:
            _through(client, address, read, run_tag, within_s)
        except pulsar.PulsarException as error:
            return str(error).partition("Pulsar error: ")[2] or type(error).__name__
        return ""

    return wait_while(attempt, deadline - time.monotonic(), every_s=0.2)


def _through(
    client: pulsar.Client, address: str, read: bool, run_tag: int, within_s: float
) -> None:
    producer = client.create_producer(address, send_timeout_millis=int(within_s * 1000))
    try:
        at = producer.send(probe_payload(run_tag))
    finally:
        with suppress(pulsar.PulsarException):
            producer.close()
    if not read:
        return
    reader = client.create_reader(
        address, at, start_message_id_inclusive=True, receiver_queue_size=1
    )
    try:
        reader.read_next(timeout_millis=int(within_s * 1000))
    finally:
        with suppress(pulsar.PulsarException):
            reader.close()


_TIMEOUT_S = 1.0


def answers(node: Node) -> bool:
    """ZooKeeper says that it is in order; a bookie answers the question after a ledger that it
    lacks."""
    if "zookeeper" in node.roles:
        return first_bytes(node.client, REQUESTS["zookeeper"], 4, _TIMEOUT_S) == b"imok"
    head = first_bytes(node.client, REQUESTS["bookie"], 8, _TIMEOUT_S)
    # version, operation and flags: 1, 1 and 2 bytes
    return len(head) == 8 and head[5] == READ_ENTRY
