"""Rounds of a made-up suite: what the history's tests read."""

from __future__ import annotations

import random
from typing import Any

from experiments.history.rounds import Found, Round

LOST = "acked-lost"


def a_night(number: int) -> str:
    return f"night-{number:02d}"


def a_round(
    at: int, number: int = 1, *, cell: str = "a", hit: bool = False, **changes: Any
) -> Round:
    """A judged round of night ``at``; ``hit``: it shows acked-lost."""
    witness = {"message": "1/3/88121", "where": "orders-3", "said": "1/3/88121 is gone"}
    lost = Found(cls=LOST, status="violation", count=3, **witness)
    facts: dict[str, Any] = {
        "verdict": "fail" if hit else "pass",
        "exit_code": int(hit),
        "found": [lost] if hit else [],
        "scenario": "s",
        "suite": "nightly",
        "seed": 100 * at + number,
        "reasons": [f"3 {LOST}"] if hit else [],
        "command": f"brokerstorm run s --seed {100 * at + number}",
    }
    return Round(
        key=f"{cell} {at} {number}",
        night=a_night(at),
        cell=cell,
        round=number,
        **{**facts, **changes},
    )


def noisy(seed: int, level: float = 80.0, nights: int = 20) -> list[float]:
    """Figures that vary by five percent."""
    dice = random.Random(seed)
    return [level * dice.lognormvariate(0, 0.05) for _ in range(nights)]


def regressed(
    *, cell: str = "kafka-storm", nights: int = 12, broken: str = "broken"
) -> list[Round]:
    """A cell that loses messages from the last night on, one that is slower since the last but one,
    one that broke in the last night, and one that is as it was."""
    fast, slow = noisy(1, nights=nights), noisy(2, nights=nights)
    rounds = []
    for at in range(nights):
        for number in (1, 2, 3):
            p99 = {"p99": fast[at]}
            rounds.append(a_round(at, number, cell=cell, hit=at == nights - 1, latency_ms=p99))
            rounds.append(a_round(at, number, cell="steady", latency_ms=p99))
            late = {"p99": slow[at] * (3 if at >= nights - 2 else 1)}
            rounds.append(a_round(at, number, cell="slower", latency_ms=late))
    last = {"verdict": None, "exit_code": 4, "reasons": ["no cluster"]}
    return [*rounds, a_round(nights - 1, cell=broken, **last)]
