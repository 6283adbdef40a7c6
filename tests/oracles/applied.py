"""Oracles of applications: inputs made twice, not at all, in another order, and outputs of
nothing."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.capture.context import ApplicationFacts
from harness.records import Asked, Check, Event, Outcome, Txn
from tests.oracles.facts import Facts, Hit, Identity, Row, identity
from tests.oracles.logged import time_of
from tests.oracles.removed import remade_ns
from tests.oracles.transacted import members, transactions

#: Outputs that are early by less are not judged: their times are in milliseconds.
TENTH_NS = 100_000_000


def outputs(facts: Facts, application: ApplicationFacts) -> list[Row]:
    """Outputs that name an input, by stream and position."""
    rows = [
        r
        for r in facts.deliveries
        if r["event"] == Event.OUTPUT and r["session"] == application.session
    ]
    named = [r for r in rows if r["check"] == Check.OK and r["kind"] != 0]
    return sorted(named, key=lambda r: (r["stream"], r["position"]))


def of_inputs(facts: Facts, application: ApplicationFacts) -> dict[Identity, list[Row]]:
    """Outputs of each input that its topic holds, in the order of time."""
    found: dict[Identity, list[Row]] = {}
    sources = facts.context.topic_streams(application.source)
    for row in sorted(
        outputs(facts, application), key=lambda r: (r["t_ns"], r["stream"], r["position"])
    ):
        if identity(row) in facts.copies and facts.copies[identity(row)][0]["stream"] in sources:
            found.setdefault(identity(row), []).append(row)
    return found


def when(facts: Facts, row: Row) -> int:
    return row["t_ns"] or time_of(facts, identity(row))


def input_twice(facts: Facts) -> Iterator[Hit]:
    for application in facts.context.applications:
        split = "repeated" if application.promise == "at-least-once" else "promised once"
        for name, rows in of_inputs(facts, application).items():
            allowed = len(facts.copies[name])
            if application.makes != "any" and len(rows) > allowed:
                yield Hit("input-twice", name, split, t_ns=when(facts, rows[allowed]))


def input_reordered(facts: Facts) -> Iterator[Hit]:
    for application in facts.context.applications:
        if application.order == "none" or application.makes == "any":
            continue
        firsts = [rows[0] for rows in of_inputs(facts, application).values()]
        firsts = [row for row in firsts if len(facts.copies[identity(row)]) == 1]
        for row in firsts:
            (own,) = facts.copies[identity(row)]
            for other in firsts:
                (before,) = facts.copies[identity(other)]
                is_same = before["stream"] == own["stream"]
                if application.order == "key":
                    is_same = is_same and before["lane"] == own["lane"]
                is_before = other["stream"] == row["stream"] and other["position"] < row["position"]
                if is_same and is_before and before["position"] > own["position"]:
                    yield Hit(
                        "input-reordered", identity(row), "promised order", t_ns=when(facts, row)
                    )
                    break


def input_skipped(facts: Facts) -> Iterator[Hit]:
    context = facts.context
    for application in context.applications:
        if application.makes != "one":
            continue
        made = of_inputs(facts, application)
        split = "permitted" if application.promise == "at-most-once" else "promised"
        for stream in context.topic_streams(application.source):
            inputs = {
                name: rows[0] for name, rows in facts.copies.items() if rows[0]["stream"] == stream
            }
            known = application.committed.get(stream)
            reached = [inputs[name]["position"] for name in made if name in inputs]
            end = max(reached, default=-1) if known is None else known
            for name, row in inputs.items():
                if row["position"] < end and name not in made:
                    unmet = missing_evidence(facts, application) | (
                        {"offsets-read"} if known is None else set()
                    )
                    yield Hit("input-skipped", name, split, frozenset(unmet), time_of(facts, name))


def missing_evidence(facts: Facts, application: ApplicationFacts) -> set[str]:
    context = facts.context
    streams = context.topic_streams(application.to)
    bounds = [context.stream_bounds(stream) for stream in streams]
    missing = set()
    if any(bound.read_to < bound.end or bound.why == "missing" for bound in bounds):
        missing.add("audit-complete")
    is_remade = remade_ns(facts, application.to) or remade_ns(facts, application.source)
    if any(bound.begin > 0 for bound in bounds) or is_remade:
        missing.add("log-kept")
    if not context.readiness_restored:
        missing.add("readiness-restored")
    if application.nameless:
        missing.add("outputs-named")
    return missing


def missing_input(facts: Facts, application: ApplicationFacts) -> set[str]:
    """What is not proved of inputs that the log does not hold."""
    streams = facts.context.topic_streams(application.source)
    bounds = [facts.context.stream_bounds(stream) for stream in streams]
    is_cut = any(bound.read_to < bound.end or bound.why == "missing" for bound in bounds)
    begins_late = any(bound.begin > 0 for bound in bounds) or bool(
        remade_ns(facts, application.source)
    )
    return {
        name for name, lacks in (("audit-complete", is_cut), ("log-kept", begins_late)) if lacks
    }


def output_before_commit(facts: Facts) -> Iterator[Hit]:
    known, own = transactions(facts), members(facts)
    moved = any(fault.details.moved_clocks for fault in facts.context.faults)
    unmet = frozenset({"clocks-kept"} if moved else ())
    for application in facts.context.applications:
        for row in (each for rows in of_inputs(facts, application).values() for each in rows):
            name = identity(row)
            if len(facts.copies[name]) != 1 or name not in own or not row["t_ns"]:
                continue
            transaction = known[own[name]]
            early_ns = transaction["t_asked_ns"] - row["t_ns"] - facts.context.clock_bound_ns
            if transaction["asked"] & Asked.COMMIT and early_ns > TENTH_NS:
                yield Hit("phantom-output", name, "not committed yet", unmet, row["t_ns"])


def phantom_output(facts: Facts) -> Iterator[Hit]:
    for application in facts.context.applications:
        for row in outputs(facts, application):
            name = identity(row)
            if name in facts.copies:
                continue
            states = [r["txn"] for r in facts.log if facts.is_message(r) and identity(r) == name]
            t_ns = row["t_ns"] or facts.context.load_end_ns
            if not states and name not in facts.sent:
                known = facts.context.instances.get(name[0])
                unmet = {"send-capture"} if known is not None and not known.complete else set()
                yield Hit("phantom-output", name, "never sent", frozenset(unmet), t_ns)
            elif not states and facts.sent[name]["outcome"] == Outcome.FAIL:
                unread = missing_input(facts, application)
                yield Hit("phantom-output", name, "refused", frozenset(unread), t_ns)
            elif states and all(state == Txn.ABORTED for state in states):
                yield Hit("phantom-output", name, "aborted", t_ns=t_ns)


ORACLES = (input_twice, input_reordered, input_skipped, phantom_output, output_before_commit)
