"""RabbitMQ on three nodes: queues, which remove acknowledged messages, and streams, which do
not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from harness.systems import amqp091
from harness.systems.base import Problem, Request, System, Texts

NODES: Final = 3
#: Of our own clusters, as compose/rabbitmq/conf/definitions.json names it.
VIRTUAL_HOST: Final = "brokerstorm"
#: Of our own clusters, as compose/rabbitmq/conf/rabbitmq.conf has it.
CLUSTER: Final = "brokerstorm"
TYPE: Final = "x-queue-type"
#: Since this version, classic queues have no mirrors, and quorum queues drop a message that was
#: given 20 times and not acknowledged, unless the limit is negative.
NO_MIRRORS: Final = (4, 0)
QUORUM: Final = "quorum"
CLASSIC: Final = "classic"
STREAM: Final = "stream"
#: Series -> the oldest one whose nodes it can replace (rabbitmq.com, "Upgrading RabbitMQ").
_UPGRADES_FROM: Final = {
    (3, 11): (3, 10),
    (3, 12): (3, 11),
    (3, 13): (3, 12),
    (4, 0): (3, 13),
    (4, 3): (4, 2),
}
DELIVERY_LIMIT: Final = "x-delivery-limit"
TTL: Final = "x-message-ttl"
#: Settings of a queue under which it gives messages up.
_GIVES_UP: Final = (TTL, DELIVERY_LIMIT)
#: Settings that say where messages go that a queue gives up, and how.
_EXCHANGE: Final = "x-dead-letter-exchange"
DEAD_LETTERS: Final = "x-dead-letter-routing-key"
STRATEGY: Final = "x-dead-letter-strategy"
AT_LEAST_ONCE: Final = "at-least-once"
_OVERFLOW: Final = "x-overflow"
_REJECTS: Final = "reject-publish"
#: Settings of a stream under which it drops its oldest messages.
_RETENTION: Final = ("x-max-age", "x-max-length-bytes")
BOUNDS: Final = ("x-max-length", "x-max-length-bytes", "x-max-in-memory-length")
#: What the harness itself says of a queue.
_OURS: Final[Mapping[str, str]] = {
    "x-quorum-initial-group-size": "is topics.replication: leave it out",
    "x-initial-cluster-size": "is topics.replication: leave it out",
    "x-queue-leader-locator": "is decided by brokerstorm, which spreads the leaders: leave it out",
    "x-queue-master-locator": "is decided by brokerstorm, which spreads the leaders: leave it out",
}
#: By type of queue, the setting that says how many nodes have a copy.
_SIZE: Final = {QUORUM: "x-quorum-initial-group-size", STREAM: "x-initial-cluster-size"}
#: The name of a node that asks how long a round trip takes; the answer is only that it is known.
_ASKS: Final = b"brokerstorm-request@127.0.0.1"


class RabbitMq(System):
    """RabbitMQ: its settings, the names of queues, and what it can do."""

    name = "rabbitmq"
    client = "amqp091-go"
    version = "3.10.8"
    audit = ("amqp091-go", "")
    harness_libraries = ("pika",)
    allowed = {"receive": ("loop", "listener"), "settle": ("auto", "ack", "none")}
    foreign = {
        (
            "consumer",
            "commit_every",
        ): "a consumer of rabbitmq acknowledges messages: see settle",
        ("consumer", "per_transaction"): "transactions do not cover quorum queues; leave it out",
        ("consumer", "rollback_every"): "transactions do not cover quorum queues; leave it out",
    }
    is_queue = True
    copies = ("replica", "replicas")
    stored_overhead_bytes = 120
    config_form = "properties"
    config_left_aside = (  # who connects and how, and where other servers are
        r"listeners\.|management\.|ssl_options\.|auth_|default_(user|pass|permissions|vhost)|"
        r"loopback_users|load_definitions|definitions\.|cluster_formation\.|cluster_name$|log\."
    )
    file_kinds = {  # of the log of Raft, of quorum queues and of classic ones, below mnesia/NODE
        "snapshot": ("*/snapshots/*",),
        "log": ("*.wal", "*.segment", "*.rdq"),
        "index": ("*.idx", "*.qi"),
        "metadata": ("*/config", "*.dets", "*.DCD", "*.DCL", "*.DAT"),
    }
    log_stamps = ("{time} [{level}] ",)
    client_requests = amqp091.CLIENT_REQUESTS
    answer_kinds = amqp091.REQUESTS
    answer_errors = amqp091.ERRORS
    answer_acts = amqp091.ACTS
    dropped_answer_permits = "wait"  # AMQP has no time limit for a confirm
    unanswered = amqp091.UNANSWERED
    error_kinds = amqp091.ERROR_KINDS
    closings = amqp091.CLOSINGS
    log_leader = r"queue '{stream}' in vhost '[^']*': (detected a new leader|\w+ -> leader)"
    ask_id = "`rabbitmqctl cluster_status`, as cluster name"
    mechanisms = ("user",)
    has_controller = False
    has_cookie = True
    plain_ports = ("peer",)
    bootstrap_form = "HOST:5672,HOST:5672/VIRTUALHOST"
    admin_form = "HOST:25672,HOST:25672"
    subscription = "queue"
    order = "none"

    def topic_problems(self, replication: int, config: Texts) -> Iterator[Problem]:
        kind = config.get(TYPE, QUORUM)
        if kind not in (QUORUM, CLASSIC, STREAM):
            yield TYPE, f"must be {QUORUM}, {CLASSIC} or {STREAM}"
        has_dead_letters = bool(self.moves_to(config))
        for key in config:
            if key == "x-expires":
                yield key, "deletes the queue: loss could not be detected; leave it out"
            elif key in _GIVES_UP and not has_dead_letters:
                yield key, f"drops messages: set {_EXCHANGE} and {DEAD_LETTERS}, too"
            elif key in _OURS:
                yield key, _OURS[key]
        yield from _dead_letter_problems(kind, config)
        is_bounded = any(key in config for key in BOUNDS) and kind != STREAM
        if is_bounded and not has_dead_letters and config.get(_OVERFLOW) != _REJECTS:
            yield _OVERFLOW, f"must be {_REJECTS}: a queue with a bound drops messages else"
        if kind == STREAM:
            yield from _stream_problems(replication, config)
        if replication > NODES:
            yield "x-quorum-initial-group-size", f"is topics.replication: at most {NODES}"

    def version_problems(self, version: str, replication: int, config: Texts) -> Iterator[Problem]:
        if config.get(TYPE) == CLASSIC and replication > 1 and series(version) >= NO_MIRRORS:
            yield TYPE, f"RabbitMQ {version} has no mirrored queues: set topics.replication to 1"

    def upgrade_problem(self, before: str, to: str) -> str:
        was, now = series(before), series(to)
        if now < was:
            return "nodes of RabbitMQ cannot go back to an older series"
        oldest = max(
            (needed for since, needed in _UPGRADES_FROM.items() if since <= now), default=was
        )
        if was >= oldest:
            return ""
        step = ".".join(map(str, oldest))
        return f"RabbitMQ {to} replaces nodes of {step} and newer only: upgrade {before} to {step} first"

    def topic_config(self, config: Texts, replication: int, broker_config: Texts) -> dict[str, str]:
        """Return what a queue is declared with: a quorum queue unless the settings say
        otherwise."""
        kind = config.get(TYPE, QUORUM)
        key = _SIZE.get(kind)
        return {TYPE: kind, **({key: str(replication)} if key else {}), **config}

    def moves_to(self, topic_config: Texts) -> str:
        return topic_config.get(DEAD_LETTERS, "") if _EXCHANGE in topic_config else ""

    def removes_settled(self, topic_config: Texts) -> bool:
        """Return whether the topic is a queue: a stream keeps what its consumers read."""
        return topic_config.get(TYPE, QUORUM) != STREAM

    def replication(self, asked: int, topology: str, broker_config: Texts) -> int:
        return asked

    def request(self, port: str, ballast: int = 0) -> Request | None:
        """The greeting of a client, or that of another node: both are answered at once."""
        if port == "client":
            return b"AMQP\x00\x00\x09\x01", 1
        if port == "stream":  # a client that states no properties
            return bytes.fromhex("0000000c 0011 0001 00000001 00000000"), 1
        body = b"N" + (0x4_0307_0F94).to_bytes(8, "big") + (1).to_bytes(4, "big")
        body += len(_ASKS).to_bytes(2, "big") + _ASKS
        return len(body).to_bytes(2, "big") + body, 1


def series(version: str) -> tuple[int, ...]:
    """``"4.0.5"`` -> ``(4, 0)``."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _dead_letter_problems(kind: str, config: Texts) -> Iterator[Problem]:
    """Yield problems of settings about dead letters: these must be in a queue that is read."""
    strategy, overflow = config.get(STRATEGY, ""), config.get(_OVERFLOW, "")
    if overflow == "reject-publish-dlx":
        yield _OVERFLOW, f"refuses a message and keeps it all the same: must be {_REJECTS}"
    asked = [key for key in (_EXCHANGE, DEAD_LETTERS, STRATEGY) if key in config]
    if not asked:
        return
    if kind == STREAM:
        yield asked[0], "has no meaning for a stream: leave it out"
    if config.get(_EXCHANGE) != "":
        yield (
            _EXCHANGE,
            f'must be "", the exchange that moves messages to the queue in {DEAD_LETTERS}',
        )
    if not config.get(DEAD_LETTERS):
        yield DEAD_LETTERS, "must be the queue of another topic, as dead-0 for a topic dead"
    if strategy not in ("", "at-most-once", AT_LEAST_ONCE):
        yield STRATEGY, f"must be at-most-once or {AT_LEAST_ONCE}"
    if strategy == AT_LEAST_ONCE and (kind != QUORUM or overflow != _REJECTS):
        yield (
            STRATEGY,
            f"requires a quorum queue and {_OVERFLOW}: {_REJECTS}; brokers use at-most-once else",
        )


def _stream_problems(replication: int, config: Texts) -> Iterator[Problem]:
    """Yield problems of a stream: all its messages must stay, and each node must have a copy, since
    a node gives consumers only what it has itself."""
    for key in _RETENTION:
        if key in config:
            yield key, "drops the oldest messages: loss could not be detected; leave it out"
    if replication < NODES:
        yield "x-initial-cluster-size", f"is topics.replication: must be {NODES} for a stream"


SYSTEM = RabbitMq()
