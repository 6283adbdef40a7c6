"""docs/reference/history.md: the tables of the history file, from `experiments.history.schema`."""

from __future__ import annotations

from docs.markdown import MADE
from experiments.history.schema import COLUMNS, VERSION

_HEAD = f"""# The history file

{MADE}

One SQLite file, `history.sqlite` unless another is named, with one row a round. `PRAGMA user_version` is the
schema, now {VERSION}. NULL (or an empty JSON object or list) means *not known* or *not measured*, never zero.
Times are UTC. JSON columns hold text that `json_extract` reads.

- Each round is one transaction, on disk before the next begins: `kill -9` loses at most the round that was
  not finished. While the file is open, and after a `kill -9`, `history.sqlite-wal` and `history.sqlite-shm`
  are next to it and belong to it: keep all three together.
- Several processes may write. A process that finds the file locked waits for 30 seconds, then ends with exit
  code 4.
- A file of an older schema is brought to this one when it is opened. One of a newer schema is refused (exit
  code 2).
- A damaged file is renamed to `history.sqlite.damaged-<time>`, said on stderr, and a new one is begun;
  `brokerstorm history import` takes the runs that are still there.

## rounds

| column | type | meaning |
|---|---|---|
"""
_REST = """
## findings

One row for each class that a round shows.

| column | type | meaning |
|---|---|---|
| key, number | TEXT, INTEGER | the round, and which of its findings |
| class, status | TEXT | as in [result.json](json.md) |
| count, episodes | INTEGER | messages (or what the class counts); groups of them close in time |
| sentence | TEXT | what the class found, in words |
| message, place, said | TEXT | the earliest witness: message, lane and stream, in one line |

## skipped

Cells that did not run in a night.

| column | type | meaning |
|---|---|---|
| night, suite, cell | TEXT | which |
| why | TEXT | no time left, excluded, no such version, ... |
"""


def history_page() -> str:
    """The page."""
    rows = [
        f"| {c.name} | {c.sql.split()[0]}{' (JSON)' if c.is_json else ''} | {c.doc} |"
        for c in COLUMNS
    ]
    return _HEAD + "\n".join(rows) + "\n" + _REST
