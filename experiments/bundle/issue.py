"""Writes issue.md of a bundle: a bug report ready to paste, made of results and of nothing else."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from analysis.classes import CLASSES
from analysis.findings import FaultRow, Finding, Result, Witness
from analysis.report import words
from analysis.report.campaign_words import reproduction_rows
from analysis.report.result_words import (
    finding_heading,
    is_message,
    rate_line,
    sends_line,
    witness_facts,
)
from analysis.report.story import grave
from analysis.report.terminal import console
from analysis.report.terminal_lookups import print_trace
from analysis.report.trace import trace
from analysis.verdict.campaign import CLEAN, Campaign, VariantResult
from experiments.bundle.contents import Judged, JudgedRound
from harness.contracts import read_document
from harness.contracts.plan import ConsumerPlan, ProducerPlan
from harness.contracts.rows import Manifest
from harness.errors import UsageError
from harness.scenario.bundled import bundled_bugs, bundled_scenarios
from harness.toolchains.own_builds import in_words

MOST_FAULTS: Final = 12
MOST_LEFT_OUT: Final = 10
_WIDTH: Final = 96
#: The fence of code blocks: longer than any that a text of a client is likely to hold.
_FENCE: Final = "````"


def issue_text(judged: Judged, archive: str, left_out: Sequence[str]) -> str:
    """The report in Markdown.

    Args:
        archive: name of the bundle that it comes with.
        left_out: sentences on what the bundle does not hold.
    """
    told = _told(judged)
    parts = [
        f"# {_title(judged, told)}",
        *_about(judged, told),
        *_expected(judged, told),
        *_settings(told),
        *_trigger(told),
        *_happened(judged, told),
        *_sequence(judged, told),
        *_hit_rate(judged),
        *_versions(judged, told),
        *_repeat(judged, told, archive),
        *_bundle(judged, archive, left_out),
    ]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _told(judged: Judged) -> JudgedRound:
    """The round that the report is about: the first with something grave of the class that was
    expected."""
    expected = _looked_for(judged)

    def weight(each: JudgedRound) -> tuple[bool, bool]:
        found = {finding.cls for finding in grave(each.result)}
        return (not found.intersection(expected), not found)

    return min(judged.rounds, key=weight)


def _looked_for(judged: Judged) -> list[str]:
    """Classes that were expected of a campaign's variants."""
    return (
        [v.expect for v in judged.campaign.variants if v.expect != CLEAN] if judged.campaign else []
    )


def _main(judged: Judged, result: Result) -> Finding | None:
    """Return the finding that was looked for, if it was found; otherwise the gravest one."""
    found, expected = [*result.violations(), *grave(result)], _looked_for(judged)
    return next((each for each in found if each.cls in expected), next(iter(found), None))


def _first(judged: Judged, result: Result) -> Witness | None:
    found = _main(judged, result)
    return min(found.witnesses, key=lambda w: w.t_s, default=None) if found else None


def _title(judged: Judged, told: JudgedRound) -> str:
    found = _main(judged, told.result)
    what = f"{found.cls}: {found.sentence}" if found else "nothing was found"
    # A class that asks for consumers is about what a group was given: a producer has no part in it.
    is_of_consumers = found is not None and "consumers" in CLASSES[found.cls].asks
    clients = _consumers(told) if is_of_consumers else []
    named = ", ".join(dict.fromkeys(map(words.plain, clients))) or _clients(told)
    return f"{named}: {what} ({judged.root.run_id})"


def _consumers(told: JudgedRound) -> list[str]:
    return [" ".join(filter(None, (c.client, c.client_version))) for c in told.plan.consumers]


def _clients(told: JudgedRound) -> str:
    """``kafka-clients 3.9.1``: the clients of the load, as the plan and the workers name them."""
    producers = [
        text.partition(";")[0]
        for name, text in told.result.environment.items()
        if name.startswith("producer")
    ]
    return (
        ", ".join(
            dict.fromkeys(words.plain(text) for text in (*producers, *_consumers(told)) if text)
        )
        or told.plan.system
    )


def _about(judged: Judged, told: JudgedRound) -> Iterator[str]:
    """Yield what the scenario is about, which is often what goes wrong; nothing if it has no
    text."""
    bug = judged.campaign.reproduction if judged.campaign else None
    if bug is not None:
        where = bug.question.report or "no report of it was found"
        yield f"Known as {bug.question.bug} ({where}): {words.plain(judged.campaign.about)}"  # type: ignore[union-attr]
        return
    about = told.result.about or (judged.campaign.about if judged.campaign else "")
    if about:
        yield words.plain(about)


def _expected(judged: Judged, told: JudgedRound) -> Iterator[str]:
    yield "## What was expected"
    found = _main(judged, told.result)
    lines = []
    if found and found.promise:
        lines.append(f"- no `{found.cls}`: {words.plain(found.promise)}")
    lines += [
        f"- {words.plain(name)}: {words.plain(text)}"
        for name, text in told.result.environment.items()
        if name.startswith("producer")
    ]
    scenario = words.plain(told.result.scenario)
    yield (
        "\n".join([f"What the settings of `{scenario}` promise:", "", *lines])
        if lines
        else (f"Every promise that the settings of `{scenario}` make.")
    )


def _settings(told: JudgedRound) -> Iterator[str]:
    """How each client is set up, as far as the scenario sets it."""
    plan = told.plan
    lines = [
        f"- {each.name}: {_client(each)}, calls {each.calls}, results {each.results}{_options(each.options)}"
        for each in plan.producers
    ]
    for each in plan.consumers:
        joins = f", joins {each.joins_s:g} s into the load" if each.joins_s else ""
        how = f"group {each.group}, receive {each.receive}, settle {each.settle}{joins}"
        lines.append(f"- {each.name}: {_client(each)}, {how}{_options(each.options)}")
    if lines:
        yield "## Settings"
        yield "\n".join(lines)


def _client(each: ProducerPlan | ConsumerPlan) -> str:
    return words.plain(f"{each.client} {in_words(each.client_version)}".rstrip())


def _options(options: Mapping[str, str]) -> str:
    return "".join(f", `{words.plain(key)}={words.plain(value)}`" for key, value in options.items())


def _trigger(told: JudgedRound) -> Iterator[str]:
    """Yield what happened to brokers and clients apart from the load."""
    fired = dict.fromkeys(
        f"{each.kind} {each.target}" for each in told.result.faults if not each.skipped
    )
    joins = [
        f"{each.name} joins group {each.group} {each.joins_s:g} s into the load"
        for each in told.plan.consumers
        if each.joins_s
    ]
    lines = [f"- {words.plain(text)}" for text in (*fired, *joins)]
    yield "## What triggers it"
    yield "\n".join(lines) if lines else "The load alone: no fault was injected."


def _happened(judged: Judged, told: JudgedRound) -> Iterator[str]:
    yield "## What happened"
    result = told.result
    of = f" of `{told.run.run_id}`" if judged.campaign else ""
    lines = [f"The verdict{of} is **{result.verdict}**:", ""]
    lines += [f"- {words.plain(reason)}" for reason in result.reasons] or [
        "- every validity check passed"
    ]
    lines += ["", f"{sends_line(result.sends)}; {rate_line(result.rate)}."]
    yield "\n".join(lines)
    found, witness = _main(judged, result), _first(judged, result)
    if found and witness:
        shown = [words.witness_line(witness, found.sentence)]
        shown += [words.sequence(witness.around, _WIDTH)] if witness.around else []
        shown += [line for line in (witness_facts(witness), words.plain(witness.error)) if line]
        yield f"The first of {finding_heading(found)}:\n\n{_code(shown)}"
    for hang in result.hangs:
        stack = [f"waits in {hang.where}"] if hang.where else []
        stack += [words.frame(line) for line in hang.stack]
        yield (
            f"{words.plain(hang.worker)}, {hang.kind} at {words.clock(hang.t_s)}: {words.plain(hang.text)}"
            + (f"\n\n{_code(stack)}" if stack else "")
        )


def _sequence(judged: Judged, told: JudgedRound) -> Iterator[str]:
    """Yield what was done to the cluster, and the life of the first example message."""
    fired = [fault for fault in told.result.faults if not fault.skipped]
    witness = _first(judged, told.result)
    is_one = witness is not None and is_message(witness)
    life = _life(_opened(judged, told), told, witness.message) if witness and is_one else ""
    if not fired and not life:
        return
    yield "## The sequence"
    if fired:
        yield _faults(_nearest(fired, witness), len(fired))
    if life:
        yield life


def _nearest(fired: Sequence[FaultRow], witness: Witness | None) -> list[FaultRow]:
    """The faults around the witness, in order of time."""
    at_s = witness.t_s if witness else 0.0
    near = sorted(fired, key=lambda fault: abs(fault.t_s - at_s))[:MOST_FAULTS]
    return sorted(near, key=lambda fault: fault.t_s)


def _faults(shown: Sequence[FaultRow], fired: int) -> str:
    rows = [
        f"| {words.clock(f.t_s)} | #{f.id} {f.kind} {_cell(f.target)} "
        f"| {words.clock(f.until_s) if f.until_s is not None else '–'} | {_cell(f.evidence) or '–'} |"
        for f in shown
    ]
    more = (
        f"\n\nThese are {len(shown)} of {fired} faults, those nearest to it."
        if fired > len(shown)
        else ""
    )
    return (
        "\n".join(["| into the load | fault | undone | took effect |", "|---|---|---|---|", *rows])
        + more
    )


def _opened(judged: Judged, told: JudgedRound) -> str:
    """The round as it is named where the bundle was opened."""
    return f"{judged.root.run_id}/{told.run.run_id}" if judged.campaign else judged.root.run_id


def _life(opened: str, told: JudgedRound, message: str) -> str:
    """Return what `trace` shows about the message, or why it cannot show it."""
    name = words.plain(message)
    out = io.StringIO()
    try:
        more_with = f"brokerstorm trace {message} {opened} --log-lines 200"
        print_trace(console(out, color=False), trace(told.run, message), more_with=more_with)
    except UsageError as error:
        return f"The life of {name} cannot be shown: {words.plain(str(error))}."
    return f"The life of {name}:\n\n{_code(out.getvalue().rstrip().splitlines())}"


def _hit_rate(judged: Judged) -> Iterator[str]:
    if judged.campaign is None:
        return
    yield "## Hit rate"
    campaign = judged.campaign
    if campaign.reproduction is not None:
        labels = reproduction_rows(campaign, campaign.reproduction)
        head = " | ".join(f"{arm.role}: {_cell(arm.name)}" for arm in campaign.variants)
        if any(arm.about for arm in campaign.variants):
            labels.insert(0, ("about", [arm.about for arm in campaign.variants]))
        rows = [f"| {label} | {' | '.join(map(_cell, cells))} |" for label, cells in labels]
        yield "\n".join([f"| | {head} |", "|---" * (1 + len(campaign.variants)) + "|", *rows])
        outcome, why = campaign.reproduction.outcome.value, words.plain(campaign.reproduction.why)
        yield (
            f"{why.removeprefix(f'{outcome} ').capitalize()}."
            if why.startswith(outcome)
            else f"{outcome}: {why}."
        )
        return
    yield "\n".join(_rounds_of(campaign))


def _rounds_of(campaign: Campaign) -> Iterator[str]:
    for variant in campaign.variants:
        yield f"- {_cell(variant.name)}, expected {variant.expect}: {_hits(variant)}"


def _hits(variant: VariantResult) -> str:
    what = "with a violation" if variant.expect == CLEAN else f"with {variant.expect}"
    return f"{variant.hits} of {words.plural(variant.counted, 'round')} {what}"


def _versions(judged: Judged, told: JudgedRound) -> Iterator[str]:
    yield "## Versions and machine"
    facts = dict(words.fact(name, value) for name, value in told.result.environment.items())
    rows = [
        f"| {_cell(name)} | {_cell(value)} |"
        for name, value in facts.items()
        if not name.startswith("producer")
    ]
    rows += [f"| {_cell(name)} | {_cell(told_of)} |" for name, told_of in _artifacts(judged)]
    for each in judged.rounds if judged.campaign else ():
        if (other := _clients(each)) != _clients(told):
            rows.append(f"| clients of {_cell(each.run.run_id)} | {_cell(other)} |")
    yield "\n".join(
        ["| what | version |", "|---|---|", f"| clients | {_cell(_clients(told))} |", *rows]
    )


def _artifacts(judged: Judged) -> Iterator[tuple[str, str]]:
    """Each client of any round, and the hash of the files that it ran from."""
    found = {
        f"files of {worker.client} {worker.client_version}": worker.artifact
        for each in judged.rounds
        for worker in read_document(each.run.manifest, Manifest).workers
        if worker.artifact
    }
    yield from found.items()


def _repeat(judged: Judged, told: JudgedRound, archive: str) -> Iterator[str]:
    yield "## Repeat"
    command = judged.campaign.command if judged.campaign else told.result.command
    yield _code([repeat_command(command, archive, judged.root.run_id)])
    if any(not fault.skipped for fault in told.result.faults):
        replay = shlex.join(["brokerstorm", "run", "--replay", _opened(judged, told)])
        yield (
            "The same faults on the same nodes at the same times, after "
            f"`{shlex.join(['brokerstorm', 'open', archive])}`: `{replay}`"
        )


def repeat_command(command: str, archive: str, run_id: str) -> str:
    """One line that does the same again; a scenario that is a file of the user's comes out of the
    bundle."""
    try:
        parts = shlex.split(command)
    except ValueError:
        return command
    is_ready = len(parts) > 2 and parts[2] in {*bundled_scenarios(), *bundled_bugs()}
    if is_ready or len(parts) < 3 or parts[1] not in ("run", "repro") or parts[2].startswith("-"):
        return command
    parts[2] = str(Path("runs") / run_id / "scenario.yaml")
    return f"{shlex.join(['brokerstorm', 'open', archive])} && {shlex.join(parts)}"


def _bundle(judged: Judged, archive: str, left_out: Sequence[str]) -> Iterator[str]:
    yield "## What is attached"
    opened = shlex.join(["brokerstorm", "open", archive])
    lines = [
        f"`{archive}` holds scenario, plan, manifest, results, faults, logs and the capture. Open it with",
        "",
        _code([opened, shlex.join(["brokerstorm", "analyze", judged.root.run_id])]),
    ]
    if left_out:
        shown = [f"- {words.plain(text)}" for text in left_out[:MOST_LEFT_OUT]]
        more = len(left_out) - MOST_LEFT_OUT
        lines += [
            "",
            "It does not hold:",
            "",
            *shown,
            *([f"- and {more} more, in bundle.json"] if more > 0 else []),
        ]
    yield "\n".join(lines)


def _code(lines: Sequence[str]) -> str:
    return "\n".join([_FENCE, *lines, _FENCE])


def _cell(text: str) -> str:
    return words.plain(str(text)).replace("|", "\\|")
