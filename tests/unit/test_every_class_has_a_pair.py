"""No class without a history that shows it beside one that does not."""

from __future__ import annotations

from analysis.classes import CLASSES
from tests.unit import (
    test_application_twins,
    test_delivery_twins,
    test_kernels_twins,
    test_pipeline_twins,
    test_pulsar_twins,
    test_queue_twins,
    test_transaction_twins,
)

#: Shown by both outcomes of one history, in test_transaction_twins.
WITHOUT_A_TWIN = {"intermediate-read"}


def test_every_class_has_a_pair() -> None:
    pairs = [
        *test_kernels_twins.PAIRS,
        *test_delivery_twins.PAIRS,
        *test_pulsar_twins.LOG_PAIRS,
        *test_pulsar_twins.DELIVERY_PAIRS,
        *test_queue_twins.PAIRS,
        *test_transaction_twins.PAIRS,
        *test_pipeline_twins.PAIRS,
        *test_application_twins.PAIRS,
    ]
    assert {cls for pair in pairs for cls, _ in pair.shows} | WITHOUT_A_TWIN == set(CLASSES)
