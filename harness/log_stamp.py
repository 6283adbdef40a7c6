"""Reads when a line of a log was written, and whether it warns, from how lines of that log begin.

A *stamp* says how: text as it is, and in braces

    {time}      date and time, ``2026-11-22 16:08:43,724``; ISO 8601, slashes too; UTC if no zone
    {unix}      seconds since 1970, ``1795363723.724``
    {level}     a word or a digit, ``WARN``
    {*}         anything

``[{time}] {level} `` is the one of Kafka's brokers. It is in the manifest of a run, so it is not a
regular expression: one from a stranger could take for ever.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

#: Time zone of brokers and workers, in which their logs are written.
LOG_ZONE = "UTC"
#: Levels of a warning or worse, in any case; librdkafka writes syslog's, NATS three letters.
SEVERE = frozenset(b"WARN WARNING ERROR CRITICAL FATAL SEVERE 0 1 2 3 4 WRN ERR FTL".split())
_FIELDS = {
    "time": rb"(?P<time>\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)",
    "unix": rb"(?P<unix>\d{1,11}(?:\.\d{1,9})?)",
    "level": rb"(?P<level>\w{1,12})",
    "*": rb".{0,200}?",
}
_FIELD = re.compile(r"\{([^{}]*)\}")
_MOST_GAPS = 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Stamped(NamedTuple):
    """The beginning of a line: ``wall_ns`` since 1970; ``is_severe``: a warning or worse; ``end``:
    bytes up to the end of its time."""

    wall_ns: int
    is_severe: bool
    end: int


@dataclass(frozen=True, slots=True)
class Stamp:
    """How lines of a log begin.

    Args:
        text: the stamp.

    Raises:
        ValueError: it has an unknown field, one twice, or neither ``{time}`` nor ``{unix}``.
    """

    text: str
    _compiled: re.Pattern[bytes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        fields = _FIELD.findall(self.text)
        known = ", ".join(f"{{{name}}}" for name in _FIELDS)
        if unknown := [name for name in fields if name not in _FIELDS]:
            raise ValueError(f"{{{unknown[0]}}} in {self.text!r} is none of {known}")
        if fields.count("time") + fields.count("unix") != 1 or fields.count("level") > 1:
            raise ValueError(
                f"{self.text!r} must have {{time}} or {{unix}} once, and {{level}} at most once"
            )
        if fields.count("*") > _MOST_GAPS:
            raise ValueError(f"{self.text!r} has {{*}} more than {_MOST_GAPS} times")
        parts = _FIELD.split(self.text)
        pattern = b"".join(
            _FIELDS[p] if i % 2 else re.escape(p.encode()) for i, p in enumerate(parts)
        )
        object.__setattr__(self, "_compiled", re.compile(pattern))

    def read(self, line: bytes) -> Stamped | None:
        """How a line begins; None = it does not say when it was written."""
        found = self._compiled.match(line)
        if found is None:
            return None
        said = found.groupdict()
        unit = "unix" if "unix" in said else "time"
        wall_ns = _unix_ns(said[unit]) if unit == "unix" else _time_ns(said[unit])
        return (
            None
            if wall_ns is None
            else Stamped(wall_ns, said.get("level", b"").upper() in SEVERE, found.end(unit))
        )


def first_stamp(stamps: tuple[Stamp, ...], line: bytes) -> Stamped | None:
    """Return the time of the first stamp that fits a line."""
    return next((found for stamp in stamps if (found := stamp.read(line))), None)


def _unix_ns(text: bytes) -> int:
    whole, _, fraction = text.decode().partition(".")
    return int(whole) * 1_000_000_000 + int(fraction.ljust(9, "0"))


def _time_ns(text: bytes) -> int | None:
    try:
        when = datetime.fromisoformat(text.decode().replace("/", "-"))
    except ValueError:
        return None
    aware = when if when.tzinfo else when.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MICROSECOND * 1000
