"""Tables of the history file, and the steps from an older schema to this one.

``PRAGMA user_version`` names the schema of a file. Each entry of `MIGRATIONS` leads from its index
to the next version; entries are never edited once released, only appended.
docs/reference/history.md is made from `COLUMNS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class RoundColumn:
    """A column of ``rounds``; ``is_json``: kept as JSON text."""

    name: str
    sql: str
    doc: str
    is_json: bool = False
    since: int = 1  # schema version


def _text(name: str, doc: str, *, needed: bool = False) -> RoundColumn:
    return RoundColumn(name, "TEXT NOT NULL" if needed else "TEXT", doc)


def _real(name: str, doc: str) -> RoundColumn:
    return RoundColumn(name, "REAL", doc)


def _whole(name: str, doc: str, *, needed: bool = False) -> RoundColumn:
    return RoundColumn(name, "INTEGER NOT NULL" if needed else "INTEGER", doc)


def _json(name: str, doc: str) -> RoundColumn:
    return RoundColumn(name, "TEXT NOT NULL", doc, is_json=True)


COLUMNS: Final = (
    RoundColumn("key", "TEXT PRIMARY KEY", "start of the load by the wall clock, and run id"),
    _text("night", "sorts by time; one for all rounds of a night", needed=True),
    _text("suite", "name of the suite; `imported` for runs that no suite started", needed=True),
    _text("cell", "combination that is repeated every night", needed=True),
    _text("scenario", "name of the scenario", needed=True),
    _text("variant", "its variant, or empty", needed=True),
    _text("expect", "`clean`, an anomaly class, or empty", needed=True),
    _text("client", "client under load", needed=True),
    _text("client_version", "its version as resolved"),
    _text("system", "`kafka`, `pulsar`, `qpid`", needed=True),
    _text("broker_version", "version of the brokers"),
    _text("runtime", "`process` or `docker`", needed=True),
    _json("settings", "settings of the cell in addition to the scenario"),
    _whole("round", "from 1, within night and cell", needed=True),
    _whole("seed", "decides fault times and targets"),
    _whole("is_sticky", "1: repeats the seed of an earlier red round", needed=True),
    _whole("is_control", "1: a cell that shows what the machine does", needed=True),
    _text("folder", "run folder; empty where there was none", needed=True),
    _text("started", "UTC, ISO 8601"),
    _text("ended", "UTC, ISO 8601"),
    _real("duration_s", "of all phases and judging, seconds"),
    _text("verdict", "`pass`, `fail`, `unknown`; NULL: not judged"),
    _whole("exit_code", "NULL: did not finish"),
    _json("reasons", "reasons for the verdict"),
    _json("untested", "class -> why nothing found proves nothing"),
    _json("sends", "attempted, ok, fail, info, ..."),
    _json("exposure", "exposure counters"),
    _real("rate_asked_per_s", "NULL: as fast as the client can"),
    _real("rate_held_per_s", "messages acknowledged per second"),
    _json("latency_ms", "p50, p90, p99, p999, max, send_delay_p99, from the intended time"),
    _json("outages_s", "longest gap without an acknowledgement, of each fault that had one"),
    _real("longest_outage_s", "of the whole load, seconds"),
    _json(
        "recoveries_s",
        "time from the undoing of each fault to the first acknowledgement on every stream",
    ),
    _whole("faults_fired", "faults that were injected"),
    _whole("faults_effective", "those that proved their effect"),
    _real("cpu_clients_s", "CPU seconds of all workers"),
    _real("cpu_brokers_s", "CPU seconds of all nodes"),
    _text("machine", "fingerprint: system, CPUs, memory, Python"),
    _json("versions", "version of each part"),
    _text("command", "repeats the round", needed=True),
)

_FIRST: Final = f"""
CREATE TABLE rounds ({", ".join(f"{c.name} {c.sql}" for c in COLUMNS if c.since == 1)}) WITHOUT ROWID;
CREATE INDEX rounds_by_cell ON rounds (suite, cell, night);
CREATE INDEX rounds_by_night ON rounds (night, suite);
CREATE TABLE findings (
  key TEXT NOT NULL REFERENCES rounds (key) ON DELETE CASCADE, number INTEGER NOT NULL,
  class TEXT NOT NULL, status TEXT NOT NULL, count INTEGER NOT NULL, episodes INTEGER NOT NULL,
  sentence TEXT NOT NULL, message TEXT NOT NULL, place TEXT NOT NULL, said TEXT NOT NULL,
  PRIMARY KEY (key, number)) WITHOUT ROWID;
CREATE TABLE skipped (
  night TEXT NOT NULL, suite TEXT NOT NULL, cell TEXT NOT NULL, why TEXT NOT NULL,
  PRIMARY KEY (night, suite, cell)) WITHOUT ROWID;
"""

#: Entry n leads from user_version n to n + 1.
MIGRATIONS: Final = (_FIRST,)
VERSION: Final = len(MIGRATIONS)
