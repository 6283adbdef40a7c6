"""Apache Qpid Broker-J: queues, of which a message is gone when it was settled."""

from __future__ import annotations

from harness.systems import amqp091
from harness.systems.base import Request, System

_AMQP_0_9_1 = b"AMQP\x00\x00\x09\x01"
#: Of our own clusters, as compose/qpid/conf/config.json names it.
VIRTUAL_HOST = "brokerstorm"


class Qpid(System):
    """Qpid Broker-J: its settings, the names of queues, and what it can do."""

    name = "qpid"
    client = "qpid-jms-legacy"
    version = "9.2.1"
    audit = ("qpid-jms-legacy", "")
    topologies = ("node", "memory", "group")
    harness_libraries = ("pika",)
    allowed = {"receive": ("loop", "listener"), "settle": ("auto", "ack", "transacted", "none")}
    auto_settle = "auto"  # JMS has a mode of that name
    foreign = {
        (
            "topic",
            "replication",
        ): "the nodes of a group hold the same queues: set cluster.topology: group",
        (
            "consumer",
            "commit_every",
        ): "a consumer of qpid settles messages: see settle and per_transaction",
    }
    is_queue = True
    stored_overhead_bytes = 500
    log_stamps = ("{time} {level} ",)
    client_requests = amqp091.CLIENT_REQUESTS
    answer_kinds = amqp091.REQUESTS
    answer_errors = amqp091.ERRORS
    answer_acts = amqp091.ACTS
    dropped_answer_permits = "wait"  # AMQP has no time limit for a confirm
    unanswered = amqp091.UNANSWERED
    error_kinds = amqp091.ERROR_KINDS
    closings = amqp091.CLOSINGS
    file_kinds = {"log": ("*.jdb",), "metadata": ("*.json", "*je.properties")}
    bootstrap_form = "HOST:5672,HOST:5672/VIRTUALHOST"
    admin_form = "http://HOST:8080,http://HOST:8080"
    ask_id = "`curl -u USER ADMIN_URL/api/latest/virtualhost`, as id of the virtual host"
    mechanisms = ("user",)
    log_leader = r"HA-1010 : Role Changed"
    subscription = "queue"
    order = "none"

    def stored_copies(self, replication: int, topology: str) -> int:
        return 3 if topology == "group" else 1

    def request(self, port: str, ballast: int = 0) -> Request | None:
        return (_AMQP_0_9_1, 1) if port == "client" else None


SYSTEM = Qpid()
