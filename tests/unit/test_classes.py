"""The table of classes: complete, consistent, and what a class means under a promise."""

from __future__ import annotations

import pytest

from analysis.capture.context import INPUT_ONCE, INPUT_ORDER, REDELIVERY_ORDER, Promise
from analysis.classes import (
    ALWAYS,
    APPLICATION,
    CAPTURE,
    CLASSES,
    INFORMATION,
    PRECONDITIONS,
    anomaly_class,
    status_of,
    why_evidence,
    why_promise,
)
from analysis.findings import Status
from harness.errors import UsageError

DURABLE = Promise(because={"delivery": "acks=all", "order": "enable.idempotence=true"})
LEADER = Promise(delivery="leader", order=False, dedup=False, because={"delivery": "acks=1"})
ORDERED = Promise(required={"order": True})
REQUIRED = Promise(
    delivery="leader", order=False, dedup=False, required={"delivery": "durable", "dedup": True}
)


def test_every_entry_is_complete() -> None:
    assert len({c.rank for c in CLASSES.values()}) == len(CLASSES)
    assert [c.rank for c in CLASSES.values()] == sorted(c.rank for c in CLASSES.values())
    for name, entry in CLASSES.items():
        assert name == entry.name
        assert set(entry.needs) <= set(PRECONDITIONS)
        promises = {"delivery", "order", "dedup", REDELIVERY_ORDER, INPUT_ONCE, INPUT_ORDER}
        assert set(entry.breaks) <= {ALWAYS, APPLICATION, CAPTURE, INFORMATION, *promises}
        assert entry.sentence
        assert not entry.sentence.endswith(".")
        assert entry.example
        assert entry.explanation.endswith(".")


@pytest.mark.parametrize(
    ("cls", "split", "promise", "unmet", "status"),
    [
        ("acked-lost", "tail", DURABLE, (), Status.VIOLATION),
        ("acked-lost", "tail", DURABLE, ("audit-complete",), Status.SUSPECT),
        ("acked-lost", "tail", LEADER, (), Status.PERMITTED),
        ("acked-lost", "tail", LEADER, ("audit-complete",), Status.PERMITTED),
        ("acked-lost", "tail", REQUIRED, (), Status.VIOLATION),
        ("producer-reorder", "", DURABLE, (), Status.VIOLATION),
        ("producer-reorder", "", REQUIRED, (), Status.PERMITTED),
        ("premature-then-repeat", "", REQUIRED, (), Status.VIOLATION),  # it breaks "once" too
        ("premature-then-repeat", "", LEADER, (), Status.PERMITTED),
        ("write-duplicate", "same send", LEADER, (), Status.PERMITTED),
        ("write-duplicate", "same send", DURABLE, (), Status.VIOLATION),
        ("write-duplicate", "application re-send", DURABLE, (), Status.PERMITTED),
        ("delivery-duplicate", "after rebalance", None, (), Status.PERMITTED),
        ("delivery-duplicate", "same assignment", None, (), Status.VIOLATION),
        ("phantom", "never sent", LEADER, (), Status.VIOLATION),
        ("phantom", "foreign", DURABLE, ("topic-ours",), Status.SUSPECT),
        ("send-record-missing", "stored", DURABLE, (), Status.SUSPECT),
        ("hang", "never completed", LEADER, (), Status.VIOLATION),
        ("hang", "never completed", LEADER, ("producer-ended",), Status.SUSPECT),
        ("hang", "completed late", DURABLE, (), Status.INFO),
        ("info-stored", "", DURABLE, (), Status.INFO),
        ("dedup-silent-loss", "", DURABLE, (), Status.VIOLATION),
        ("dedup-silent-loss", "", LEADER, (), Status.PERMITTED),
        (
            "unchecked-failure",
            "TimeoutException, not stored",
            DURABLE,
            (),
            Status.APPLICATION_ERROR,
        ),
        ("rollback-order", "after a rollback", DURABLE, (), Status.PERMITTED),
        ("rollback-order", "after a rollback", ORDERED, (), Status.VIOLATION),
        ("twice-in-transaction", "", LEADER, (), Status.VIOLATION),
        ("redelivered-after-ack", "after a crash", DURABLE, (), Status.PERMITTED),
        ("redelivered-after-ack", "confirmed", DURABLE, (), Status.VIOLATION),
        ("redelivered-after-ack", "confirmed", DURABLE, ("acks-kept",), Status.SUSPECT),
        (
            "premature-redelivery",
            "acknowledged in time",
            None,
            ("delivery-capture",),
            Status.SUSPECT,
        ),
        ("delivery-duplicate", "not acknowledged", None, (), Status.PERMITTED),
        ("info-not-stored", "", DURABLE, ("audit-complete",), Status.INFO),
    ],
)
def test_status(
    cls: str, split: str, promise: Promise | None, unmet: tuple[str, ...], status: Status
) -> None:
    assert status_of(cls, split, promise, unmet) is status


def test_the_reason_names_the_setting_or_the_requirement() -> None:
    assert why_promise("acked-lost", "tail", DURABLE) == "breaks delivery: acks=all"
    assert why_promise("acked-lost", "tail", LEADER) == "not promised; delivery: acks=1"
    assert (
        why_promise("acked-lost", "tail", REQUIRED) == "breaks delivery: required by the scenario"
    )
    left_open = "not promised; redelivery-order: JMS leaves the order of redelivered messages open"
    assert why_promise("rollback-order", "after a rollback", DURABLE) == left_open
    assert why_promise("rollback-order", "after a rollback", ORDERED).startswith(
        "breaks redelivery-order"
    )
    said = why_promise(
        "per-key-reorder", "overtaken", None, {"order": "subscriptionType=Key_Shared"}
    )
    assert said == "wrong under any settings; subscriptionType=Key_Shared"
    assert "the application did not check" in why_promise("unchecked-failure", "", DURABLE)


def test_the_evidence_says_what_was_checked_or_what_is_missing() -> None:
    assert "end bound" in why_evidence("acked-lost")
    missing = why_evidence("acked-lost", ["audit-complete"])
    assert missing == f"not shown: {PRECONDITIONS['audit-complete']}"
    assert why_evidence("info-stored") == "seen directly in the capture"


def test_an_unknown_class_is_a_usage_error_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="no anomaly class 'acked-loss'") as caught:
        anomaly_class("acked-loss")
    assert "acked-lost" in caught.value.hint
