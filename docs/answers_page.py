"""docs/explanation/client-answers.md: what clients did when brokers answered with errors, from the
results file of the suite `answers`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from docs.markdown import MADE, paragraph
from experiments.client_answers import ClientAnswer, read_answers
from harness.systems import system_of

#: In the order of the page: producers, transactions, consumers.
_REQUESTS: Final = (
    *("Produce", "InitProducerId", "Metadata", "AddPartitionsToTxn", "EndTxn"),
    *("Fetch", "OffsetCommit", "Heartbeat", "JoinGroup"),
)
_HEAD: Final = (
    "This page is for people who choose or maintain a client library. It has results for {systems}. "
    "It shows what happened to each message when every broker worked and answered one kind of "
    "request with one error. The suite `answers` measures it: `./brokerstorm suite run answers`, "
    "and then `python -m bench.client_answers` adds the results of the newest run of the suite."
)
_SCENARIO: Final = (
    "Each client of Kafka has its own topic and group. All of them run at the same time, at 20 "
    "messages a second each (in some rounds sarama was alone). From one second after the load "
    "began, every request of the kind is answered with the error for four seconds, and the broker "
    "does not get it, unless "
    "`scenarios/suites/answers.yaml` says otherwise. In some rounds, one error followed another: "
    "then a row is about the messages from its error to the next one, and `never` means not before "
    "the next one. Producers wait for all replicas. They are idempotent, except for kafka-go, which "
    "cannot be."
)
_ONE_BY_ONE: Final = (
    "These errors followed each other in one round, for all of its clients at the same time. Each "
    "row is about the messages from its error to the next one: for two seconds, every request of "
    "the kind is answered with the error, or the connection is closed at the first one. `never` "
    "means not before the next error. A client that died has no later rows."
)
_COLUMNS: Final = (
    "`done`, next to an error: the broker had carried the request out. `answer lost`: it had, and "
    "the connection was closed without an answer. "
    "`failed`: the client reported that the message is not stored. `unknown`: it could not say. "
    "`lost`: it was acknowledged and is not in the log. `twice` and `late`: it is in the log "
    "twice, or after a later message. `skipped` and `again`: it was never given to the group, or "
    "more than once. `back`: time from the end of the fault to the first message that was "
    "acknowledged or delivered. `died`: the client declared itself dead or its process ended. "
    "`hung`: calls without an answer after twelve seconds, or a consumer without messages for "
    "eight. `broke`: [classes of anomalies](anomalies.md) that its settings promise not to happen; "
    "`?` was not recorded. An empty cell is 0."
)


def answers_page() -> str:
    """The page as Markdown: a table for each request and error of Kafka, and one of all errors for
    the producers and the consumers of each other system; a row for each client."""
    every = read_answers()
    found = sorted(
        (each for each in every if each.system == "kafka"),
        key=lambda each: (_REQUESTS.index(each.request), each.error),
    )
    lines = ["# What clients do with errors", "", MADE]
    systems = [_SYSTEMS[key] for key in sorted({each.system for each in every})]
    for text in (_HEAD.format(systems=", ".join(systems)), _SCENARIO, _COLUMNS):
        lines += ["", *paragraph(text)]
    lines += ["", *(_gave_up(every) if every else ["Nothing was measured yet."])]
    for request, of_request in groupby(found, key=lambda each: each.request):
        lines += ["", f"## {request}"]
        for error, rows in groupby(of_request, key=lambda each: each.error):
            lines += ["", f"### {request}: {error}", "", *_table(error, list(rows))]
    others = sorted((each for each in every if each.system != "kafka"), key=_system_and_role)
    for system, of_system in groupby(others, key=lambda each: each.system):
        of_system = list(of_system)
        days = " and ".join(sorted({f"{each.day}" for each in of_system}))
        text = f"{_ONE_BY_ONE} Measured on {days}."
        lines += ["", f"## {_SYSTEMS[system]}", "", *paragraph(text)]
        for role, rows in groupby(of_system, key=lambda each: each.role):
            lines += ["", f"### {_SYSTEMS[system]}: {role}s", ""]
            lines += _rows(list(rows), ("request", "error"))
    return "\n".join(lines) + "\n"


def _gave_up(found: Iterable[ClientAnswer]) -> list[str]:
    """Errors after which a client never continued or broke a promise, by client."""
    lines = ["## Clients that did not continue or broke a promise", ""]
    worst = sorted(
        (
            each
            for each in found
            if each.died
            or each.broke
            or (not _waits_for_members(each) and (each.hung or each.back_s is None))
        ),
        key=lambda each: each.client,
    )
    if not worst:
        return [*lines, "Every client continued after every error, and kept its promises."]
    lines += [
        "| client | version | request | error | what happened | why |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {each.client} | {each.version} | {each.request} | {each.error} | {_end(each)} | {_why(each)} |"
        for each in worst
    ]
    return [*lines, *(line for text in _CAUSES.values() for line in ("", *paragraph(text)))]


#: Client (empty: every client), request and error (empty: every error) -> the mark of its cause.
_WHY: Final = {
    ("aiokafka", "Produce", ""): "1",
    ("kafka-python", "Produce", ""): "2",
    ("confluent-kafka", "Produce", ""): "3",
    ("kafkajs", "Produce", ""): "6",
    ("sarama", "Produce", ""): "7",
    ("kafkajs", "Fetch", ""): "4",
    ("kafkajs", "Heartbeat", ""): "4",
    ("confluent-kafka", "Heartbeat", "FENCED_INSTANCE_ID"): "5",
    ("franz-go", "Heartbeat", "FENCED_INSTANCE_ID"): "5",
    ("kafka-clients", "Heartbeat", "FENCED_INSTANCE_ID"): "5",
    ("kafkajs", "Heartbeat", "FENCED_INSTANCE_ID"): "5",
    ("", "InitProducerId", "CLUSTER_AUTHORIZATION_FAILED"): "8",
    ("", "AddPartitionsToTxn", "INVALID_TXN_STATE"): "8",
    ("", "AddPartitionsToTxn", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"): "8",
    ("", "EndTxn", "INVALID_PRODUCER_EPOCH"): "8",
    ("", "EndTxn", "TRANSACTION_ABORTABLE"): "11",
    ("", "EndTxn", "UNKNOWN_SERVER_ERROR"): "12",
    ("pulsar-client-go", "SEND", "TopicTerminatedError"): "9",
    ("pulsar-client-java", "SEND", "TopicTerminatedError"): "10",
}
_CAUSES: Final = {
    "1": (
        "1: aiokafka does not take back the sequence numbers of a batch that failed, so brokers "
        "refuse every later batch as out of order "
        "([aiokafka#1017](https://github.com/aio-libs/aiokafka/issues/1017))."
    ),
    "2": (
        "2: An idempotent producer of kafka-python treats every error that is not retriable as "
        "fatal (`classify_batch_error` in its transaction_manager.py). No report of it was found."
    ),
    "3": (
        "3: A fatal error of an idempotent producer, as librdkafka documents "
        "([librdkafka#3584](https://github.com/confluentinc/librdkafka/issues/3584))."
    ),
    "4": (
        "4: A consumer of kafkajs stops at an error that is not retriable, and an application has "
        "to restart it ([kafkajs#1443](https://github.com/tulios/kafkajs/issues/1443))."
    ),
    "5": (
        "5: Another member has the id of this one, so this one must stop, as KIP-345 requires "
        "([librdkafka#2635](https://github.com/confluentinc/librdkafka/pull/2635))."
    ),
    "6": (
        "6: kafkajs sends a broker one request of an idempotent producer at a time. Every call "
        "that was refused waits for its turn again, longer each time (`sendMessages.js`)."
    ),
    "7": (
        "7: sarama sends later batches of a partition before one that it retries. A broker "
        "mistakes some of them for repeats, and acknowledges them without storing them "
        "([sarama#3422](https://github.com/IBM/sarama/pull/3422), fixed in v1.48.0)."
    ),
    "8": (
        "8: After this error an application has to close its producer and create another one "
        "(KIP-1050). aiokafka raises AssertionError if the application aborts the transaction first."
    ),
    "9": (
        "9: The connection forgets the producer and does not tell it "
        "([pulsar-client-go#587](https://github.com/apache/pulsar-client-go/issues/587))."
    ),
    "10": "10: The producer ends, and every call gets this error: a terminated topic stays so.",
    "11": (
        "11: The client does not know this error, which asks the application to abort (KIP-1050). "
        "It treats the error as fatal; sarama shows it as `Unknown error, how did this happen? "
        "Error code = 120`. No report of it was found."
    ),
    "12": (
        "12: The client treats a transaction whose end is not known as fatal: the application has "
        "to create another producer. confluent-kafka and franz-go let the application abort."
    ),
}


def _why(each: ClientAnswer) -> str:
    about = each.request, each.error
    for key in ((each.client, *about), (each.client, each.request, ""), ("", *about)):
        if key in _WHY:
            return _WHY[key]
    return ""


def _waits_for_members(each: ClientAnswer) -> bool:
    """Whether the coordinator may have waited for members that had joined again under other ids:
    in cells of JoinGroup, a false error of a heartbeat lets each member join again."""
    return each.request == "JoinGroup" or _permits(each.error) == "rejoin"


def _permits(error: str) -> str:
    return system_of("kafka").answer_permits.get(error, "")


def _end(each: ClientAnswer) -> str:
    if each.died:
        return "died"
    what = "messages" if each.role == "producer" else "stalls"
    hung = f"{each.hung} {what} hung" if each.hung else ""
    silent = "no message after the fault" if each.back_s is None else ""
    others = [name for name in each.broke or () if name not in ("hang", "stall")]
    broke = f"broke {', '.join(others)}" if others else ""
    return ", ".join(text for text in (hung, silent, broke) if text)


def _table(error: str, rows: list[ClientAnswer]) -> list[str]:
    kind = "A retriable error."
    if permits := _permits(error):
        kind = _KINDS[permits]
    if _waits_for_members(rows[0]):
        kind = _WAITS
    return [*paragraph(kind), "", *_rows(rows)]


def _rows(rows: list[ClientAnswer], about: tuple[str, ...] = ()) -> list[str]:
    """A table of rows of one role, with ``about`` as its first columns."""
    names: tuple[str, ...] = ("failed", "unknown", "lost", "twice", "late")
    if rows[0].role == "consumer":
        names = ("skipped", "again")
    said = "acknowledged" if rows[0].role == "producer" else "delivered"
    if about:  # a page is 120 columns wide, and the text above has the days
        said = "acked" if rows[0].role == "producer" else "given"
    head = [*about, "client", "version", said, *names, "hung", "back", "broke"]
    lines = [
        f"| {' | '.join(head if about else [*head, 'measured'])} |",
        f"|{'---|' * (len(about) + 2)}{'---:|' * (len(names) + 3)}---|{'' if about else '---|'}",
    ]
    for each in rows:
        back = "died" if each.died else "never" if each.back_s is None else f"{each.back_s:.1f} s"
        figures = [f"{getattr(each, name) or ''}" for name in (*names, "hung")]
        who = [*(getattr(each, name) for name in about), each.client, each.version]
        broke = "?" if each.broke is None else ", ".join(each.broke)
        cells = [*who, f"{each.messages:,}", *figures, back, broke]
        if not about:
            cells.append(f"{each.day}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


_SYSTEMS: Final = {"kafka": "Kafka", "nats": "NATS", "pulsar": "Pulsar", "rabbitmq": "RabbitMQ"}


def _system_and_role(each: ClientAnswer) -> tuple[str, bool]:
    """Producers first; the errors stay in the order in which they were given."""
    return each.system, each.role == "consumer"


_WAITS: Final = (
    "A heartbeat tells members that their group does not know them, and they join it under another "
    "id. The coordinator may wait for their former ids until those sessions end, which takes longer "
    "than a round: `hung` and `never` say nothing about the client."
)
#: By what a client may do that believes an error (`harness.contracts.rows.FaultDetails.permits`).
_KINDS: Final = {
    "acknowledge": "A client may take the message as stored.",
    "renumber": "A client may take a new id or epoch, or give up.",
    "reposition": "A client may continue at another position.",
    "rejoin": _WAITS,
    "give-up": "A fatal error: a client may give up.",
}
