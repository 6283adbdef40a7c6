"""Reads one raw fault step: kind, schedule and parameters; errors name the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from faults.kinds import KINDS
from faults.kit.errors import StepProblem
from faults.kit.injection import FaultKind
from faults.kit.params import FaultSchedule, Inventory, Params, keys_of, names
from faults.schedule.other_words import fault_word
from harness.errors import did_you_mean

#: pydantic's words for programmers -> ours for people.
_SENTENCES: Final = {
    "missing": "is missing",
    "extra_forbidden": "unknown key",
    "tuple_type": "must be a list in brackets",
    "too_long": "has too many values",
    "too_short": "has too few values",
    "model_type": "must be a mapping of keys and values",
    "dict_type": "must be a mapping of keys and values",
    "string_type": "must be text",
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "must be true or false"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
}

M = TypeVar("M", bound=Params)


def read_step(step: Any, inventory: Inventory) -> tuple[FaultKind[Any], FaultSchedule, Any]:
    """Kind, schedule and complete parameters of one raw step.

    Raises:
        StepProblem: the key and what is wrong with it.
    """
    if not isinstance(step, Mapping):
        raise StepProblem("", f"must be a mapping such as {{fault: kill, at: 10s}}, not {step!r}")
    kind = find_kind(step.get("fault"))
    schedule_keys = keys_of(FaultSchedule)
    known = ["fault", *schedule_keys, *keys_of(kind.params)]
    for key in step:
        if key not in known:
            near = did_you_mean(str(key), known, label=f"keys of {kind.kind}")
            hint = fault_word(key)
            raise StepProblem(str(key), f"unknown key; {f'{hint}; ' if hint else ''}{near}")
    schedule = validated(
        FaultSchedule, {key: value for key, value in step.items() if key in schedule_keys}
    )
    rest = {key: value for key, value in step.items() if key not in ("fault", *schedule_keys)}
    return kind, schedule, kind.complete(validated(kind.params, rest), inventory)


def find_kind(name: object) -> FaultKind[Any]:
    """A registered kind.

    Raises:
        StepProblem: none of that name.
    """
    if not name:
        raise StepProblem("fault", f"is missing. Kinds: {names(KINDS)}")
    kind = KINDS.get(str(name))
    if kind is None:
        near = did_you_mean(str(name), KINDS, label="kinds")
        hint = fault_word(name)
        raise StepProblem("fault", f"unknown kind {name!r}; {f'{hint}; ' if hint else ''}{near}")
    return kind


def validated(model: type[M], values: Mapping[str, Any]) -> M:
    """A model from raw keys.

    Raises:
        StepProblem: pydantic's first complaint, in words for people.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        parts = [str(part) for part in first["loc"] if part != "[key]"]
        # pydantic adds the kind of each type that it tried
        key = ".".join(part for part in parts if part.isidentifier() or part.isdecimal())
        said = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        text = _SENTENCES.get(first["type"], said)
        got = f", got {first['input']!r}" if key and first["type"] != "missing" else ""
        raise StepProblem(key, text + got) from None
