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
        needs=(),
        asks=("pipelines",),
        sentence="a second output of an input that has one already",
        example="orders-0 holds 7 8 9; invoices-0, by input: 7 8 [8] 9",
        explanation=(
            "Readers of committed data see several outputs that name one input: its topic, partition and "
            "offset. A pipeline that commits the positions of its inputs in the transaction of their "
            "outputs makes one of each. One that commits them afterwards repeats what it had not committed "
            "when it was stopped or its partitions changed hands: permitted, unless the scenario requires "
            "`dedup`. Outputs are different sends; one send that is stored twice is write-duplicate. Counted "
            "once an input, at its second output."
        ),
        unit="inputs",
    ),
    AnomalyClass(
        name="input-skipped",
        rank=66,
        breaks=(ALWAYS,),
        needs=("audit-complete", "log-kept", "readiness-restored", "offsets-read"),
        asks=("pipelines",),
        sentence="its pipeline committed past it, and no output of it is visible",
        example="orders-0 holds 7 8 9, committed 10; invoices-0, by input: 7 _ 9",
        explanation=(
            "The group of the pipeline has committed a position behind this input, so nobody will read it "
            "again, and readers of committed data see no output of it. Inputs are the messages that the "
            "pipeline could be given: one that reads committed data is not given those of aborted or open "
            "transactions. An input whose output is in a transaction without a known end is left out. "
            "At-least-once promises no less: positions are committed after the outputs were acknowledged. "
            "What the group had committed is asked of the brokers after the drain; where they did not say, "
            "an input is suspect if the pipeline went on behind it."
        ),
        splits={
            "no output": SubKind("the log holds no output of it"),
            **TAKEN,
            "aborted": SubKind("its output was aborted, its position was committed all the same"),
            "not durable": SubKind(
                "what is acknowledged by the leader alone may be lost, an output too", Status.PERMITTED
            ),
        },
    ),
    AnomalyClass(
        name="input-reordered",
        rank=92,
        breaks=(INPUT_ORDER,),
        needs=(),
        asks=("pipelines",),
        sentence="stored behind the output of a later input of the same partition",
        example="orders-0 holds 7 8 9; invoices-0, by input: 7 9 [8]",
        explanation=(
            "Outputs of one source partition go to one partition. Of each input the first output counts: "
            "`7 8 9 8 9` is a repeat (input-twice) and keeps the order. The late ones are counted. A "
            "pipeline whose outputs and positions are in one transaction keeps the order when a partition "
            "changes hands, because the next member begins where the last transaction ended; without "
            "transactions a late write of the former member is permitted, unless the scenario requires "
            "`order`."
        ),
        unit="outputs",
    ),
)
