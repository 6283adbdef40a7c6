"""Prints a plan: what would be started, what is promised, and when the faults come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands.console import write
from commands.tables import paragraph, table
from harness.plan.rates import is_open, rate_words
from harness.systems import SYSTEMS

if TYPE_CHECKING:
    from commands.preflight import Preflight
    from faults import Timeline
    from harness.plan.model import ConsumerPlan, Plan, ProducerPlan, TopicPlan


_ORDER = {True: "order kept", False: "order not kept", None: "order unknown"}
_DEDUP = {True: "no duplicates", False: "duplicates possible", None: "duplicates unknown"}


def show_plan(plan: Plan, timeline: Timeline) -> None:
    """Print one plan."""
    title = f"{plan.scenario} · {plan.variant}" if plan.variant else plan.scenario
    paragraph(f"{title}: {plan.about}" if plan.about else title)
    rows = [
        ["expect", f"{plan.expect}   seed {plan.seed}"],
        ["cluster", f"{plan.system} {plan.version}{_topology(plan)}{_settings(plan.broker_config)}"],
    ]
    rows += _topics(plan)
    size = f"{plan.payload_bytes}..{plan.payload_max_bytes}" if plan.payload_max_bytes else plan.payload_bytes
    load = f"{rate_words(plan)} of {size} B for {plan.load_s:g} s after {plan.warm_up_s:g} s of warm-up"
    rows.append(["load", load])
    if is_open(plan) and plan.rate_choice is not None:
        least = f"at least {plan.rate_choice.at_least_per_s:,} msg/s"
        measured = f"the rate that this machine keeps is measured before the first round; {least}"
        rows.append(["", f"  {measured}, or the run is unknown"])
    for producer in plan.producers:
        rows += _producer(producer, plan)
    for consumer in plan.consumers:
        rows += _consumer(consumer)
    table(rows, indent="  ")
    _show_faults(timeline)
    write("")


def show_preflight(checked: Preflight, rounds: int) -> None:
    """Totals of all rounds, what speaks against the plan, and what the machine lacks for it."""
    from faults.kit.params import in_units

    total = checked.estimate
    guessed = "" if total.is_limited else "at a guessed rate "
    most = "up to " if total.is_measured else ""
    write(f"{_count(rounds, 'round')} in total, warm-up included:")
    added = "start, calibration" if total.is_measured else "start"
    rows = [
        ["messages", f"{guessed}{most}{total.messages:,}, {in_units(total.payload_bytes)} of payload"],
        ["disk", f"up to {in_units(total.disk_bytes)} for the brokers' logs and the capture"],
        ["memory", f"up to {total.clients_mb} MB for the clients, beside brokers and Spark"],
        ["time", f"{total.load_s:g} s of load; {added}, recovery, drain, audit and judging are added"],
    ]
    rows += [["warning", text] for text in checked.warnings]
    rows += [["missing", f"here: {check.name}: {check.text}; {check.remedy}"] for check in checked.missing]
    table(rows, indent="  ")


def _show_faults(timeline: Timeline) -> None:
    """Each firing with what it sends; what the cluster is started with because of them."""
    import faults

    if needs := faults.needs_of([timeline]):
        paragraph(f"{'needs':8}  {', '.join(sorted(needs))}", indent="  ", hanging=" " * 10)
    shown = set()
    for number, (firing, line) in enumerate(faults.described(timeline)):
        paragraph(f"{'faults' if number == 0 else '':8}  {line}", indent="  ", hanging=" " * 22)
        commands = tuple(faults.commands_of(firing, timeline)) if firing else ()
        if commands not in shown:  # a storm repeats itself
            for command in commands:
                paragraph(command, indent=" " * 16, hanging="  ")
            shown.add(commands)


def _topology(plan: Plan) -> str:
    return f", topology {plan.topology}" if plan.topology else ""


def _topics(plan: Plan) -> list[list[str]]:
    """A line for each entry of the scenario, which may stand for many topics."""
    entries: dict[str, list[TopicPlan]] = {}
    for topic in plan.topics:
        entries.setdefault(topic.declared or topic.name, []).append(topic)
    system = SYSTEMS[plan.system]
    rows = []
    for name, topics in entries.items():
        first = topics[0]
        many = f"{len(topics)} topics, {first.name} to {topics[-1].name}" if len(topics) > 1 else ""
        shape = _count(first.partitions, "partition") if not system.is_queue else ""
        kept = "a queue" if system.is_queue else _count(first.replication, *system.copies)
        rows.append(["topic", f"{name}: {', '.join(word for word in (many, shape, kept) if word)}"])
    return rows


def _count(number: int, word: str, several: str = "") -> str:
    return f"{number} {word}" if number == 1 else f"{number} {several or f'{word}s'}"


def _client(worker: ProducerPlan | ConsumerPlan) -> str:
    return f"{worker.client} {worker.client_version}".rstrip()


def _consumer(consumer: ConsumerPlan) -> list[list[str]]:
    work = f", {consumer.work_s * 1000:g} ms per message" if consumer.work_s else ""
    how = f", {consumer.receive}" if consumer.receive != "loop" else ""
    how += f", joins {consumer.joins_s:g} s into the load" if consumer.joins_s else ""
    settings = _settings(consumer.options)
    promise = consumer.promise
    order = {"stream": "of each partition", "key": "of each key", "none": "not kept"}[promise.order]
    order = "unknown" if "order" in promise.unknown else order
    why = promise.because.get("order", "")
    rows = [
        ["consumer", f"{consumer.name}: {_client(consumer)}, group {consumer.group}{how}{work}{settings}"],
        ["", f"  order {order}: {why}"],
    ]
    if promise.ack_timeout_s:
        again = f"  redelivered after {promise.ack_timeout_s:g} s without an acknowledgement"
        rows.append(["", f"{again}: {promise.because.get('ack_timeout', '')}"])
    return rows


def _producer(producer: ProducerPlan, plan: Plan) -> list[list[str]]:
    promise, because = producer.promise, producer.promise.because
    most = "at most " if is_open(plan) else ""
    rate = f", {most}{producer.rate_per_s:,.0f} msg/s" if producer.rate_per_s else ""
    threads = f", {producer.threads} threads" if producer.threads > 1 else ""
    return [
        ["producer", f"{producer.name}: {_client(producer)}{rate}{threads}{_settings(producer.options)}"],
        ["", f"  delivery {promise.delivery}: {because['delivery']}"],
        ["", f"  {_ORDER[promise.order]}: {because['order']}"],
        ["", f"  {_DEDUP[promise.dedup]}: {because['dedup']}"],
    ]


def _settings(options: dict[str, str]) -> str:
    return "".join(f", {key}={value}" for key, value in options.items())
