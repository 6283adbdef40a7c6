"""Classes of pipelines: what they made of their inputs."""

from __future__ import annotations

from typing import Final

from analysis.capture.context import INPUT_ONCE, INPUT_ORDER
from analysis.classes.entry import ALWAYS, TAKEN, AnomalyClass, SubKind
from analysis.findings import Status

PIPELINES: Final = (
    AnomalyClass(
        name="input-twice",
        rank=48,
        breaks=(INPUT_ONCE,),
        needs=("answers-kept",),
        excused_by=("renumber", "reposition"),
        asks=("counted-outputs",),
        sentence="a second output of an input that has one already",
        example="orders-0 holds 7 8 9; invoices-0, by input: 7 8 [8] 9",
        explanation=(
            "Readers of committed data see several outputs that name one input by its topic, "
            "partition and offset. A pipeline that commits the positions of its inputs in the "
            "transaction of their outputs creates one output of each input. A pipeline that "
            "commits them afterwards repeats the inputs that it had not committed when it was "
            "stopped or its partitions changed hands. That is permitted, unless the scenario "
            "requires `dedup`. The outputs are different sends; one send that is stored twice is "
            "write-duplicate. Each input is counted once, at its second output. Applications under "
            "test are judged by what they promise. An application is given every copy that the log "
            "holds of an input, so an input that is stored twice may have two outputs."
        ),
        splits={
            "promised once": SubKind(
                "the application promises at most one output of each input", Status.VIOLATION
            ),
            "repeated": SubKind(
                "the application promises at least one output of each input", Status.PERMITTED
            ),
        },
        unit="inputs",
    ),
    AnomalyClass(
        name="input-skipped",
        rank=66,
        breaks=(ALWAYS,),
        needs=(
            "audit-complete",
            "log-kept",
            "readiness-restored",
            "offsets-read",
            "outputs-named",
            "acks-kept",
            "answers-kept",
        ),
        excused_by=("acknowledge", "reposition"),
        asks=("required-outputs",),
        sentence="its reader committed past it, and no output of it is visible",
        example="orders-0 holds 7 8 9, committed 10; invoices-0, by input: 7 _ 9",
        explanation=(
            "The group of the pipeline or application has committed a position after this input, "
            "so the input will not be read again, and readers of committed data see no output of "
            "it. Inputs are the messages that the pipeline could receive: a pipeline that reads "
            "committed data does not receive messages of aborted or open transactions. An input "
            "whose output is in a transaction without a known end is left out. At-least-once "
            "promises the same, because positions are committed after the outputs were "
            "acknowledged. After the drain, the brokers are asked for the committed positions. If "
            "they did not answer, an input is suspect if the pipeline continued after it."
        ),
        splits={
            "promised": SubKind(
                "the application promises an output of each input", Status.VIOLATION
            ),
            "permitted": SubKind(
                "the application promises at most one output of each input", Status.PERMITTED
            ),
            "no output": SubKind("the log holds no output of it"),
            **TAKEN,
            "aborted": SubKind("its output was aborted, its position was committed all the same"),
            "not durable": SubKind(
                "what is acknowledged by the leader alone may be lost, an output too",
                Status.PERMITTED,
            ),
        },
    ),
    AnomalyClass(
        name="input-reordered",
        rank=92,
        breaks=(INPUT_ORDER,),
        needs=("answers-kept",),
        excused_by=("renumber", "reposition"),
        asks=("ordered-outputs",),
        sentence="stored after the output of a later input of the same partition",
        example="orders-0 holds 7 8 9; invoices-0, by input: 7 9 [8]",
        explanation=(
            "Outputs of one source partition go to one partition. The first output of each input "
            "counts: `7 8 9 8 9` is a repeat (input-twice) and keeps the order. The late outputs "
            "are counted. A pipeline that has outputs and positions in one transaction keeps the "
            "order when a partition changes hands, because the next member begins where the last "
            "transaction ended. Without transactions, a late write of the former member is "
            "permitted, unless the scenario requires `order`. For an application, inputs are "
            "compared by partition or by key, as its scenario says, in each partition that it "
            "writes."
        ),
        splits={"promised order": SubKind("the application promises this order", Status.VIOLATION)},
        unit="outputs",
    ),
    AnomalyClass(
        name="phantom-output",
        rank=47,
        breaks=(ALWAYS,),
        needs=("send-capture", "audit-complete", "log-kept", "clocks-kept", "answers-kept"),
        excused_by=("damage",),
        asks=("applications",),
        sentence="an output of an application whose input never was, or was not committed yet",
        example="orders-0 holds 7 8 9; invoices-0, by input: 7 8 [80] 9",
        explanation=(
            "An output names an input that no producer sent, that the brokers refused, or that was "
            "in an aborted transaction; or the output was stored before the producer requested the "
            "commit of its input: the application reads what is not committed. An input that was "
            "acknowledged and lost later is not meant: the application may have been given it before."
        ),
        splits={
            "never sent": SubKind("no producer sent such a message"),
            "refused": SubKind("the brokers refused it, and the log does not hold it"),
            "aborted": SubKind(
                "its transaction was aborted, so readers of committed data never see it"
            ),
            "not committed yet": SubKind(
                "more than 0.1 s after the output was stored, its producer requested the commit"
            ),
        },
        unit="outputs",
    ),
)
