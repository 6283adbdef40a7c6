"""Who took the CPU while the load ran: what a rate that was not reached is explained by."""

from __future__ import annotations

import pytest

from analysis.verdict.cores import CpuShares, cpu_use
from analysis.verdict.coverage import coverage
from harness.contracts.rows import MetricRow
from tests.unit.test_verdict import facts, traffic

S = 1_000_000_000


def machine(t_s: int, busy_s: float, *, stolen_s: float = 0.0, own_s: float = 0.0) -> MetricRow:
    return MetricRow(t_ns=t_s * S, cores=2, busy_s=busy_s, stolen_s=stolen_s, own_s=own_s)


def test_what_nodes_clients_and_the_run_itself_did_not_use_others_did() -> None:
    metrics = [
        machine(9, 0.0),  # before the load
        machine(10, 100.0, own_s=5.0),
        machine(20, 119.0, own_s=6.0, stolen_s=1.0),
        *(
            MetricRow(t_ns=t * S, worker="producer-1", cpu_s=cpu_s)
            for t, cpu_s in ((10, 3.0), (20, 7.0))
        ),
        # killed and started again: it counts from nothing again
        *(
            MetricRow(t_ns=t * S, node="kafka-1", cpu_s=s)
            for t, s in ((10, 8.0), (14, 9.0), (20, 3.0))
        ),
    ]
    found = cpu_use(metrics, 10 * S, 20 * S)
    assert found == CpuShares(
        2, clients=0.4, brokers=0.4, own=0.1, others=pytest.approx(1.0), stolen=0.1
    )
    assert cpu_use(metrics, 10 * S, 19 * S) is None  # one sample of the machine


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (CpuShares(2, 0.4, 0.6, 0.1, 0.9, 0.0),
         "of 2 cores the brokers 0.6, the clients 0.4, brokerstorm itself 0.1, other programs 0.9: end"),
        (CpuShares(2, 0.4, 0.6, 0.1, 0.0, 0.9), "and 0.9 went to other machines of the host: end"),
        (CpuShares(2, 0.9, 1.0, 0.1, 0.0, 0.0), "other programs 0.0: more cores, larger batches (linger)"),
        (CpuShares(2, 0.4, None, 0.1, 1.4, 0.0),
         "of 2 cores the clients 0.4, brokerstorm itself 0.1, all else, brokers included, 1.4: more cores"),
        (CpuShares(8, 0.4, 0.6, 0.1, 0.2, 0.0), "some were idle, so it was not for lack of CPU"),
    ],
)  # fmt: skip
def test_what_gives_the_cpu_back_is_said(use: CpuShares, said: str) -> None:
    assert said in use.text()


def test_a_rate_that_was_not_reached_says_who_took_the_cpu() -> None:
    (rate,) = [
        check
        for check in coverage(
            facts(traffic(ok_share=0.97), cpu=CpuShares(2, 0.4, 0.6, 0.1, 0.9, 0.0))
        )
        if check.name == "rate"
    ]
    assert not rate.ok
    assert "99.0% required; of 2 cores the brokers 0.6" in rate.text
