"""Numbers, times, sequences of messages and sentences on findings, as all reports write them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from analysis.findings import (
    ApplicationResult,
    Attribution,
    Cause,
    FaultNear,
    Finding,
    SequenceStep,
    Witness,
)
from analysis.verdict.rate import SHORT_SHARE
from harness.systems import SYSTEMS

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """Text from outside (a client's error, an option) on one line, without control characters: it
    can neither move the cursor nor turn the reading direction."""
    return _CONTROL.sub(lambda found: " " if found[0] in "\n\t\r" else "�", text).strip()


def frame(text: str) -> str:
    """A line of a stack, as `plain`, with its indent."""
    return " " * (len(text) - len(text.lstrip(" "))) + plain(text)


def count(number: float) -> str:
    """``1234567`` -> ``1,234,567``."""
    return f"{number:,.0f}"


def plural(number: int, one: str, many: str = "") -> str:
    """``3, "message"`` -> ``3 messages``."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def millis(value: float | None) -> str:
    """Milliseconds with a unit that fits: ``0.4 ms``, ``35 ms``, ``4.4 s``."""
    if value is None or math.isnan(value):
        return "–"
    if abs(value) >= 1000:
        return f"{value / 1000:,.1f} s"
    return f"{value:.0f} ms" if abs(value) >= 10 else f"{value:.1f} ms"


def seconds(value: float | None) -> str:
    """Seconds: ``0.3 s``, ``41 s``, ``5m 12s``."""
    if value is None or math.isnan(value):
        return "–"
    if value >= 120:
        minutes, rest = divmod(round(value), 60)
        return f"{minutes}m {rest:02d}s"
    return f"{value:.0f} s" if value >= 20 else f"{value:.1f} s"


def clock(t_s: float) -> str:
    """Time into the load, ``01:29.812``; before it ``-00:01.200``."""
    sign = "-" if t_s < 0 else ""
    whole_ms = round(abs(t_s) * 1000)
    minutes, rest_ms = divmod(whole_ms, 60_000)
    return f"{sign}{minutes:02d}:{rest_ms // 1000:02d}.{rest_ms % 1000:03d}"


def day(iso: str) -> str:
    """``2026-11-22T16:08:23.6+00:00`` -> ``2026-11-22 16:08 UTC``; empty for anything that is not a
    time."""
    try:
        return f"{datetime.fromisoformat(iso).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return ""


def given(
    groups: Mapping[str, int], again: Mapping[str, int], delay_ms: Mapping[str, Mapping[str, float]]
) -> str:
    """Deliveries to each group: ``billing 2,276 messages, 12 of them again, 99 % within 41 ms``."""
    told = []
    for name, number in sorted(groups.items()):
        repeats, delay = again.get(name, 0), delay_ms.get(name)
        parts = [f"{plain(name)} {plural(number, 'message')}"]
        parts += [f"{count(repeats)} of them again"] if repeats else []
        parts += [f"99 % within {millis(delay['p99'])}"] if delay else []
        told.append(", ".join(parts))
    return "   ".join(told)


def applications(results: Sequence[ApplicationResult]) -> str:
    """Outputs of each application: ``billing 31,000 outputs, 12 of them again, 99 % within 1.2
    s``."""
    told = []
    for each in results:
        parts = [f"{plain(each.name)} {plural(each.outputs, 'output')}"]
        parts += [f"{count(each.outputs_again)} of them again"] if each.outputs_again else []
        parts += [f"{count(each.nameless)} that name no input"] if each.nameless else []
        parts += [f"99 % within {millis(each.delay_ms['p99'])}"] if each.delay_ms else []
        parts += [recovery] if (recovery := slowest_recovery(each)) else []
        parts += [f"{each.killed} killed"] if each.killed else []
        parts += [f"{each.ended_by_itself} ended by itself"] if each.ended_by_itself else []
        told.append(", ".join(parts))
    return "   ".join(told)


def slowest_recovery(application: ApplicationResult) -> str:
    """``usual delay again within 8.2 s of a fault, not seen again after 1 fault``; empty if it is
    not known what is usual."""
    flow = application.flow
    if flow is None or flow.usual_ms is None:
        return ""
    known = [each.recovery_s for each in flow.recoveries if each.recovery_s is not None]
    parts = [f"usual delay again within {max(known):.1f} s of a fault"] if known else []
    if missing := len(flow.recoveries) - len(known):
        parts.append(f"usual delay not seen again after {plural(missing, 'fault')}")
    return ", ".join(parts)


def log_rows(rows: Mapping[str, int]) -> str:
    """``1,699,720 rows in the log, 24 of them probes``: those that show that a partition takes
    messages."""
    probes = rows.get("log_probes", 0)
    return f"{count(rows.get('log', 0))} rows in the log" + (
        f", {count(probes)} of them probes" if probes else ""
    )


def span(first_s: float, last_s: float) -> str:
    """``00:09.116 to 00:20.057``, or one time for both."""
    first, last = clock(first_s), clock(last_s)
    return first if first == last else f"{first} to {last}"


def per_second(value: float) -> str:
    """Return a rate, such as ``50,000/s``."""
    return f"{count(value)}/s"


def target(rate: Mapping[str, float]) -> str:
    """Return the target rate: ``50,000/s``; for a load that adapts to the machine, its limit and
    whether it was missed.
    """
    aim, most = rate.get("target_per_s", 0.0), rate.get("at_most_per_s", 0.0)
    if not aim:
        return "unlimited"
    peak = rate.get("peak_per_s", 0.0)
    text = per_second(aim) + (f" on average, {per_second(peak)} at most" if peak else "")
    text += f", what this machine keeps of {per_second(most)}" if most > aim else ""
    is_short = most and rate.get("ratio_outside_outages", 1.0) < SHORT_SHARE
    return f"{text}; the load fell short" if is_short else text


def latency_from(no_intended_times: str) -> str:
    """Since when latencies count; ``no_intended_times``: `analysis.findings.Result`."""
    return (
        f"from the call, as {no_intended_times}" if no_intended_times else "from the intended time"
    )


def percent(ratio: float) -> str:
    """``0.9987`` -> ``99.9 %``; never rounded up to 100."""
    value = ratio * 100
    if 99.9 < value < 100:
        return f"{math.floor(value * 100) / 100:.2f} %"
    return f"{value:.0f} %" if value in (0, 100) else f"{value:.1f} %"


def fact(name: str, value: str) -> tuple[str, str]:
    """A fact of the environment for people: ``memory_bytes 25276502016`` -> ``memory 23.5 GiB``."""
    if name.endswith("_bytes") and value.isdigit():
        return name.removesuffix("_bytes"), f"{int(value) / 2**30:.1f} GiB"
    return plain(name), plain(value)


def versions(environment: Mapping[str, str]) -> list[str]:
    """Brokers and clients of producers, with versions: ``kafka 4.1.2``, ``confluent-kafka
    2.16.1``."""
    brokers = [f"{name} {plain(environment[name])}" for name in SYSTEMS if name in environment]
    clients = [
        plain(text.partition(";")[0])
        for name, text in environment.items()
        if name.startswith(("producer ", "producers "))
    ]
    return list(dict.fromkeys([*brokers, *clients]))


def quantile(q: float) -> str:
    """``0.999`` -> ``p99.9``."""
    return f"p{q * 100:.6g}"


def probability(p: float) -> str:
    """Return a p-value, such as ``p 0.031``; the smallest ones as ``p < 0.001``."""
    return "p < 0.001" if p < 0.001 else f"p {p:.3f}"


def ago(near: FaultNear | None) -> str:
    """The nearest fault: ``kill kafka-2 #3 +212 ms``; empty without one."""
    if near is None:
        return ""
    sign = "+" if near.after_s >= 0 else "-"
    return (
        f"{near.kind} {plain(near.target)} #{near.fault} {sign}{millis(abs(near.after_s) * 1000)}"
    )


def step(item: SequenceStep) -> str:
    """One element of a sequence: the witness as ``[4]``, another that is missing as ``(4)``."""
    number = f"{item.seq}.{item.attempt}" if item.attempt else str(item.seq)
    if item.mark == "!":
        return f"[{number}]"
    return f"({number})" if item.mark == "-" else number


def around_witness(steps: Sequence[SequenceStep], most: int) -> list[SequenceStep]:
    """At most ``most`` steps, the witness (or else the middle) kept in view."""
    if len(steps) <= most:
        return list(steps)
    marked = next((i for i, item in enumerate(steps) if item.mark in ("!", "-")), len(steps) // 2)
    first = min(max(0, marked - most // 2), len(steps) - most)
    return list(steps[first : first + most])


def sequence(steps: Sequence[SequenceStep], width: int = 72) -> str:
    """``... 1 [4] 2 3 4 ...`` in at most ``width`` characters."""
    for most in range(len(steps), 0, -1):
        text = "... " + " ".join(step(item) for item in around_witness(steps, most)) + " ..."
        if len(text) <= width:
            return text
    return "..." if steps else ""


def witness_line(witness: Witness, class_sentence: str) -> str:
    """``1/3/88121 on orders-3``, and what its sentence adds to its class's."""
    name = f"{plain(witness.message)} on {plain(witness.where)}"
    rest = beyond(witness, class_sentence)
    return f"{name}: {rest}" if rest else name


def beyond(witness: Witness, class_sentence: str) -> str:
    """The witness's sentence without its own name and without the sentence of its class."""
    text = plain(witness.sentence.removeprefix(f"{witness.message} on {witness.where}: "))
    if not class_sentence:
        return text
    rest = text.removeprefix(class_sentence).strip()
    return rest[1:-1] if rest.startswith("(") and rest.endswith(")") else rest


def attribution(item: Attribution) -> str:
    """How many episodes are near the faults of a kind, and whether that may be chance."""
    whose = item.kind or "all faults together"
    share = f"{count(item.inside)} of {plural(item.episodes, 'episode')} near {whose}"
    if item.not_attributable:
        return f"{share}: not attributable, {item.why_not}"
    chance = f"by chance {percent(item.chance_share)}"
    if item.p_value is not None:
        chance += f", {probability(item.p_value)}"
    if item.p_adjusted is not None:
        chance += f", {probability(item.p_adjusted)} as one of several kinds"
    return f"{share} ({chance})"


def causes_heading(finding: Finding) -> str:
    """How many episodes have a cause with a name; empty for a class that is not asked."""
    if not finding.causes:
        return ""
    named, episodes = count(finding.caused_episodes), plural(finding.episodes, "episode")
    return f"the leader change is known for {named} of {episodes}"


def causes_by_fault(finding: Finding) -> list[str]:
    """A sentence for the causes of each fault, and one for each reason why a cause is not known."""
    found: dict[str, list[Cause]] = {}
    for cause in finding.causes:
        by = cause.moved_by
        after = (
            f"after fault #{by.fault} ({by.kind} {plain(by.target)})" if by else "not near a fault"
        )
        found.setdefault(after if cause.named else cause.sentence, []).append(cause)
    return [_causes_line(what, causes) for what, causes in found.items()]


def _causes_line(what: str, causes: Sequence[Cause]) -> str:
    messages = plural(sum(cause.count for cause in causes), "message")
    if not causes[0].named:
        return f"{messages} without a known cause: {what}"
    changes = {(cause.stream, cause.term, cause.next_term, cause.changed_s) for cause in causes}
    late = sum(cause.count for cause in causes if cause.late)
    share = "all" if late == sum(cause.count for cause in causes) else count(late)
    deposed = (
        f"; {share} of them acknowledged by a broker that was no longer leader" if late else ""
    )
    return f"{messages} by {plural(len(changes), 'leader change')} {what}{deposed}"


def by_reason(untested: Mapping[str, str]) -> dict[str, list[str]]:
    """Reason -> the classes that were not tested for it."""
    found: dict[str, list[str]] = {}
    for name, reason in untested.items():
        found.setdefault(reason, []).append(name)
    return found
