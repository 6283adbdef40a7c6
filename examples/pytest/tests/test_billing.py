"""The program that writes invoices, while an instance is killed and another one is added."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from brokerstorm import Result, assert_clean

SCENARIO: dict[str, Any] = {
    "name": "billing",
    "topics": {"orders": {"partitions": 4}, "invoices": {"partitions": 4}},
    "load": {"rate": 200, "duration": "12s", "producers": {"shop": {"topics": ["orders"]}}},
    "applications": {
        "billing": {
            "run": [sys.executable, "-m", "shop.billing"],
            "env": {
                "BOOTSTRAP": "{bootstrap}",
                "GROUP": "{group}",
                "IN": "{topic:orders}",
                "OUT": "{topic:invoices}",
            },
            "instances": 2,
            "ready": {"log": "started"},
            "from": "orders",
            "to": {"topic": "invoices"},
            "promise": "at-least-once",
        }
    },
    "faults": [
        {"fault": "client-kill", "target": "client:billing-1", "at": "2s", "for": "1s"},
        {"fault": "scale", "target": "client:billing", "to": 3, "at": "7s", "for": "3s"},
    ],
    "require": {"rate_ratio": 0.5},
}


def test_no_order_is_skipped(brokerstorm_run: Callable[..., Result]) -> None:
    result = brokerstorm_run(SCENARIO, seed=7)
    assert_clean(result)
    (run,) = result.runs
    assert all(fault.effective for fault in run.faults)
    (application,) = run.document["applications"]
    assert application["outputs"] >= 12 * 200
