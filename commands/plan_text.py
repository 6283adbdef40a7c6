"""A plan for people: what would be started, promised, and when the faults come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands.console import table, write

if TYPE_CHECKING:
    from faults import Timeline
    from harness.plan import Plan, ProducerPlan


def show_plan(plan: Plan, timeline: Timeline) -> None:
    """Print one plan."""
    import faults

    title = f"{plan.scenario} · {plan.variant}" if plan.variant else plan.scenario
    write(f"{title}: {plan.about}" if plan.about else title)
    rate = f"{plan.rate_per_s:,.0f} msg/s" if plan.rate_per_s else "unlimited"
    messages = f", {int(plan.rate_per_s * plan.load_s):,} messages" if plan.rate_per_s else ""
    rows = [
        ["expect", f"{plan.expect}   seed {plan.seed}"],
        ["cluster", f"{plan.system} {plan.version}{_settings(plan.broker_config)}"],
    ]
    rows += [
        ["topic", f"{topic.name}: {topic.partitions} partitions, {topic.replication} replicas"]
        for topic in plan.topics
    ]
    load = f"{rate} of {plan.payload_bytes} B for {plan.load_s:g} s after {plan.warm_up_s:g} s of warm-up"
    rows.append(["load", load + messages])
    for producer in plan.producers:
        rows += _producer(producer)
    rows += [
        ["consumer", f"{consumer.name}: {consumer.client}, group {consumer.group}"]
        for consumer in plan.consumers
    ]
    rows += [["fault" if number == 0 else "", line] for number, line in enumerate(faults.describe(timeline))]
    table(rows, indent="  ")
    write("")


def _producer(producer: ProducerPlan) -> list[list[str]]:
    promise, because = producer.promise, producer.promise.because
    rate = f", {producer.rate_per_s:,.0f} msg/s" if producer.rate_per_s else ""
    words = {True: "kept", False: "not kept"}
    return [
        ["producer", f"{producer.name}: {producer.client}{rate}{_settings(producer.options)}"],
        ["", f"  delivery {promise.delivery}: {because['delivery']}"],
        ["", f"  order {words[promise.order]}: {because['order']}"],
        ["", f"  stored once {words[promise.dedup]}: {because['dedup']}"],
    ]


def _settings(options: dict[str, str]) -> str:
    return "".join(f", {key}={value}" for key, value in options.items())
