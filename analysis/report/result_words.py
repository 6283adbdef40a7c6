"""Sentences, lines and headings about one result: the same on the terminal, in the page and in
junit.xml."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.findings import FaultRow, Finding, Result, Status, Witness
from analysis.report import words
from harness.logs import LogLines

#: A second cue besides the colour.
STATUS_GLYPH = {
    Status.VIOLATION: "✗",
    Status.SUSPECT: "?",
    Status.APPLICATION_ERROR: "!",
    Status.PERMITTED: "·",
    Status.INFO: "·",
}


def pass_sentence(result: Result) -> str:
    """The result of a clean run in one sentence."""
    effective = sum(fault.effective for fault in result.faults if not fault.skipped)
    through = f" through {words.plural(effective, 'fault')}" if effective else ""
    checks = f"all {len(result.coverage)} validity checks passed"
    held = (
        f", {words.plural(len(result.thresholds), 'threshold')} held" if result.thresholds else ""
    )
    return f"every promise that the settings make was kept{through}{held}; {checks}"


def sends_line(sends: dict[str, int]) -> str:
    """``attempted ok fail info``, aborted ones, and how many of the unknown ones are stored."""
    line = "   ".join(
        f"{words.count(sends.get(k, 0))} {k}" for k in ("attempted", "ok", "fail", "info")
    )
    if sends.get("info"):
        stored, absent = sends.get("info_stored", 0), sends.get("info_not_stored", 0)
        line += f" ({words.count(stored)} stored, {words.count(absent)} not)"
    if sends.get("aborted"):
        line += f"   {words.count(sends['aborted'])} aborted"
    if sends.get("open"):
        line += f"   {words.count(sends['open'])} never completed"
    return line


def rate_line(rate: dict[str, float]) -> str:
    """Return the rate in words: what was reached, of what was asked for."""
    target, achieved = rate.get("target_per_s", 0.0), rate.get("achieved_per_s", 0.0)
    if not target:
        return f"{words.per_second(achieved)} (unlimited)"
    line = f"{words.per_second(achieved)} of {words.target(rate)}"
    if "ratio_outside_outages" in rate:
        return f"{line}   outside outages {words.percent(rate['ratio_outside_outages'])} of what was due"
    return f"{line} ({words.percent(achieved / target)})"


def latency_line(latency_ms: dict[str, float], no_intended_times: str = "") -> str:
    """``p50 13 ms   ...   from the intended time``; a dash if no send of the load was answered."""
    if not latency_ms:
        return "–"
    names = (("p50", "p50"), ("p99", "p99"), ("p999", "p99.9"), ("max", "max"))
    parts = [
        f"{label} {words.millis(latency_ms[key])}" for key, label in names if key in latency_ms
    ]
    line = f"{'   '.join(parts)}   {words.latency_from(no_intended_times)}"
    if "send_delay_p99" in latency_ms and not no_intended_times:
        line += f", of which waiting to send p99 {words.millis(latency_ms['send_delay_p99'])}"
    return line


def faults_line(faults: list[FaultRow]) -> str:
    """``3 of 3 took effect``, the longest outage and the slowest recovery."""
    fired = [fault for fault in faults if not fault.skipped]
    if not fired:
        return "none" if not faults else f"none ({len(faults)} skipped)"
    line = f"{sum(fault.effective for fault in fired)} of {len(fired)} took effect"
    not_healed = [fault for fault in fired if not fault.healed]
    line += f", {len(not_healed)} NOT UNDONE" if not_healed else ", all undone"
    if len(fired) < len(faults):
        line += f", {len(faults) - len(fired)} skipped"
    outages = [fault.outage_s for fault in fired if fault.outage_s is not None]
    recoveries = [fault.recovery_s for fault in fired if fault.recovery_s is not None]
    if outages:
        line += f"   longest outage {words.seconds(max(outages))}"
    if recoveries:
        line += f"   slowest recovery {words.seconds(max(recoveries))}"
    return line


def transactions_line(figures: Mapping[str, float]) -> str:
    """How many transactions came out how, and how long commits took."""
    shown = ("committed", "aborted", *(["unknown"] if figures.get("unknown") else []))
    line = "   ".join(f"{words.count(int(figures[k]))} {k}" for k in shown)
    times = {name: figures.get(f"commit_ms_{name}") for name in ("p50", "p99", "max")}
    line += "".join(f"   {name} {words.millis(ms)}" for name, ms in times.items() if ms is not None)
    return f"{line}   transactions"


def faults_counted(faults: dict[str, int]) -> str:
    """The same in short, from a `RunSummary`."""
    return f"{faults.get('effective', 0)} of {faults.get('fired', 0)} took effect"


def finding_heading(finding: Finding) -> str:
    """``acked-lost: 1,486 in 7 episodes (1,402 middle, 84 tail)``."""
    text = f"{finding.cls}: {words.count(finding.count)}"
    if finding.episodes:
        text += f" in {words.plural(finding.episodes, 'episode')}"
    if finding.split:
        text += (
            " ("
            + ", ".join(f"{words.count(number)} {name}" for name, number in finding.split.items())
            + ")"
        )
    return text


def witness_facts(witness: Witness) -> str:
    """``ok at 41203 · 00:08.012 · kill kafka-1 #1 +12 ms``."""
    outcome = witness.outcome
    if witness.acked_position:
        outcome = f"{outcome} at {witness.acked_position}".lstrip()
    time = words.clock(witness.t_s) if witness.t_s else ""
    return " · ".join(filter(None, (outcome, time, words.ago(witness.near))))


def is_message(witness: Witness) -> bool:
    """Whether `trace` can follow it: a window of a stream, such as a stall, is not a message."""
    return "/" in witness.message or "@" in witness.message


def left_out(lines: Mapping[str, int]) -> str:
    """``53 more lines of kafka-1, 7 of kafka-2``; empty without any."""
    counted = sorted(lines.items(), key=lambda item: -item[1])
    (first, *others) = counted or [("", 0)]
    if not first[1]:
        return ""
    head = f"{words.plural(first[1], 'more line')} of {first[0]}"
    return ", ".join([head, *(f"{words.count(number)} of {source}" for source, number in others)])


def notes(logs: LogLines) -> list[str]:
    """Return which logs were not read, and why."""
    made = [f"no lines of logs: {words.plain(logs.why_none)}"] if logs.why_none else []
    if logs.unplaced:
        made.append(
            f"the log of {', '.join(logs.unplaced)} does not say when its lines were written"
        )
    if logs.cut:
        made.append(f"{', '.join(logs.cut)} says so much at that time that not all of it was read")
    return made
