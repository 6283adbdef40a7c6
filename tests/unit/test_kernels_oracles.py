"""Random small histories: the kernels say exactly what the slow oracles say, message by message."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.capture.context import Context
from tests.oracles.stories import CHUNKS, check, histories
from tests.oracles.systems import (
    application_histories,
    pipeline_histories,
    pulsar_histories,
    queue_histories,
)
from tests.planted.tiny import History

EVERY = st.one_of(
    histories(),
    pipeline_histories(),
    application_histories(),
    pulsar_histories(),
    queue_histories(),
)
QUICK = settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LONG = settings(max_examples=5_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.long
@given(histories(), CHUNKS)
@QUICK
def test_kernels_say_what_the_oracles_say(case: tuple[History, Context], chunk_rows: int) -> None:
    check(*case, chunk_rows)


@pytest.mark.long
@given(pipeline_histories(), CHUNKS)
@QUICK
def test_the_same_of_pipelines(case: tuple[History, Context], chunk_rows: int) -> None:
    check(*case, chunk_rows)


@pytest.mark.long
@given(application_histories(), CHUNKS)
@QUICK
def test_the_same_of_applications(case: tuple[History, Context], chunk_rows: int) -> None:
    check(*case, chunk_rows)


@pytest.mark.long
@given(pulsar_histories(), CHUNKS)
@QUICK
def test_the_same_of_pulsar(case: tuple[History, Context], chunk_rows: int) -> None:
    check(*case, chunk_rows)


@pytest.mark.long
@given(queue_histories(), CHUNKS)
@QUICK
def test_the_same_of_queues(case: tuple[History, Context], chunk_rows: int) -> None:
    check(*case, chunk_rows)


@pytest.mark.slow
@given(EVERY, CHUNKS)
@LONG
def test_kernels_say_what_the_oracles_say_at_length(
    case: tuple[History, Context], chunk_rows: int
) -> None:
    check(*case, chunk_rows)
