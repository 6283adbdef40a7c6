"""docs/explanation/anomalies.md, made from the table of classes."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.capture.context import REDELIVERY_ORDER
from analysis.classes import ALWAYS, APPLICATION, CAPTURE, CLASSES, INFORMATION, PRECONDITIONS, AnomalyClass
from docs.markdown import item, paragraph

_INTRODUCTION = """\
# Anomalies

A verdict is a list of classes, each with the exact messages that show it. This page says what each class
means, what it takes to prove it, and when it is a violation. `brokerstorm explain CLASS` prints one of them.

## How a message gets its class

A message is *(producer instance, lane, seq, attempt)*; a lane is the intended unit of order (a partition,
a key, or a topic whose routing the client chooses). What the client said of the send (**ok**, **fail** =
certainly not stored, **info** = unknown) is compared with what an independent reader found in the log and
with what consumer groups were given.

**Once, by root cause.** `1 [4] 2 3 4` could be called a gap, two late messages, a duplicate and a
backward step. It is one message, 4, stored too early and repeated in its place; the rest are its symptoms
and are listed under it. When several classes describe a message, a violation comes before what is
permitted; then the order of the table below decides.

**Order is judged on first appearances**, among messages that the application sent once, within one
producer instance, lane and partition. A block that a client sends again after a lost connection
(`1 2 3 2 3 4`) repeats messages but keeps their order: duplicates, no reorder.

**A promise decides the status.** A class is a *violation* if the producer's settings promise what it
breaks (`acks=all` with two in-sync replicas promises delivery, an idempotent producer order and no
duplicates) or if the scenario requires it; otherwise it is *permitted*, and reported all the same. Failures
that the application never looked at are *application errors*. Neither changes the verdict; a variant of a
scenario may expect either.

**Deliveries** are judged by how the group reads. A Kafka group commits an offset, so within one assignment
nothing comes twice or out of order. A Pulsar subscription settles message by message: what was not
acknowledged may come again at any time, so a repeat is compared with the acknowledgement before it, its
confirmation, the ack timeout and any other reason to send it again. Exclusive and Failover
subscriptions promise the order of the log, Key_Shared ones that of a key, Shared ones none.

**Queues** (JMS, AMQP) keep no log. A message is lost when it was acknowledged, given to nobody and does not
remain after the drain; what a rollback, a commit or a recover did to each delivery is read from the
journals of the sessions.

**Evidence comes first.** Each class names what must hold before it counts; where that does not hold, the
finding is *suspect* and the verdict unknown. An unread end of a partition is never a loss, and a gap in the
capture is never blamed on the broker.

**An episode** is a run of hits of one class in one lane, less than a second apart. Attribution to faults
counts episodes: ten thousand messages lost in one kill are one observation.
"""

_BREAKS = {
    ALWAYS: "always wrong",
    CAPTURE: "nothing: a gap in the capture",
    INFORMATION: "nothing: informational",
    "delivery": "delivery",
    "order": "order",
    "dedup": "no duplicates",
    REDELIVERY_ORDER: "order, if `require.order` asks for it",
    APPLICATION: "nothing: application error",
}


def anomalies_page() -> str:
    """The whole page."""
    parts = [_INTRODUCTION, *_summary(), "", "## Evidence", ""]
    parts += [f"- **{name}**: {text}" for name, text in PRECONDITIONS.items()]
    for entry in CLASSES.values():
        parts += ["", *_section(entry)]
    return "\n".join(parts) + "\n"


def _summary() -> Iterator[str]:
    yield "## The classes, in order"
    yield ""
    yield "| class | what happened | breaks |"
    yield "| --- | --- | --- |"
    for name, entry in CLASSES.items():
        yield f"| [{name}](#{name}) | {entry.sentence} | {_breaks(entry)} |"


def _breaks(entry: AnomalyClass) -> str:
    return " or ".join(_BREAKS[kind] for kind in entry.breaks)


def _section(entry: AnomalyClass) -> Iterator[str]:
    yield f"## {entry.name}"
    yield ""
    yield entry.sentence[0].upper() + entry.sentence[1:] + "."
    yield ""
    yield f"    {entry.example}"
    yield ""
    yield from paragraph(entry.explanation)
    yield ""
    yield f"Breaks: {_breaks(entry)}. Counted: {entry.unit}."
    if entry.needs:
        yield ""
        yield "Needs: " + ", ".join(entry.needs) + "."
    if entry.splits:
        yield ""
        for name, split in entry.splits.items():
            status = f" ({split.status.value})" if split.status else ""
            yield from item(f"*{name}*: {split.text}{status}")
    if entry.split_by:
        yield ""
        yield f"Split by {entry.split_by}."
