"""Prints a plan: what would be started, what is promised, and when the faults come."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from analysis.verdict.thresholds import limit_words
from commands.console import write
from commands.tables import in_time, paragraph, table
from harness.contracts.rows import PLAIN_KEY
from harness.node_settings import settings_text
from harness.plan.hours import retained_s
from harness.plan.profile import mean_rate_per_s, shares_over
from harness.plan.rates import is_open, rate_words
from harness.progress.live import LEVELS
from harness.run.worker_specs import group_id
from harness.rundir import Document
from harness.sizes import in_units
from harness.systems import SYSTEMS
from harness.toolchains.own_builds import in_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.preflight import Preflight
    from faults import Timeline
    from harness.contracts.plan import (
        ApplicationPlan,
        ConsumerPlan,
        PipelinePlan,
        Plan,
        ProducerPlan,
        TopicPlan,
    )


Rows = list[list[str]]
_ORDER = {True: "order kept", False: "order not kept", None: "order unknown"}
#: Of one fault that are shown; with --json all.
MOST_SETTINGS = 20
MOST_TIMES = 20
#: Of the drawn profile: a page of 80 columns has room for it.
PROFILE_COLUMNS = 60
#: Names of variables whose values are not shown on a terminal.
_SECRET = re.compile(r"pass|secret|token|key", re.IGNORECASE)
_BESIDE = ", plus brokers and Spark"
_DEDUP = {True: "no duplicates", False: "duplicates possible", None: "duplicates unknown"}


def show_plans(
    rounds: Sequence[tuple[Plan, Timeline]], *, draws_seed: bool, commands: bool
) -> None:
    """Print plans; those after the first only where they differ from it.

    Args:
        rounds: each plan with its timeline.
        draws_seed: a run would take another seed than these.
        commands: what each fault sends, too.
    """
    first: dict[str, Rows] = {}
    for plan, timeline in rounds:
        title = f"{plan.scenario} · {plan.variant}" if plan.variant else plan.scenario
        paragraph(f"{title}: {plan.about}" if plan.about else title)
        seed = f"seed {plan.seed}" + (
            " (a run without --seed takes a new one)" if draws_seed else ""
        )
        rows = [["expect", f"{plan.expect}   {seed}"]]
        parts = _parts(plan, timeline, commands)
        same = [name for name, part in parts.items() if part and part == first.get(name)]
        for name, part in parts.items():
            rows += [] if name in same else part
        if same:
            rows.append(["same", f"{', '.join(same)} as in {rounds[0][0].variant or 'the first'}"])
        table(rows, indent="  ")
        write("")
        first = first or parts


def _parts(plan: Plan, timeline: Timeline, commands: bool) -> dict[str, Rows]:
    """Rows of a plan, by what they are about."""
    most = "up to " if plan.profile else ""
    size = _payload(plan)
    load = f"{most}{rate_words(plan)} of {size} for {plan.load_s:g} s after {plan.warm_up_s:g} s of warm-up"
    loads = [["load", load], *_profile(plan)]
    if kept_s := retained_s(plan):
        loads.append(
            ["", f"  the log is audited while it grows; brokers keep {kept_s / 60:g} minutes of it"]
        )
    if is_open(plan) and plan.rate_choice is not None:
        least = f"at least {plan.rate_choice.at_least_per_s:,} msg/s"
        measured = (
            f"the rate that this machine sustains is measured before the first round; {least}"
        )
        loads.append(["", f"  {measured}, or the run is unknown"])
    ours = f"{in_words(plan.version)}{_topology(plan)}{_broker_settings(plan)}"
    cluster = f"{plan.system} {plan.external.words if plan.external else ours}"
    return {
        "cluster": [["cluster", cluster]],
        "topics": _topics(plan),
        "load": loads,
        "required": _required(plan),
        "producers": [row for producer in plan.scheduled for row in _producer(producer, plan)],
        "consumers": [row for consumer in plan.readers for row in _consumer(consumer, plan)],
        "pipelines": [row for member in plan.pipelines for row in _pipeline(member, plan)],
        "applications": [_application(each, plan) for each in plan.applications],
        "faults": _faults(timeline, commands),
    }


def timeline_rows(timeline: Timeline) -> list[Document]:
    """Firings as JSON, each with the commands that it would send."""
    import faults

    return [
        {
            "id": f.id,
            "fault": f.kind,
            "target": f.target,
            "t_s": f.t_s,
            "for_s": f.for_s,
            "params": f.params.document(),
            "commands": faults.commands_of(f, timeline),
        }
        for f in timeline.firings
    ]


def _payload(plan: Plan) -> str:
    """Sizes, and how far they can be compressed."""
    most = f" to {plan.payload_max_bytes}" if plan.payload_max_bytes else ""
    words = f"{plan.payload_bytes}{most} B"
    if plan.payload_template:
        return f"{words} from a template, the identity in a header included,"
    if sizes := plan.payload_sizes:
        words += f" (half of them up to {sizes[len(sizes) // 2]})"
    if plan.payload_compressible is not None:
        words += f", compressible by {plan.payload_compressible / 10:g} %,"
    return words


def _profile(plan: Plan) -> Rows:
    """The rate over the load, drawn in a line; the highest level is all of it."""
    if not plan.profile:
        return []
    shares = shares_over(plan.profile, PROFILE_COLUMNS)
    levels = "".join(
        LEVELS[int(share * (len(LEVELS) - 1) + 0.5 + 1e-9)] if share > 0 else " "
        for share in shares
    )
    lowest, highest = (
        edge(share for _, share in plan.profile) * plan.rate_per_s for edge in (min, max)
    )
    words = (
        f"{lowest:,.0f} to {highest:,.0f} msg/s, {mean_rate_per_s(plan):,.0f} on average and in "
        "the warm-up"
    )
    return [["", f"  {levels}"], ["", f"  {words}"]]


#: What an application may need whatever its settings promise (``require``), by key and value of the
#: promise.
_NEEDED = {
    ("delivery", "durable"): "no acknowledged message may be lost, whatever the settings promise",
    ("order", True): "order kept in each lane",
    ("dedup", True): "none stored twice",
    ("keys", True): "each key in one partition, whichever producer sent it",
}


def _required(plan: Plan) -> Rows:
    """Return the requirements that decide the verdict, besides the promises of the clients."""
    needed = {item for producer in plan.producers for item in producer.promise.required.items()}
    texts = [text for item, text in _NEEDED.items() if item in needed]
    if plan.rate_ratio and plan.rate_per_s:
        texts.append(f"{plan.rate_ratio * 100:g} % of the rate")
    texts = ["; ".join(texts)] if texts else []
    texts += [
        limit_words(each.name, each.at_most, outside_faults=each.outside_faults)
        for each in plan.thresholds
    ]
    return [["required" if not i else "", text] for i, text in enumerate(texts)]


def show_preflight(checked: Preflight, rounds: int) -> None:
    """Totals of all rounds, what speaks against the plan, and what the machine lacks for it."""
    total = checked.estimate
    guessed = "" if total.is_limited else "at a guessed rate "
    most = "up to " if total.is_measured else ""
    write(f"{_count(rounds, 'round')} in total, warm-up included:")
    added = "start, calibration" if total.is_measured else "start"
    parts = f"{total.load_s:g} s of load; {added}, recovery, audit, judging"
    rows = [
        [
            "messages",
            f"{guessed}{most}{total.messages:,}, {in_units(total.payload_bytes)} of payload",
        ],
        [
            "disk",
            f"up to {in_units(total.disk_bytes)}; memory: {total.clients_mb} MB for clients{_BESIDE}",
        ],
        ["time", f"about {in_time(total.total_s)}: {parts}"],
    ]
    rows += [["warning", text] for text in checked.warnings]
    rows += [["unchecked", text] for text in checked.unchecked]
    rows += [
        ["missing", f"here: {check.name}: {check.text}; {check.remedy}"]
        for check in checked.missing
    ]
    table(rows, indent="  ")


def _times(seconds: Sequence[float]) -> str:
    """The first of a long list, and what follows."""
    few = seconds if len(seconds) <= MOST_TIMES else seconds[:MOST_TIMES]
    text = ", ".join(f"{t_s:.1f}" for t_s in few)
    left = len(seconds) - len(few)
    return f"{text} and {left:,} times more, the last at {seconds[-1]:.1f}" if left else text


def _faults(timeline: Timeline, commands: bool) -> Rows:
    """Return what the faults require of the cluster, and each fault once, with all of its times."""
    import faults

    needs = faults.needs_of([timeline])
    rows = [["needs", ", ".join(sorted(needs))]] if needs else []
    times: dict[str, list[float]] = {}
    sent: dict[str, Sequence[str]] = {}
    for t_s, firing, text in faults.described(timeline):
        times.setdefault(text, []).append(t_s)
        if firing and text not in sent:
            sent[text] = faults.commands_of(firing, timeline)
    shown = set()
    width = max((len(f"{each[0]:.1f}") for each in times.values()), default=0)
    for number, (text, (begin_s, *again)) in enumerate(times.items()):
        more = f"; again at {_times(again)} s" if again else ""
        rows.append(["faults" if number == 0 else "", f"+{begin_s:{width}.1f} s  {text}{more}"])
        lines = tuple(sent.get(text, ()))
        if commands and lines not in shown:  # kinds that differ in a number send the same
            rows += [["", f"    {line}"] for line in lines]
        shown.add(lines)
    return rows


def _broker_settings(plan: Plan) -> str:
    """The first of them: a file of the brokers has hundreds."""
    found = settings_text(plan.broker_config)
    few = dict(list(found.items())[:MOST_SETTINGS])
    left = len(found) - len(few)
    return f"{_settings(few)}{f' and {left} settings more' if left else ''}"


def _topology(plan: Plan) -> str:
    return f", topology {plan.topology}" if plan.topology else ""


def _topics(plan: Plan) -> Rows:
    """A line for each entry of the scenario, which may declare many topics."""
    entries: dict[str, list[TopicPlan]] = {}
    for topic in plan.topics:
        entries.setdefault(topic.declared or topic.name, []).append(topic)
    system = SYSTEMS[plan.system]
    rows = []
    for name, topics in entries.items():
        first = topics[0]
        many = f"{len(topics)} topics, {first.name} to {topics[-1].name}" if len(topics) > 1 else ""
        shape = _count(first.partitions, "partition") if not system.is_queue else ""
        kept = (
            "a queue"
            if system.is_queue and system.removes_settled(first.config)
            else _count(first.replication, *system.copies)
        )
        shares = plan.producers[0].topic_shares
        if any(each.topic_shares != shares for each in plan.producers):
            shares = {}  # of each producer's own messages, and they do not send to the same topics
        share = (
            sum(shares[topic.name] for topic in topics) / sum(shares.values()) if shares else 0.0
        )
        part = f"{share:.1%} of the messages" if share else ""
        rows.append(
            ["topic", f"{name}: {', '.join(word for word in (many, shape, kept, part) if word)}"]
        )
    return rows


def _count(number: int, word: str, several: str = "") -> str:
    return f"{number} {word}" if number == 1 else f"{number} {several or f'{word}s'}"


def _client(worker: ProducerPlan | ConsumerPlan) -> str:
    return f"{worker.client} {in_words(worker.client_version)}".rstrip()


def _read(consumer: ConsumerPlan, plan: Plan) -> str:
    declared = {topic.name: topic.declared or topic.name for topic in plan.topics}
    return ", ".join(dict.fromkeys(declared[name] for name in consumer.topics))


def _consumer(consumer: ConsumerPlan, plan: Plan) -> Rows:
    work = f", {consumer.work_s * 1000:g} ms per message" if consumer.work_s else ""
    how = f", {consumer.receive}" if consumer.receive != "loop" else ""
    if all(consumer.session != member.session for member in plan.pipelines):
        how += _settling(consumer, plan)
    how += f", joins {consumer.joins_s:g} s into the load" if consumer.joins_s else ""
    how += f", subscribes to {consumer.pattern}" if consumer.pattern else ""
    if pauses := consumer.pauses:
        how += f", pauses for {pauses.for_s:g} s every {pauses.every_s:g} s"
    if seeks := consumer.seeks:
        how += f", seeks {seeks.back:,} messages back every {seeks.every_s:g} s"
    settings = _settings(consumer.options)
    promise = consumer.promise
    order = {"stream": "of each partition", "key": "of each key", "none": "not kept"}[promise.order]
    order = "unknown" if "order" in promise.unknown else order
    why = promise.because.get("order", "")
    head = f"{consumer.name} from {_read(consumer, plan)}"
    name = f"{'reader' if consumer.reader else 'group'} {consumer.group}"
    rows = [
        ["consumer", f"{head}: {_client(consumer)}, {name}{how}{work}{settings}"],
        ["", f"  order {order}: {why}"],
    ]
    if promise.ack_timeout_s:
        again = f"  redelivered after {promise.ack_timeout_s:g} s without an acknowledgement"
        rows.append(["", f"{again}: {promise.because.get('ack_timeout', '')}"])
    return rows


def _settling(consumer: ConsumerPlan, plan: Plan) -> str:
    has_commits = ("consumer", "commit_every") not in SYSTEMS[plan.system].foreign
    if consumer.settle == "auto" and has_commits:
        return f", settle auto, commits every {consumer.commit_every_s:g} s"
    return f", settle {consumer.settle}"


def _application(application: ApplicationPlan, plan: Plan) -> list[str]:
    """Return what an application runs, reads and writes, and what it promises. The names at the
    brokers are shown for one that the user starts."""
    many = _count(application.instances, "instance")
    how = f"{application.makes} output of each input, {application.promise}"
    if application.makes == "any":
        how = "any number of outputs"
    order = f", order by {application.order}" if application.order != "none" else ""
    way = f"from {application.source} to {application.output_text}"
    program = application.image or next(iter(application.run), "")
    what = f"of {program}" if program else "that you start"
    if application.runs_elsewhere:
        names = plan.worker_topics
        what += (
            f" with group {group_id(plan, application.group)}, reading {names[application.source]}"
        )
        what += f" and writing {names[application.to]}" if application.to else ""
    text = f"{application.name} {way}: {many} {what}"
    if application.cpu_cores is not None:
        text += f", {application.cpu_cores:g} cores each"
    if application.memory_bytes is not None:
        text += f", {in_units(application.memory_bytes)} of memory each"
    env = ", ".join(
        f"{name}={'***' if _SECRET.search(name) else value}"
        for name, value in application.env.items()
    )
    return ["application", f"{text}, {how}{order}" + (f"; env: {env}" if env else "")]


def _pipeline(member: PipelinePlan, plan: Plan) -> Rows:
    """Return what a pipeline reads and how, then what it writes."""
    reading = next(each for each in plan.consumers if each.session == member.session)
    writing = next(each for each in plan.producers if each.instance == member.instance)
    (_, read), *read_more = _consumer(reading, plan)
    (_, written), *written_more = _producer(writing, plan)
    how = (
        "" if member.transactional else f", positions committed every {reading.commit_every_s:g} s"
    )
    return [["pipeline", f"{read}{how}"], *read_more, ["", written], *written_more]


def _producer(producer: ProducerPlan, plan: Plan) -> Rows:
    promise, because = producer.promise, producer.promise.because
    most = "at most " if is_open(plan) else ""
    rate = f", {most}{producer.rate_per_s:,.0f} msg/s" if producer.rate_per_s else ""
    threads = f", {producer.threads} threads" if producer.threads > 1 else ""
    threads = _transactions(producer) or threads
    threads += ", a profile of its own" if producer.profile else ""
    threads += f", {_count(len(producer.lives) + 1, 'life', 'lives')}" if producer.lives else ""
    threads += f", keys skewed by {producer.skew:g}" if producer.skew else ""
    threads += f", calls {producer.calls}, results {producer.results}"
    if producer.deliver_after_s:
        threads += f", delivered after {producer.deliver_after_s:g} s"
    settings = _settings(producer.options)
    promised: dict[str, list[str]] = {}  # by the setting that decides it
    promised.setdefault(because["delivery"], []).append(f"delivery {promise.delivery}")
    promised.setdefault(because["order"], []).append(_ORDER[promise.order])
    promised.setdefault(because["dedup"], []).append(_DEDUP[promise.dedup])
    return [
        [
            "producer",
            f"{producer.name} to {_written(producer, plan)}: {_client(producer)}{rate}{threads}{settings}",
        ],
        *(["", f"  {', '.join(texts)}: {why}"] for why, texts in promised.items()),
        *_content(producer, plan),
    ]


def _transactions(producer: ProducerPlan) -> str:
    """In transactions of how many messages, of how many ids; empty without."""
    own = producer.transactions
    if own is None:
        return ""
    ends = [f"of {own.messages:,} messages"] * bool(own.messages) + [
        f"of {own.every_s:g} s"
    ] * bool(own.every_s)
    aborted = f", one in {own.abort_every} of an id aborted" if own.abort_every else ""
    ids = _count(producer.threads, "id", "ids")
    return f", in transactions {' or '.join(ends)} with {ids}{aborted}"


def _written(producer: ProducerPlan, plan: Plan) -> str:
    """Topics that it writes, and what each of their lanes is: ``orders (600 keys)``."""
    declared = {topic.name: topic.declared or topic.name for topic in plan.topics}
    lanes = {"partition": "by partition", "key": "{} keys", "routed": "routed by the client"}
    if SYSTEMS[plan.system].is_queue:
        lanes = {"partition": "", "key": "", "routed": ""}
    texts = {}
    for number in producer.groups:
        group = plan.lane_groups[number]
        how = lanes[group.mode].format(f"{group.count:,}")
        if group.mode == "key" and group.key != PLAIN_KEY:
            how += f" such as {group.text(group.first).partition('/')[2]}"
        texts[declared[group.topic]] = (
            f"{declared[group.topic]} ({how})" if how else declared[group.topic]
        )
    return ", ".join(texts.values())


def _content(producer: ProducerPlan, plan: Plan) -> Rows:
    """Headers, and the codec where it matters."""
    rows = []
    headers = {**producer.headers, **producer.header_templates}
    if headers:
        size = sum(len(name) + len(value.encode()) for name, value in headers.items())
        text = f"  {_count(len(headers), 'header')}, {size:,} B: {', '.join(headers)}"
        rows.append(["", text])
    if plan.payload_compressible is not None or (
        producer.codec and not producer.codec.startswith("none")
    ):
        rows.append(
            [
                "",
                f"  codec {producer.codec or f'not known: worker.toml of {producer.client} has none'}",
            ]
        )
    return rows


def _settings(options: dict[str, str]) -> str:
    return "".join(f", {key}={value}" for key, value in options.items())
