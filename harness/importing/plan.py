"""The plan and the manifest of an import: what import.yaml says, and for all else that it is not
known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from harness.contracts.plan import (
    ConsumerPlan,
    ConsumerPromise,
    Plan,
    ProducerPlan,
    PromisePlan,
    TopicPlan,
)
from harness.contracts.rows import FaultEvent, LaneGroup, Manifest, Phase, StatedCheck, WorkerRow
from harness.importing.columns import SETTLEMENTS
from harness.importing.facts import ImportFacts, Routing
from harness.importing.model import AllProducers, GroupSettings, ImportFile, Statement
from harness.importing.values import ImportedNames
from harness.records import Event
from harness.systems import System, system_of

CLIENT: Final = "imported"
_WHERE: Final = "in import.yaml"
_DELIVERY: Final = {"all": "durable", "leader": "leader", "none": "none"}
_ORDER: Final = {
    "exclusive": "stream",
    "failover": "stream",
    "key_shared": "key",
    "group": "stream",
}


def make_plan(said: ImportFile, facts: ImportFacts, routing: Routing, names: ImportedNames) -> Plan:
    """A plan without a target rate."""
    system = system_of(said.system)
    producers = [_producer(said.producers, number) for number in sorted(facts.instances)]
    consumers = [
        _consumer(number, names.text(session.subscription), said, facts, system)
        for number, session in sorted(facts.sessions.items())
    ]
    return Plan(
        scenario="imported",
        variant="",
        expect="clean",
        about=said.about,
        seed=0,
        run_tag=0,
        system=said.system,
        version="",
        broker_config={},
        topics=[
            TopicPlan(name=t, partitions=n, replication=1, config={})
            for t, n in said.topics.items()
        ],
        lane_groups=list(_lane_groups(said, routing)),
        buckets=routing.buckets,
        producers=producers,
        consumers=consumers,
        payload_bytes=0,
        rate_per_s=0.0,
        warm_up_s=0.0,
        load_s=(facts.last_ns - facts.first_due_ns) / 1e9,
        faults=[{"fault": fault.kind, "target": fault.target} for fault in said.faults],
        limits={"stall": said.stall or 0.0},
        rate_ratio=0.0,
    )


def _producer(said: AllProducers, number: int) -> ProducerPlan:
    own = said.one(number)
    return ProducerPlan(
        name=f"producer-{number}",
        instance=number,
        client=CLIENT,
        client_version="",
        groups=[],
        rate_per_s=0.0,
        options={},
        when_full="wait",
        call_deadline_s=own.deadline or 0.0,
        promise=_promise(said, number),
        results=own.results or "checked",
    )


def _promise(said: AllProducers, number: int) -> PromisePlan:
    own = said.one(number)
    order = own.order if own.order is not None else (True if own.idempotence else None)
    order_by = "order" if own.order is not None else "idempotence"
    return PromisePlan(
        delivery=_DELIVERY[own.acks] if own.acks else "unknown",
        order=order,
        dedup=own.idempotence,
        because={
            "delivery": _because(said.key_of("acks", number), own.acks),
            "order": _because(said.key_of(order_by, number), order),
            "dedup": _because(said.key_of("idempotence", number), own.idempotence),
        },
        required={},
    )


def _because(key: str, value: object) -> str:
    if value is None:
        return f"not known: no {key} {_WHERE}"
    shown = str(value).lower() if isinstance(value, bool) else value
    return f"{key}: {shown} {_WHERE}"


def _consumer(
    number: int, name: str, said: ImportFile, facts: ImportFacts, system: System
) -> ConsumerPlan:
    group = said.groups[name]
    return ConsumerPlan(
        name=f"consumer-{number}",
        session=number,
        client=CLIENT,
        client_version="",
        group=name,
        topics=list(dict.fromkeys(group.topics)),
        commit_every_s=0.0,
        options={},
        settle=group.settle or ("auto" if system.subscription == "group" else "ack"),
        promise=_consumer_promise(name, group, facts, system),
    )


def _consumer_promise(
    name: str, group: GroupSettings, facts: ImportFacts, system: System
) -> ConsumerPromise:
    """Return the promise of a consumer. A setting that is not stated is unknown: the strongest is
    assumed, and what breaks it is suspect.
    """
    kind = group.subscription or system.subscription
    is_group = kind == "group"
    said: dict[str, object] = {
        "order": kind if is_group or system.is_queue else group.subscription,
        "ack": "commits" if is_group else group.acks_confirmed,
        "ack_timeout": 0.0 if is_group or system.is_queue else group.ack_timeout,
        "batch_index_acks": False if is_group or system.is_queue else group.batch_index_acks,
        "from_start": group.from_start,
        "settlements": True if is_group or Event.ACK_CALLED in facts.events else None,
        "assignments": True
        if Event.ASSIGN in facts.events or facts.has_epochs or system.is_queue
        else None,
    }
    keys = {"order": "subscription", "ack": "acks_confirmed"}
    return ConsumerPromise(
        subscription=kind,
        order=_ORDER.get(kind, "none"),
        ack_timeout_s=group.ack_timeout or 0.0,
        committed_only=bool(group.committed_only),
        acks_confirmed=group.acks_confirmed is not False,
        batch_index_acks=bool(group.batch_index_acks),
        because={
            key: (f"not known: no {keys.get(key, key)} of {name} {_WHERE}" if value is None
                  else f"{keys.get(key, key)}: {value} {_WHERE}")
            for key, value in said.items() if key in keys or key.startswith(("ack", "batch"))
        },
        unknown=[key for key, value in said.items() if value is None],
    )  # fmt: skip


def _lane_groups(said: ImportFile, routing: Routing) -> Iterator[LaneGroup]:
    """The lanes that import.yaml describes, and runs of consecutive other ones of one topic, by
    number."""
    stated: set[int] = set()
    groups = []
    for lanes in said.lanes:
        own = range(lanes.first, lanes.first + (lanes.count or said.topics[lanes.topic]))
        stated.update(own)
        buckets = [routing.lanes[lane] for lane in own]
        groups.append(
            LaneGroup(
                topic=lanes.topic, mode=lanes.mode, first=own[0], count=len(own), buckets=buckets
            )
        )
    run: list[int] = []
    for lane in sorted(set(routing.topics) - stated):
        if run and (lane != run[-1] + 1 or routing.topics[lane] != routing.topics[run[0]]):
            groups.append(_routed(run, routing))
            run = []
        run.append(lane)
    groups += [_routed(run, routing)] if run else []
    return iter(sorted(groups, key=lambda group: group.first))


def _routed(lanes: list[int], routing: Routing) -> LaneGroup:
    """Nobody says how the place of these lanes is chosen: it is the client's choice."""
    return LaneGroup(
        topic=routing.topics[lanes[0]],
        mode="routed",
        first=lanes[0],
        count=len(lanes),
        buckets=[routing.lanes[lane] for lane in lanes],
    )


def make_manifest(
    run_id: str, uri: str, said: ImportFile, plan: Plan, facts: ImportFacts, has_consumers: bool
) -> Manifest:
    """A finished run, as far as the rows and import.yaml tell.

    ``unstated`` and ``checks`` say what is not known of an import (docs/capture-format.md).
    """
    start_ns, end_ns = facts.first_due_ns, facts.last_ns
    producers = [
        WorkerRow(
            name=producer.name,
            role="producer",
            instance=producer.instance,
            done=said.is_stated("all_sends"),
            t_end_ns=end_ns if said.is_stated("producers_ended") else 0,
        )
        for producer in plan.producers
    ]
    consumers = [
        WorkerRow(
            name=consumer.name,
            role="consumer",
            session=consumer.session,
            done=said.is_stated("all_deliveries"),
            t_start_ns=facts.sessions[consumer.session].first_ns,
            t_end_ns=facts.sessions[consumer.session].last_ns,
        )
        for consumer in plan.consumers
    ]
    return Manifest(
        run_id=run_id,
        command=f"imported from {uri}",
        epoch_ns=start_ns,
        phases=[Phase("load", start_ns, end_ns)],
        workers=[*producers, *consumers],
        readiness_restored=said.is_stated("cluster_recovered"),
        drained=said.is_stated("drained"),
        unstated=unstated(said, facts),
        checks=checks(said, has_consumers),
    )


def unstated(said: ImportFile, facts: ImportFacts) -> dict[str, str]:
    """By name of a precondition, or of what a class asks for (`analysis.classes`), why nothing is
    known of it."""
    settled = bool(facts.events & {int(event) for event in SETTLEMENTS})
    known = {
        "topic-ours": (
            said.is_stated("only_writer"),
            "import.yaml does not say evidence.only_writer",
        ),
        "send-capture": (
            said.is_stated("all_sends"),
            "import.yaml does not say evidence.all_sends",
        ),
        "payload-checks": (facts.has_checks, "no table has a column check"),
        "intended-times": (not facts.without_due, _without_due(facts)),
        "ack-positions": (facts.named_positions, "no acknowledgement names a position"),
        "silence-limit": (bool(said.stall), "import.yaml does not say stall"),
        "settlements": (settled, "no row of deliveries is a commit or a confirmed acknowledgement"),
        "fixed-lanes": (bool(said.lanes), "import.yaml does not say lanes"),
        "self-reports": (False, "no table says whether a client declared itself dead"),
        "transactions": (facts.has_states or facts.has_transactions, "log has no column txn"),
        "transaction-journal": (
            facts.has_states and not facts.has_transactions,
            "an import has no journal of transactions",
        ),
        "deadlines": _of_each(said, facts, "deadline"),
        "ignored-results": _of_each(said, facts, "results"),
        "resent": _of_each(said, facts, "results"),
    }
    return {name: why for name, (is_known, why) in known.items() if not is_known}


def _of_each(said: ImportFile, facts: ImportFacts, name: str) -> tuple[bool, str]:
    """Whether a setting is known of every producer, and what import.yaml lacks for it."""
    unknown = [n for n in sorted(facts.instances) if not getattr(said.producers.one(n), name)]
    key = said.producers.key_of(name, unknown[0]) if unknown else ""
    return not unknown, f"import.yaml does not say {key}"


def _without_due(facts: ImportFacts) -> str:
    sends = facts.rows["sends"]
    some = "" if facts.without_due == sends else f"{facts.without_due:,} of {sends:,} "
    return f"{some}sends have no intended time"


#: Validity check -> what must be stated for it, and what it then says. Checks that need consumers
#: come last.
_CHECKS: Final[Mapping[str, tuple[tuple[Statement, ...], str]]] = {
    "capture": (("all_sends", "all_deliveries"), "every send and every delivery has its row"),
    "readiness": (("cluster_recovered",), "the cluster was whole again before the log was read"),
    "drain": (("producers_ended", "drained"), "producers closed and consumers drained"),
}
_OF_CONSUMERS: Final[frozenset[Statement]] = frozenset({"all_deliveries", "drained"})


def checks(said: ImportFile, has_consumers: bool) -> dict[str, StatedCheck | None]:
    """Validity checks that take their answer from import.yaml; None = not known, and nothing rests
    on it."""
    found: dict[str, StatedCheck | None] = {
        "run": StatedCheck(True, "tables of another tool, every row of them valid"),
        "generator": None,
    }
    for name, (needed, text) in _CHECKS.items():
        asked = [each for each in needed if has_consumers or each not in _OF_CONSUMERS]
        missing = [f"evidence.{each}" for each in asked if not said.is_stated(each)]
        told = f"import.yaml says: {text}"
        without = f"import.yaml does not say {' and '.join(missing)}"
        found[name] = StatedCheck(not missing, without if missing else told)
    return found


def fault_rows(said: ImportFile) -> Iterable[FaultEvent]:
    """Rows of faults.jsonl."""
    evidence = f"stated {_WHERE}"
    for number, fault in enumerate(said.faults, start=1):
        start_ns = said.nanoseconds(fault.start)
        yield FaultEvent(
            id=number,
            event="inject",
            t_ns=start_ns,
            kind=fault.kind,
            target=fault.target,
            targets=(fault.target,) if fault.target else (),
            confirmed_acks=fault.confirmed_acks,
        )
        if fault.effective:
            yield FaultEvent(
                id=number, event="effect", t_ns=start_ns, effective=True, evidence=evidence
            )
        if fault.end is not None:
            yield FaultEvent(
                id=number,
                event="healed",
                t_ns=said.nanoseconds(fault.end),
                ok=said.is_stated("cluster_recovered"),
                undone=True,
                evidence=evidence,
            )
