"""NATS JetStream: subjects kept in streams, each a Raft group, with consumers that the servers
keep."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from harness.systems.base import Problem, Request, System, Texts

NODES: Final = 3
#: Settings of a stream under which it drops messages, and the values that do not.
_KEEPS: Final[Mapping[str, tuple[str, ...]]] = {
    "retention": ("limits", "workqueue", "interest"),
    "max_age": ("0",),
    "max_msgs": ("-1", "0"),
    "max_bytes": ("-1", "0"),
    "max_msgs_per_subject": ("-1", "0"),
    "no_ack": ("false",),
    "sealed": ("false",),
}
#: Values of ``retention`` with which an acknowledged message is removed.
_QUEUES: Final = ("workqueue", "interest")
#: What the harness itself says of a stream.
_OURS: Final = ("name", "subjects", "num_replicas", "republish", "subject_transform")
#: Settings that fill a stream from others.
_COPIES: Final = ("mirror", "sources")
_COPIES_WHY: Final = (
    "its messages would have other sequences than their acknowledgements name, and no producer of "
    "the run would send them; declare the stream that it copies, with a consumer of its own"
)
#: Of our own clusters, as compose/nats/conf/nats.conf names them.
CLUSTER: Final = "brokerstorm"
PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"
_MB: Final = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}


#: Kinds of requests have numbers of the network proxy: the protocol has one verb for all of them.
_REQUESTS: Final = {
    "PUB": 1,
    "ACK": 2,
    "CONSUMER.MSG.NEXT": 3,
    "CONSUMER.CREATE": 4,
    "CONSUMER.DURABLE.CREATE": 5,
    "CONSUMER.INFO": 6,
    "CONSUMER.DELETE": 7,
    "STREAM.CREATE": 8,
    "STREAM.INFO": 9,
    "STREAM.NAMES": 10,
    "STREAM.PURGE": 11,
    "STREAM.DELETE": 12,
    "STREAM.MSG.GET": 13,
    "DIRECT.GET": 14,
}
#: Errors of JetStream (server/errors.json), and statuses, whose numbers are the network proxy's.
_ERRORS: Final = {
    "JSAccountResourcesExceededErr": 10002,
    "JSBadRequestErr": 10003,
    "JSClusterIncompleteErr": 10004,
    "JSClusterNotAvailErr": 10008,
    "JSClusterNotLeaderErr": 10009,
    "JSConsumerNotFoundErr": 10014,
    "JSInsufficientResourcesErr": 10023,
    "JSMemoryResourcesExceededErr": 10028,
    "JSNotEnabledForAccountErr": 10039,
    "JSRaftGeneralErrF": 10041,
    "JSStorageResourcesExceededErr": 10047,
    "JSStreamGeneralErrorF": 10051,
    "JSStreamMessageExceedsMaximumErr": 10054,
    "JSStreamNotFoundErr": 10059,
    "JSStreamNotMatchErr": 10060,
    "JSStreamWrongLastMsgIDErrF": 10070,
    "JSStreamWrongLastSequenceErrF": 10071,
    "JSNotEnabledErr": 10076,
    "JSStreamStoreFailedF": 10077,
    "JSStreamSealedErr": 10109,
    "JSStreamOfflineErr": 10118,
    "JSConsumerOfflineErr": 10119,
    "JSStreamTooManyRequests": 10167,
    "503 No Responders": 1,
    "404 No Messages": 2,
    "408 Request Timeout": 3,
    "409 Consumer Deleted": 4,
    "409 Leadership Change": 5,
    "409 Server Shutdown": 6,
    "409 Exceeded MaxWaiting": 7,
    "400 Bad Request": 8,
}
#: JetStream's errors would be taken for a message, or for the confirmation of an acknowledgement;
#: only 503 answers every request.
_ERROR_KINDS: Final = {
    name: tuple(kind for kind in _REQUESTS if kind not in ("ACK", "CONSUMER.MSG.NEXT"))
    if number > 8
    else ("CONSUMER.MSG.NEXT",)
    for name, number in _ERRORS.items()
    if name != "503 No Responders"
}
#: What a server says before it closes a connection; the numbers are the network proxy's.
_CLOSINGS: Final = {
    "Slow Consumer": 1,
    "Stale Connection": 2,
    "maximum connections exceeded": 3,
    "Authorization Violation": 4,
    "lame duck": 5,
}


class Nats(System):
    """NATS with JetStream: its settings, the names of topics, and what it can do."""

    name = "nats"
    client = "nats.go"
    version = "2.15.2"
    audit = ("nats.go", "")
    partitions = 3
    allowed = {"receive": ("loop",), "settle": ("auto", "ack", "none")}
    foreign = {
        ("consumer", "commit_every"): "a consumer of nats acknowledges messages: see settle",
        ("consumer", "per_transaction"): "there are no transactions; leave it out",
        ("consumer", "rollback_every"): "there are no transactions; leave it out",
    }
    config_form = "nested"
    config_left_aside = (  # blocks but JetStream's, and what lies in a block of it
        r"(?!jetstream\.)[^.]+\.|jetstream\.[^.]+\.|include$|\$|authorization|accounts$|"
        r"system_account$|pid_file$|ports_file_dir$|operator$|resolver|trusted_keys$|profiling?_port$|prof_port$"
    )
    copies = ("replica", "replicas")
    stored_overhead_bytes = 60
    file_kinds = {  # of streams and of their Raft groups (server/filestore.go, raft.go)
        "snapshot": ("*/snapshots/*",),
        "log": ("*.blk",),
        "index": ("*/index.db", "*/o.dat"),
        "metadata": ("*/meta.inf", "*/meta.sum", "*.idx"),
    }
    has_offsets = True
    orders_by_connection = True
    brokers_time_acks = True
    reads_replicas = True
    runs_applications = True
    first_position = 1  # sequences of a stream
    size_setting = "max_msg_size"
    log_stamps = ("[{*}] {time} [{level}] ",)
    client_requests = {
        "PUB": ("JSInsufficientResourcesErr", "JSClusterNotAvailErr", "503 No Responders"),
        "ACK": (),
        "CONSUMER.MSG.NEXT": ("409 Leadership Change", "503 No Responders"),
        "CONSUMER.INFO": ("JSClusterNotAvailErr",),
    }
    answer_kinds = _REQUESTS
    answer_errors = _ERRORS
    answer_acts = ("error", "before", "drop", "delay", "close", "detach", "twice", "reorder")
    error_kinds = _ERROR_KINDS
    closings = _CLOSINGS
    answer_permits = {  # a client may take these for the end of what it does
        "409 Consumer Deleted": "give-up",
        "400 Bad Request": "give-up",
        "JSConsumerNotFoundErr": "give-up",
        "JSStreamNotFoundErr": "give-up",
        "Slow Consumer": "give-up",
        "Authorization Violation": "give-up",
    }
    log_leader = r"new stream leader for '\S+ > {stream}'"
    bootstrap_form = "nats://HOST:4222,HOST:4222"
    admin_form = "http://HOST:8222,http://HOST:8222"
    ask_id = "`nats server info`, as cluster"
    mechanisms = ("user",)
    subscription = "shared"
    order = "none"

    def topic_problems(self, replication: int, config: Texts) -> Iterator[Problem]:
        for key, value in config.items():
            allowed = _KEEPS.get(key)
            if allowed and value.lower() not in allowed:
                yield key, f"must be {' or '.join(allowed)}: the audit needs all that was stored"
            if key in _COPIES:
                yield key, _COPIES_WHY
            elif key in _OURS:
                yield key, "is set by brokerstorm itself: leave it out"
        if config.get("discard", "old") not in ("old", "new"):
            yield "discard", "must be old or new"
        if replication > NODES:
            yield "num_replicas", f"is topics.replication: at most {NODES}"

    def removes_settled(self, topic_config: Texts) -> bool:
        return topic_config.get("retention", "limits") in _QUEUES

    def forgets_unread(self, topic_config: Texts) -> bool:
        return topic_config.get("retention") == "interest"

    def replication(self, asked: int, topology: str, broker_config: Texts) -> int:
        return asked

    def size_limit(self, topic_config: Texts, broker_config: Texts) -> int:
        """``max_payload`` of the servers, and ``max_msg_size`` of a stream."""
        limits = [
            _bytes(broker_config.get("max_payload", "1MB")),
            _bytes(topic_config.get(self.size_setting, "0")),
        ]
        return min((each for each in limits if each > 0), default=0)

    def name_key(self, topic: str) -> str:
        return topic.replace(".", "_")

    def address(self, topic: str, run_tag: int, prefix: str = "") -> str:
        """Return the prefix of its streams' names: ``orders`` for ``orders-0``, which keeps the
        subject of that name. A stream's name has no dots.
        """
        return super().address(self.name_key(topic), run_tag, prefix)

    def log_names(self, address: str, partition: int, partitions: int) -> tuple[str, ...]:
        return (f"{address}-{partition}",)

    def request(self, port: str, ballast: int = 0) -> Request | None:
        """A ping: servers send lines of their own before they answer it. Routes ask for a password:
        see the assembly."""
        if port != "client":
            return None
        before = (
            b"PUB brokerstorm.ballast %d\r\n%b\r\n" % (ballast, bytes(ballast)) if ballast else b""
        )
        return before + PING, PONG


def native(value: str) -> Any:
    """A setting of a stream as its JSON: a number, a truth value, or text."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(-?\d+)\s*([kmg]?)i?b?", text.strip().lower())
    return int(found[1]) * _MB[found[2]] if found else 0


SYSTEM = Nats()
