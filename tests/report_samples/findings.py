"""Faults, and what was found beside them."""

from __future__ import annotations

from analysis.findings import (
    Attribution,
    FaultCount,
    FaultNear,
    FaultRow,
    Finding,
    SequenceStep,
    Status,
    StreamCount,
    Witness,
)

HOSTILE = "\x1b[31m<script>alert('x')</script> & \"quoted\" [bold]{{ 7*7 }}[/bold]\nsecond line"


def steps(text: str, first_position: int = 41200) -> tuple[SequenceStep, ...]:
    """``1 [4] 2 3 4+ (5)`` -> steps; positions count on from ``first_position``. ``[(4)]`` is a
    missing witness."""
    made = []
    position = first_position
    for word in text.split():
        mark = {"[": "!", "(": "-"}.get(word[0], "+" if word.endswith("+") else "")
        gone = "(" in word
        seq, _, attempt = word.strip("[]()+").partition(".")
        made.append(
            SequenceStep(
                seq=int(seq),
                attempt=int(attempt or 0),
                position="" if gone else str(position),
                mark=mark,
            )
        )
        position += not gone
    return tuple(made)


def fault_rows() -> list[FaultRow]:
    return [
        FaultRow(
            id=1,
            kind="kill",
            target="leader-of:orders",
            t_s=8.0,
            until_s=15.2,
            effective=True,
            healed=True,
            evidence="process 4711 of kafka-1 gone; 4 partitions changed leader",
            outage_s=3.1,
            recovery_s=6.7,
        ),
        FaultRow(
            id=2,
            kind="pause",
            target="kafka-3",
            t_s=20.0,
            until_s=25.0,
            effective=True,
            healed=True,
            evidence="state T for 5.0 s; ISR of 8 partitions shrank",
            outage_s=5.1,
            recovery_s=0.8,
        ),
        FaultRow(
            id=3,
            kind="leader-move",
            target="orders",
            t_s=30.0,
            until_s=30.4,
            effective=True,
            healed=True,
            evidence="12 of 12 partitions changed leader",
            outage_s=0.3,
            recovery_s=0.4,
        ),
    ]


def near(fault: int, after_ms: float) -> FaultNear:
    row = fault_rows()[fault - 1]
    return FaultNear(fault=row.id, kind=row.kind, target=row.target, after_s=after_ms / 1000)


def lost_finding() -> Finding:
    witnesses = tuple(
        Witness(
            message=f"1/{3 + i}/{88121 + 40 * i}",
            where=f"orders-{3 + i}",
            sentence=f"1/{3 + i}/{88121 + 40 * i} on orders-{3 + i}: acknowledged, and not in the log",
            outcome="ok",
            error="",
            acked_position=str(41203 + i),
            t_s=8.012 + i * 0.004,
            around=steps(
                f"{88119 + 40 * i} {88120 + 40 * i} [({88121 + 40 * i})] ({88122 + 40 * i}) "
                f"{88190 + 40 * i} {88191 + 40 * i}"
            ),
            near=near(1, 12.4 + i * 4),
            symptoms=("not-dispatched",),
        )
        for i in range(4)
    )
    return Finding(
        cls="acked-lost",
        status=Status.VIOLATION,
        count=1486,
        sentence="acknowledged, and not in the log",
        promise="breaks delivery: required by the scenario",
        evidence="audit reached the end of 12 of 12 partitions",
        episodes=7,
        split={"middle": 1402, "tail": 84},
        by_stream=(
            StreamCount(stream="orders-3", count=1200, windows=[(8, 1198), (30, 2)]),
            StreamCount(stream="orders-4", count=280, windows=[(8, 280)]),
            StreamCount(stream="", streams=2, count=6, windows=[(8, 4), (9, 2)]),
        ),
        by_fault=(
            FaultCount(fault=1, count=1480, episodes=5, first_s=8.012, last_s=9.4),
            FaultCount(fault=0, count=4, episodes=1, first_s=28.2, last_s=28.2),
            FaultCount(fault=3, count=2, episodes=1, first_s=30.1, last_s=30.2),
        ),
        attribution=(
            Attribution(
                kind="kill",
                inside=7,
                episodes=7,
                chance_share=0.18,
                p_value=0.003,
                not_attributable=False,
            ),
            Attribution(
                kind="leader-move",
                inside=0,
                episodes=7,
                chance_share=0.6,
                p_value=None,
                not_attributable=True,
                why_not="it fired once",
            ),
        ),
        witnesses=witnesses,
    )


def reorder_finding() -> Finding:
    return Finding(
        cls="premature-then-repeat",
        status=Status.VIOLATION,
        count=3,
        sentence="stored too early and then again in its place",
        promise="breaks order: required by the scenario",
        evidence="audit reached the end of 12 of 12 partitions",
        episodes=1,
        witnesses=(
            Witness(
                message="1/5/4",
                where="orders-5",
                sentence="1/5/4 on orders-5: stored too early and then again in its place",
                outcome="ok",
                error="",
                acked_position="41204",
                t_s=30.112,
                around=steps("0 1 [4] 2 3 4+ 5"),
                near=near(3, 112.0),
                symptoms=("write-duplicate", "producer-reorder"),
            ),
        ),
    )


def duplicate_finding() -> Finding:
    return Finding(
        cls="write-duplicate",
        status=Status.PERMITTED,
        count=142,
        sentence="stored more than once",
        promise="not promised; dedup: enable.idempotence=false",
        evidence="audit reached the end of 12 of 12 partitions",
        episodes=5,
        witnesses=(
            Witness(
                message="1/2/70212",
                where="orders-2",
                sentence="1/2/70212 on orders-2: stored more than once (33871 and 33902)",
                outcome="info",
                error=HOSTILE,
                acked_position="",
                t_s=20.4,
                around=steps("70210 70211 70212 [70212]"),
                near=near(2, 400.0),
            ),
        ),
    )
