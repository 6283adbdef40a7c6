"""Ways to make a raw fault step smaller, when it begins and ends, and the same step at another
time. Pure.

Known from the models alone: the schedule, the keys of a mix, and of each kind its whole numbers
with a least value and its target. So a new kind needs nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator

from faults.kit.errors import StepProblem
from faults.kit.params import FaultSchedule, NodeParams, keys_of
from faults.schedule.mix import MixParams
from faults.schedule.steps import find_kind, validated
from harness.contracts.plan import FaultStep
from harness.durations import seconds_text

Path = tuple[str | int, ...]
#: Keys of a schedule and of a mix that are times since the start of load.
_TIMES = ("at", "from", "until")
#: Keys of a schedule that repeat a firing.
_REPEATS = ("every", "from", "until", "jitter", "storm")


def wholes(step: FaultStep) -> Iterator[tuple[Path, int, int]]:
    """Each whole number of a step that may be less: key path, value, least value."""
    for path, inner in _kinds_in(step):
        kind = find_kind(inner.get("fault"))
        for name, field in kind.params.model_fields.items():
            key = field.alias or name
            least = next((mark.ge for mark in field.metadata if hasattr(mark, "ge")), None)
            value = inner.get(key, field.get_default())
            if isinstance(least, int) and isinstance(value, int) and value > least:
                yield (*path, key), value, least


def entries(step: FaultStep) -> Iterator[Path]:
    """Yield the parts that can be left out of a step: the faults of a mix that has several."""
    if "mix" in step and len(step["mix"]["of"]) > 1:
        yield from (("mix", "of", index) for index in range(len(step["mix"]["of"])))


def aimed(step: FaultStep, topic: str) -> Iterator[tuple[Path, str]]:
    """Each target that is drawn at random, and the node that leads most of a topic in its place.

    The fewer partitions there are, the more often a random node leads none of them.
    """
    for path, inner in _kinds_in(step):
        if not issubclass(find_kind(inner.get("fault")).params, NodeParams):
            continue
        if inner.get("target", NodeParams().target) == NodeParams().target:
            yield (*path, "target"), f"leader-of:{topic}"


def once(step: FaultStep) -> FaultStep | None:
    """A repeating step that fires at its first time only; None if it fires once anyway, and of a
    mix."""
    if "mix" in step or not ("every" in step or "storm" in step):
        return None
    schedule = _schedule(step)
    at_s = _first_s(schedule.at, schedule.from_, schedule.every)
    return {
        **{key: value for key, value in step.items() if key not in _REPEATS},
        "at": seconds_text(at_s),
    }


def span_s(step: FaultStep) -> tuple[float, float]:
    """When a step first fires and when the last of it is over, as far as the step itself says.

    A step that lasts until the load ends is over after its first firing: the load may then end at
    any time.
    """
    if "mix" in step:
        mix = validated(MixParams, step["mix"])
        first_s = _first_s(None, mix.from_, mix.every)
        return first_s, first_s + mix.jitter if mix.until is None else mix.until
    schedule = _schedule(step)
    first_s = _first_s(schedule.at, schedule.from_, schedule.every)
    last_s = first_s if schedule.until is None else schedule.until + schedule.jitter
    burst_s = (schedule.storm.times - 1) * schedule.storm.gap[1] if schedule.storm else 0.0
    return first_s, last_s + burst_s + _ends_within_s(step)


def moved(step: FaultStep, by_s: float) -> FaultStep:
    """The step so much later (negative: earlier)."""
    if "mix" in step:
        mix = validated(MixParams, step["mix"])
        return {"mix": _moved(step["mix"], _first_s(None, mix.from_, mix.every), mix.until, by_s)}
    schedule = _schedule(step)
    if schedule.at is not None:
        return {**step, "at": seconds_text(schedule.at + by_s)}
    return _moved(step, _first_s(None, schedule.from_, schedule.every), schedule.until, by_s)


def _moved(keys: FaultStep, first_s: float, until_s: float | None, by_s: float) -> FaultStep:
    until = {} if until_s is None else {"until": seconds_text(until_s + by_s)}
    return {**keys, "from": seconds_text(first_s + by_s), **until}


def _kinds_in(step: FaultStep) -> Iterator[tuple[Path, FaultStep]]:
    """The step itself, or those that a mix draws from."""
    if "mix" not in step:
        yield (), step
        return
    yield from ((("mix", "of", index), inner) for index, inner in enumerate(step["mix"]["of"]))


def _schedule(step: FaultStep) -> FaultSchedule:
    keys = keys_of(FaultSchedule)
    return validated(FaultSchedule, {key: value for key, value in step.items() if key in keys})


def _first_s(at_s: float | None, from_s: float | None, every_s: float | None) -> float:
    return next((each for each in (at_s, from_s, every_s) if each is not None), 0.0)


def _ends_within_s(step: FaultStep) -> float:
    """Nothing for a fault that does not know: a load that ends too early is then found by
    trying."""
    kind = find_kind(step.get("fault"))
    keys = keys_of(kind.params)
    try:
        params = validated(kind.params, {key: value for key, value in step.items() if key in keys})
    except StepProblem:  # a key that is filled in for it, such as the only topic
        return 0.0
    return kind.ends_within_s(params) or 0.0
