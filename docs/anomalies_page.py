"""docs/explanation/anomalies.md, made from the table of classes."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.capture.context import INPUT_ONCE, INPUT_ORDER, REDELIVERY_ORDER
from analysis.classes import (
    ALWAYS,
    APPLICATION,
    CAPTURE,
    CLASSES,
    INFORMATION,
    PRECONDITIONS,
    AnomalyClass,
)
from analysis.findings import Status
from docs.markdown import item, paragraph

_INTRODUCTION = """\
# Anomalies

A verdict is a list of classes, each with the exact messages that show it. This page says what each class
means, what it takes to prove it, and when it is a violation. `brokerstorm explain CLASS` prints one of
them.

## How a message gets its class

A message is *(producer instance, lane, seq, attempt)*; a lane is the intended unit of order (a partition, a
key, or a topic whose routing the client chooses). What the client said of the send ([**ok**, **fail**,
**info**](verdicts.md#ok-fail-info)) is compared with what an independent reader found in the log and with
what consumer groups were given.

- **Once, by root cause.** `1 [4] 2 3 4` could be called a gap, two late messages, a duplicate and a
  backward step. It is one message, 4, stored too early and repeated in its place; its symptoms are listed
  under it. When several classes describe a message, a violation comes before what is permitted; then the
  order of the table decides.
- **Order is judged on first appearances**, among messages that the application sent once, within one
  producer instance, lane and partition. A block that is sent again after a lost connection (`1 2 3 2 3 4`)
  keeps its order.
- **A promise decides the status.** A class is a *violation* if the producer's settings promise what it
  breaks (`acks=all` with two in-sync replicas promises delivery, an idempotent producer order and no
  duplicates) or if the scenario requires it; otherwise it is *permitted*, and reported all the same.
  Failures that the application never looked at are *application errors*. Neither changes the verdict; a
  variant of a scenario may expect either.
- **Deliveries** are judged by how the group reads ([consumers](consumers.md)): a Kafka group commits an
  offset, so within one assignment nothing comes twice or out of order; a Pulsar subscription settles
  message by message, so a repeat is compared with the acknowledgement before it, its confirmation, the ack
  timeout and any other reason to send it again. Exclusive and Failover promise the order of the log,
  Key_Shared the order of a key, Shared none.
- **Queues** (JMS, AMQP) keep no log. A message is lost when it was acknowledged, given to no one and does
  not remain after the drain; rollbacks, commits and recovers are read from the journals of the sessions.
- **Evidence comes first.** Where what a class needs does not hold, the finding is *suspect* and the verdict
  unknown. An unread end of a partition is never a loss, and a gap in the capture is never blamed on the
  broker.
- **An episode** is a run of hits of one class in one lane, less than a second apart. Attribution to faults
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
    INPUT_ONCE: "no duplicates, if positions are in the transaction or `require.dedup` asks for it",
    INPUT_ORDER: "order, if positions are in the transaction or `require.order` asks for it",
    APPLICATION: "nothing: application error",
}


def anomalies_page() -> str:
    """The whole page."""
    parts = [_INTRODUCTION, *_summary(), "", "## Evidence", ""]
    parts += [line for name, text in PRECONDITIONS.items() for line in item(f"**{name}**: {text}")]
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
    text = " or ".join(_BREAKS[kind] for kind in entry.breaks)
    is_permitted = any(split.status is Status.PERMITTED for split in entry.splits.values())
    return (
        "wrong, except for its permitted splits"
        if is_permitted and ALWAYS in entry.breaks
        else text
    )


def _section(entry: AnomalyClass) -> Iterator[str]:
    """Yield the facts of a class that the table above leaves out."""
    yield f"## {entry.name}"
    yield ""
    facts = [f"`{entry.example}`: {entry.explanation}", f"*Counted*: {entry.unit}."]
    facts += [f"*Needs*: {', '.join(entry.needs)}."] if entry.needs else []
    splits = [
        f"**{name or 'otherwise'}**, {split.text}"
        + (f" ({split.status.value})" if split.status else "")
        for name, split in entry.splits.items()
    ]
    facts += [f"*Split*: {'; '.join(splits)}."] if splits else []
    facts += [f"*Split by* {entry.split_by}."] if entry.split_by else []
    yield from paragraph(" ".join(facts))
