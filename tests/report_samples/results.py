"""Whole results: a fail, a pass, one that proves nothing, and a campaign of two."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

from analysis.findings import Result, Status, TimeSeries, Usage, ValidityCheck, Verdict
from analysis.verdict.campaign import Campaign, RunSummary, VariantResult
from tests.report_samples.findings import (
    duplicate_finding,
    fault_rows,
    lost_finding,
    reorder_finding,
)

LOAD_S = 35


def timeline(rate: int = 50_000, *, lossy: bool = False) -> TimeSeries:
    """One-second windows with the two outages of `fault_rows` in them."""
    dice = random.Random(7)
    made = TimeSeries(start_s=0.0, step_s=1.0)
    backlog = 0
    for second in range(LOAD_S + 6):
        intended = rate if second < LOAD_S else 0
        down = second in (8, 9, 10) or second in (20, 21, 22, 23, 24)
        backlog += intended
        ok = min(
            backlog,
            0 if down else int(rate * (3 if backlog > rate else 1) * dice.uniform(0.97, 1.0)),
        )
        backlog -= ok
        made.intended.append(intended)
        made.ok.append(ok)
        made.fail.append(0)
        made.info.append(420 if lossy and second == 10 else 0)
        made.delivered.append(int(ok * dice.uniform(0.9, 1.0)))
        quiet = ok == 0
        slow = 3000.0 if second in (11, 12, 25, 26) else 0.0
        made.p50_ms.append(None if quiet else 12 + dice.random() * 5 + slow / 4)
        made.p99_ms.append(None if quiet else 34 + dice.random() * 30 + slow)
        made.delay_p99_ms.append(1 + dice.random() * 3 + (40 if down else 0))
    return made


def percentiles() -> list[tuple[float, float]]:
    quantiles = [0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99999, 1.0]
    return [(q, round(4 + 13 * q + 4400 * math.pow(q, 60), 3)) for q in quantiles]


def usage() -> list[Usage]:
    """Two nodes and a producer; the first node is away from 9 s to 14 s."""
    made = []
    for name, role in (("kafka-1", "node"), ("kafka-2", "node"), ("producer-1", "client")):
        times = [float(t) for t in range(LOAD_S) if name != "kafka-1" or not 9 <= t <= 14]
        cpu = [None if t in (0, 15) else round(0.4 + 0.01 * (t % 7), 2) for t in times]
        rss = [(180 + 2 * round(t)) << 20 for t in times]
        made.append(Usage(name=name, role=role, t_s=times, cpu=cpu, rss_bytes=rss))
    return made


def failing(**changes: Any) -> Result:
    """acks=1 through a kill and a freeze: 1,486 acknowledged messages lost."""
    result = Result(
        run_id="20261120-204412-kafka-acks1-unsafe",
        scenario="kafka-acks1",
        variant="unsafe",
        seed=7,
        verdict=Verdict.FAIL,
        exit_code=1,
        reasons=[
            "1,486 acked-lost in 7 episodes: acknowledged, and not in the log",
            "3 premature-then-repeat: stored too early and then again in its place",
        ],
        sends={
            "attempted": 1_750_000,
            "ok": 1_749_580,
            "fail": 0,
            "info": 420,
            "info_stored": 318,
            "info_not_stored": 102,
            "open": 0,
        },
        rate={
            "target_per_s": 50_000.0,
            "achieved_per_s": 49_998.2,
            "offered_per_s": 50_000.0,
            "ratio_outside_outages": 0.9998,
            "longest_outage_s": 5.1,
        },
        latency_ms={
            "p50": 13.0,
            "p90": 21.0,
            "p99": 3911.0,
            "p999": 4402.0,
            "max": 5120.0,
            "send_delay_p99": 3.1,
        },
        percentiles=percentiles(),
        findings=[lost_finding(), reorder_finding(), duplicate_finding()],
        faults=fault_rows(),
        timeline=timeline(lossy=True),
        coverage=[
            ValidityCheck(
                "faults", True, "3 of 3 faults took effect while messages were in flight"
            ),
            ValidityCheck(
                "rate", True, "99.98 % of the intended rate outside outages (needs 99 %)"
            ),
            ValidityCheck("audit", True, "read to the end of 12 of 12 partitions"),
            ValidityCheck("records", True, "every attempt has its record; no damaged segment"),
        ],
        rows={"sends": 1_750_000, "log": 1_748_554, "deliveries": 1_748_554, "log_probes": 24},
        given={"billing": 1_748_530},
        given_again={"billing": 420},
        given_delay_ms={"billing": {"p50": 31.2, "p99": 2_840.0, "max": 9_310.0}},
        exposure={
            "assignments": 15,
            "redeliveries": 0,
            "acks_confirmed": 61,
            "nacks": 0,
            "rollbacks": 0,
        },
        usage=usage(),
        duration_s={
            "ready": 8.2,
            "warm-up": 5.0,
            "load": 35.0,
            "recovery": 1.1,
            "drain": 2.3,
            "audit": 4.1,
            "judging": 7.4,
        },
        environment={
            "kafka": "4.1.2",
            "confluent-kafka": "2.16.1 (librdkafka 2.16.0)",
            "brokerstorm": "0.1.0",
            "python": "3.11.2",
            "java": "17.0.15",
            "machine": "2 CPUs, 24.0 GiB, Linux 6.18",
            "producer shop": "confluent-kafka 2.16.1; acks=1, enable.idempotence=false, linger.ms=10",
        },
        command="brokerstorm run kafka-acks1 --variant unsafe --seed 7",
        about="acks=1, no idempotence",
        started="2026-11-20T20:44:31.250000+00:00",
    )
    return replace(result, **changes)


def passing(**changes: Any) -> Result:
    """The same load with acks=all and idempotence: clean."""
    base = failing()
    sends = {**base.sends, "ok": 1_750_000, "info": 0, "info_stored": 0, "info_not_stored": 0}
    values: dict[str, Any] = {
        "run_id": "20261120-204512-kafka-acks1-safe",
        "variant": "safe",
        "verdict": Verdict.PASS,
        "exit_code": 0,
        "reasons": [],
        "sends": sends,
        "findings": [],
        "timeline": timeline(),
        "rows": dict.fromkeys(("sends", "log", "deliveries"), 1_750_000),
        "command": "brokerstorm run kafka-acks1 --variant safe --seed 7",
    }
    return replace(base, **{**values, **changes})


def unknown(**changes: Any) -> Result:
    """An audit that stalled on one partition and a fault without effect: nothing is proved."""
    suspect = replace(
        lost_finding(),
        status=Status.SUSPECT,
        count=12,
        evidence="the audit of orders-3 stopped at 41,203 of 48,000 (stall): the rest was not read",
    )
    faults = fault_rows()
    faults[1] = replace(
        faults[1], effective=False, evidence="no state change seen", outage_s=None, recovery_s=None
    )
    faults[2] = replace(
        faults[2], skipped="overlaps #2", effective=False, until_s=None, healed=True, evidence=""
    )
    values: dict[str, Any] = {
        "verdict": Verdict.UNKNOWN,
        "exit_code": 3,
        "reasons": ["audit: orders-3 was not read to its end", "faults: 1 of 2 had no effect"],
        "findings": [suspect],
        "faults": faults,
        "coverage": [
            ValidityCheck(
                "faults", False, "1 of 2 faults took effect; pause kafka-3 changed nothing"
            ),
            ValidityCheck(
                "rate", True, "99.98 % of the intended rate outside outages (needs 99 %)"
            ),
            ValidityCheck("audit", False, "orders-3 read to 41,203 of 48,000 (stall)"),
        ],
    }
    return replace(failing(), **{**values, **changes})


def campaign(*, met: bool = True) -> Campaign:
    unsafe = failing() if met else passing(variant="unsafe")
    red = RunSummary.from_result(unsafe, path="unsafe-1", round_number=1)
    green = RunSummary.from_result(passing(), path="safe-1", round_number=1)
    return Campaign(
        campaign_id="20261120-204400-kafka-acks1",
        scenario="kafka-acks1",
        about="acks=1 loses acknowledged messages when a leader dies; acks=all does not",
        seed=7,
        variants=[
            VariantResult.from_runs("unsafe", "acked-lost", [red], about="acks=1, no idempotence"),
            VariantResult.from_runs("safe", "clean", [green], about="acks=all, idempotent"),
        ],
        duration_s={"total": 131.0},
        command="brokerstorm run kafka-acks1 --seed 7",
    )
