"""Episodes of several buckets become findings: counts, status, order, witnesses."""

from __future__ import annotations

from dataclasses import replace

from analysis.capture.context import Context, Instance, Promise, Reading, SessionFacts
from analysis.findings import MAX_WITNESSES, Finding, Status
from analysis.kernels.partial import Episode, RawWitness
from analysis.verdict.attribution import RunSpan
from analysis.verdict.merge import findings_of
from harness.contracts.rows import FaultEvent
from harness.faultlog import FaultLog, FaultRecord

S = 1_000_000_000
ZERO = 1_000 * S
FIRM, LOOSE = (
    Promise(),
    Promise(delivery="leader", order=False, dedup=False, because={"delivery": "acks=1"}),
)
CONTEXT = Context(
    epoch_ns=ZERO,
    instances={1: Instance(1, promise=FIRM), 2: Instance(2, promise=LOOSE)},
    faults=(
        FaultRecord(1, "kill", inject_ns=ZERO + 10 * S, end_ns=ZERO + 12 * S, effective=True),
        FaultRecord(2, "pause", inject_ns=ZERO + 30 * S, end_ns=ZERO + 31 * S),
    ),
)
SPAN = RunSpan(ZERO, ZERO + 60 * S)


def episode(
    cls: str = "acked-lost",
    *,
    split: str = "middle",
    instance: int = 1,
    at_s: float = 10.5,
    count: int = 3,
    witnesses: int = 1,
    unmet: tuple[str, ...] = (),
    episodes: int = 1,
) -> Episode:
    first = ZERO + round(at_s * S)
    raw = tuple(
        RawWitness(message=f"{instance}/{count}/{n}", where="orders-0", t_ns=first + n * S // 1000)
        for n in range(witnesses)
    )
    return Episode(
        cls=cls, split=split, unmet=unmet, instance=instance, lane=0, stream=1, session=0,
        first_ns=first, last_ns=first + S // 10, count=count, episodes=episodes, witnesses=raw,
    )  # fmt: skip


def merged(*episodes: Episode) -> list[Finding]:
    return findings_of(episodes, CONTEXT, SPAN, seed=7)


def test_counts_and_splits_add_up_over_buckets() -> None:
    (finding,) = merged(
        episode(count=3), episode(count=5, split="tail"), episode(count=2, episodes=4)
    )
    assert (finding.cls, finding.status, finding.count, finding.episodes) == (
        "acked-lost", Status.VIOLATION, 10, 6)  # fmt: skip
    assert finding.split == {"middle": 5, "tail": 5}


def test_the_same_class_is_told_apart_by_what_the_settings_promise() -> None:
    """Producer 2 has acks=1: its losses are permitted and do not hide those of producer 1."""
    firm, loose = merged(episode(instance=2, count=900), episode(instance=1, count=1))
    assert (firm.status, firm.count) == (Status.VIOLATION, 1)
    assert (loose.status, loose.count) == (Status.PERMITTED, 900)
    assert "acks=1" in loose.promise


def test_what_may_break_a_promise_that_nobody_stated_is_suspect() -> None:
    """A client whose worker.toml says nothing of its settings: no violation, and no pass either."""
    silent = Promise("unknown", None, None, because={"delivery": "not known: no [promises]"})
    context = replace(
        CONTEXT,
        instances={1: Instance(1, promise=silent), 2: Instance(2, promise=LOOSE)},
        sessions={
            5: SessionFacts(
                5, reading=Reading(unknown=frozenset({"order"}), because={"order": "not stated"})
            )
        },
    )

    def found(*episodes: Episode) -> list[tuple[str, Status]]:
        return [(f.cls, f.status) for f in findings_of(episodes, context, SPAN, seed=7)]

    (lost,) = findings_of([episode()], context, SPAN, seed=7)
    assert (lost.status, lost.promise) == (
        Status.SUSPECT,
        "may break delivery: not known: no [promises]",
    )
    assert (
        lost.evidence
        == "not shown: what the client's settings promise is stated (worker.toml, import.yaml), "
        "and no setting lets its broker drop messages"
    )
    assert found(episode("corrupt")) == [("corrupt", Status.VIOLATION)], "no setting makes it right"
    assert found(replace(episode("delivery-reorder", instance=2), session=5)) == [
        ("delivery-reorder", Status.SUSPECT)
    ]


def test_a_hit_without_its_evidence_is_suspect_beside_the_proved_ones() -> None:
    proved, suspect = merged(episode(), episode(unmet=("audit-complete",), count=7))
    assert (proved.status, proved.count) == (Status.VIOLATION, 3)
    assert (suspect.status, suspect.count) == (Status.SUSPECT, 7)
    assert "not shown: the audit read" in suspect.evidence


def test_violations_come_first_and_then_by_rank() -> None:
    order = [
        (f.cls, f.status)
        for f in merged(
            episode("info-stored", split=""),
            episode("write-duplicate", split="same send", instance=2),
            episode("producer-reorder", split=""),
            episode("acked-lost"),
        )
    ]
    assert order == [
        ("acked-lost", Status.VIOLATION),
        ("producer-reorder", Status.VIOLATION),
        ("write-duplicate", Status.PERMITTED),
        ("info-stored", Status.INFO),
    ]


def test_witnesses_are_the_first_of_each_of_the_largest_episodes_and_then_more() -> None:
    (finding,) = merged(episode(count=2, witnesses=2), episode(count=9, witnesses=5))
    assert [w.message for w in finding.witnesses] == [
        "1/9/0",
        "1/2/0",
        "1/9/1",
        "1/2/1",
        "1/9/2",
        "1/9/3",
        "1/9/4",
    ]
    (finding,) = merged(*(episode(count=n, witnesses=5) for n in range(1, 40)))
    assert len(finding.witnesses) == MAX_WITNESSES
    assert finding.witnesses[0].message == "1/39/0"


def test_a_witness_stands_beside_the_nearest_fault_that_took_effect() -> None:
    (finding,) = merged(episode(at_s=29.9))
    (witness,) = finding.witnesses
    assert witness.t_s == 29.9
    assert witness.near is not None
    assert (witness.near.fault, witness.near.kind, witness.near.after_s) == (1, "kill", 19.9)
    assert "acknowledged, and not in the log" in witness.sentence


def test_a_fault_is_named_by_what_it_hit_not_by_how_that_was_chosen() -> None:
    inject = FaultEvent(id=1, event="inject", kind="kill", target="leader-of:orders", t_ns=5)
    hits = {
        "kafka-2": ("kafka-2",),
        "orders-0, orders-1": ("orders-0", "orders-1"),
        "leader-of:orders (4 targets)": ("a", "b", "c", "d"),
        "leader-of:orders": (),
    }
    for named, targets in hits.items():
        (fault,) = FaultLog([replace(inject, targets=targets)]).records
        assert fault.hit == named


def test_attribution_is_per_kind_of_fault_that_took_effect_and_the_same_every_time() -> None:
    episodes = [episode(at_s=10 + n / 10) for n in range(5)]
    (finding,), (again,) = merged(*episodes), merged(*reversed(episodes))
    (share,) = finding.attribution
    assert (share.kind, share.inside, share.episodes) == ("kill", 5, 5)
    assert finding == again


def test_nothing_found_is_no_finding() -> None:
    assert merged() == []
