"""The questions that judging answers, as DuckDB SQL over the sealed files of a run.

Written the way somebody who knows DuckDB would: stored messages are grouped once and joined to the
sends once (`FATE`), order is one window by message, with the exact test only in lanes where
something goes back, and what is rare is looked at after it has been filtered out. ``--by-bucket``
asks bucket by bucket instead of all at once, which keeps hash tables small; the bench reports both
and compares with the faster.

    python -m bench.duckdb_questions runs/latest [--by-bucket] [--threads 2]
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Final

import duckdb

from harness.contracts.plan import Plan
from harness.records import SEALED
from harness.rundir import RunDir

#: One row a message: how often it is stored and where, and what became of its send.
FATE: Final = """
CREATE OR REPLACE TEMP TABLE fate AS
WITH stored AS (
    SELECT instance, lane, seq, attempt, count(*) AS copies, min(position) AS first_position,
           max(position) AS last_position, any_value(stream) AS found_in
    FROM log WHERE "check" = 0 AND kind <> 0
    GROUP BY instance, lane, seq, attempt
)
SELECT instance, lane, seq, attempt, coalesce(copies, 0) AS copies, first_position, last_position,
       found_in, outcome, s.stream AS acked_stream, s.position AS acked_position
FROM stored FULL JOIN (
    SELECT instance, lane, seq, attempt, outcome, stream, position FROM sends WHERE kind <> 0
) s USING (instance, lane, seq, attempt)
"""

#: (class, split, count) of everything that outcome, presence and place decide.
PRESENCE: Final = """
WITH corrupt AS (SELECT stream, position FROM log WHERE "check" = 1),
lanes AS (
    SELECT instance, lane, min(seq) FILTER (copies > 0) AS low, max(seq) FILTER (copies > 0) AS high,
           max(seq) AS top
    FROM fate WHERE outcome IS NOT NULL GROUP BY instance, lane
),
odd AS (
    SELECT f.*, l.low, l.high, l.top, c.position IS NOT NULL AS is_corrupt
    FROM fate f LEFT JOIN lanes l USING (instance, lane)
    LEFT JOIN corrupt c ON f.acked_stream = c.stream AND f.acked_position = c.position
    WHERE outcome IS NULL OR outcome <> 1 OR copies <> 1
)
SELECT CASE
    WHEN outcome IS NULL AND top IS NOT NULL AND seq <= top THEN 'send-record-missing'
    WHEN outcome IS NULL THEN 'phantom'
    WHEN outcome = 2 AND copies > 0 THEN 'false-nack'
    WHEN outcome = 3 AND copies > 0 THEN 'info-stored'
    WHEN outcome = 3 THEN 'info-not-stored'
    WHEN outcome = 1 AND copies = 0 AND is_corrupt THEN 'corrupt'
    WHEN outcome = 1 AND copies = 0 THEN 'acked-lost' END AS class,
    CASE WHEN class <> 'acked-lost' THEN '' WHEN high IS NULL THEN 'all' WHEN seq < low THEN 'prefix'
    WHEN seq > high THEN 'tail' ELSE 'middle' END AS split, count(*) AS n
FROM odd WHERE class IS NOT NULL GROUP BY ALL
UNION ALL SELECT 'phantom', if("check" = 2, 'foreign', 'other run'), count(*)
FROM log WHERE "check" IN (2, 3) GROUP BY ALL
UNION ALL SELECT 'wrong-partition', '', count(*)
FROM fate f JOIN lane_stream m USING (lane) WHERE f.copies > 0 AND f.found_in <> m.stream
"""

#: Late first appearances and premature-then-repeat; other repeats are duplicates.
ORDER: Final = """
WITH once AS (SELECT * FROM fate WHERE copies > 0 AND outcome IS NOT NULL AND attempt = 0),
steps AS (
    SELECT instance, lane, found_in,
           first_position < lag(first_position) OVER by_message AS back
    FROM once WINDOW by_message AS (PARTITION BY instance, lane, found_in ORDER BY seq)
),
affected AS (SELECT DISTINCT instance, lane, found_in FROM steps WHERE back),
placed AS (
    SELECT o.*, max(first_position) OVER (
        PARTITION BY instance, lane, found_in ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS before FROM once o SEMI JOIN affected USING (instance, lane, found_in)
),
settled AS (
    SELECT *, copies > 1 AND first_position < before AND last_position > before AS premature,
           if(premature, last_position, first_position) AS place FROM placed
),
judged AS (
    SELECT *, NOT premature AND place > min(place) OVER (
        PARTITION BY instance, lane, found_in ORDER BY seq ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
    ) AS late FROM settled
),
attempts AS (
    SELECT instance, lane, seq FROM fate SEMI JOIN
        (SELECT DISTINCT instance, lane, seq FROM fate WHERE attempt > 0) USING (instance, lane, seq)
    WHERE copies > 0 AND outcome IS NOT NULL GROUP BY ALL HAVING count(*) > 1
)
SELECT 'premature-then-repeat' AS class, '' AS split, count(*) AS n FROM judged WHERE premature
UNION ALL SELECT 'producer-reorder', '', count(*) FROM judged WHERE late
UNION ALL SELECT 'write-duplicate', 'same send', count(*) FROM fate f
    ANTI JOIN (FROM judged WHERE premature) USING (instance, lane, seq, attempt)
    WHERE copies > 1 AND outcome IS NOT NULL
UNION ALL SELECT 'write-duplicate', 'application re-send', count(*) FROM attempts
"""

#: What consumers got. Repeats are found by counting, then placed between assignments and commits.
DELIVERY: Final = """
WITH given AS (SELECT * FROM deliveries WHERE event = 1 AND kind <> 0 AND "check" = 0),
counted AS (SELECT stream, position, count(*) AS n FROM given GROUP BY ALL),
repeats AS (
    SELECT g.stream, g.position, g.t_ns,
           row_number() OVER (PARTITION BY g.stream, g.position ORDER BY g.t_ns) AS nth
    FROM given g SEMI JOIN (FROM counted WHERE n > 1) c ON g.stream = c.stream AND g.position = c.position
),
assigned AS (SELECT stream, t_ns FROM deliveries WHERE event = 10),
tenure AS (
    SELECT r.*, a.t_ns AS start_ns FROM repeats r
    ASOF JOIN assigned a ON r.stream = a.stream AND r.t_ns >= a.t_ns
),
placed AS (
    SELECT t.*, c.position AS committed,
           lag(start_ns) OVER (PARTITION BY t.stream, t.position ORDER BY t.t_ns) AS start_before
    FROM tenure t ASOF LEFT JOIN (SELECT stream, position, t_ns FROM deliveries WHERE event = 5) c
        ON t.stream = c.stream AND t.start_ns >= c.t_ns
),
back AS (
    SELECT stream, position, session, epoch,
           position < lag(position) OVER (PARTITION BY session, stream ORDER BY ordinal) AS back FROM given
)
SELECT CASE WHEN start_ns = start_before THEN 'delivery-duplicate'
    WHEN position < committed THEN 'rewind-past-commit' ELSE 'delivery-duplicate' END AS class,
    CASE WHEN class <> 'delivery-duplicate' THEN '' WHEN start_ns = start_before THEN 'same assignment'
    ELSE 'after rebalance' END AS split, count(*) AS n
FROM placed WHERE nth > 1 GROUP BY ALL
UNION ALL SELECT 'delivery-reorder', '', count(*) FROM back b
    ANTI JOIN (FROM counted WHERE n > 1) c ON b.stream = c.stream AND b.position = c.position WHERE back
UNION ALL SELECT 'not-dispatched', '', count(*)
FROM (SELECT instance, lane, seq, attempt, stream, position FROM log WHERE "check" = 0 AND kind <> 0) l
    ANTI JOIN counted c ON l.stream = c.stream AND l.position = c.position
"""

TOTALS: Final = "SELECT outcome, count(*) AS n FROM sends GROUP BY outcome"
LATENCY: Final = """
SELECT approx_quantile((t_done_ns - t_intended_ns)::DOUBLE, [0.5, 0.9, 0.99, 0.999]),
       max(t_done_ns - t_intended_ns)
FROM sends WHERE outcome = 1 AND kind = 2
"""
TIMELINE: Final = """
SELECT t_intended_ns // 1000000000 AS second, count(*) FILTER (outcome = 1) AS ok,
       count(*) FILTER (outcome = 2) AS fail, count(*) FILTER (outcome = 3) AS info,
       approx_quantile((t_done_ns - t_intended_ns)::DOUBLE, [0.5, 0.99])
FROM sends GROUP BY ALL ORDER BY ALL
"""
#: Clients that gave themselves up: workers say so in events.jsonl, once or more often.
DEATHS: Final = """
SELECT count(DISTINCT worker)
FROM read_json('{events}', format = 'newline_delimited', columns = {{worker: 'VARCHAR', kind: 'VARCHAR'}})
WHERE kind = 'client-died'
"""
_FINDING: Final = {"presence": PRESENCE, "order": ORDER, "delivery": DELIVERY}
_ONCE: Final = {"totals": TOTALS, "latency": LATENCY, "timeline": TIMELINE}


def ask(run: RunDir, *, threads: int, by_bucket: bool, memory: str = "") -> dict[str, Any]:
    """Counts by class and split, outcome totals, latency quantiles in ns; seconds by question."""
    connection = duckdb.connect()
    connection.execute(f"SET threads = {threads}; SET preserve_insertion_order = false")
    if memory:
        connection.execute(f"SET memory_limit = '{memory}'")
    seconds: dict[str, float] = defaultdict(float)
    counts: Counter[tuple[str, str]] = Counter()
    began = time.perf_counter()
    _lane_streams(connection, Plan.model_validate_json(run.plan.read_text()))
    answers: dict[str, Any] = {}
    _views(connection, run, "*")
    for name, query in _ONCE.items():
        answers[name] = _timed(connection, name, query, seconds)
    dead = DEATHS.format(events=str(run.events).replace("'", "''"))
    ((counts["client-died", "gave up"],),) = _timed(connection, "deaths", dead, seconds)
    buckets = sorted(p.name.split("=")[1] for p in (run.sealed / "sends").glob("bucket=*"))
    questions = dict(_FINDING)
    if not any((run.sealed / "deliveries").glob("bucket=*/*.parquet")):
        del questions["delivery"]  # without a subscription nothing was missed
    for bucket in buckets if by_bucket else ["*"]:
        _views(connection, run, bucket)
        _timed(connection, "fate", FATE, seconds)
        for name, query in questions.items():
            for cls, split, number in _timed(connection, name, query, seconds):
                counts[cls, split] += number
    return {
        "counts": [[cls, split, n] for (cls, split), n in sorted(counts.items()) if n],
        "totals": {int(outcome): n for outcome, n in answers["totals"]},
        "latency_ns": [*answers["latency"][0][0], answers["latency"][0][1]],
        "seconds": {name: round(s, 3) for name, s in seconds.items()},
        "wall_s": round(time.perf_counter() - began, 3),
    }


def _views(connection: duckdb.DuckDBPyConnection, run: RunDir, bucket: str) -> None:
    for table in SEALED:
        files = str(run.sealed / table / f"bucket={bucket}" / "*.parquet").replace("'", "''")
        there = list((run.sealed / table).glob(f"bucket={bucket}/*.parquet"))
        columns = ", ".join(f"0::BIGINT AS {c.name!r}".replace("'", '"') for c in SEALED[table])
        source = f"read_parquet('{files}')" if there else f"(SELECT {columns} WHERE false)"
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {table} AS FROM {source}")


def _lane_streams(connection: duckdb.DuckDBPyConnection, plan: Plan) -> None:
    """Stream that a lane of an explicit partition must be stored in."""
    number = {text: n for n, text in enumerate(plan.streams(), start=1)}
    rows = [
        (group.first + i, number[f"{group.topic}-{i}"])
        for group in plan.lane_groups
        if group.mode == "partition"
        for i in range(group.count)
    ]
    connection.execute("CREATE TEMP TABLE lane_stream (lane UINTEGER, stream INTEGER)")
    connection.executemany("INSERT INTO lane_stream VALUES (?, ?)", rows)


def _timed(
    connection: duckdb.DuckDBPyConnection, name: str, query: str, seconds: dict[str, float]
) -> list[Any]:
    began = time.perf_counter()
    rows: list[Any] = connection.execute(query).fetchall()
    seconds[name] += time.perf_counter() - began
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--by-bucket", action="store_true")
    parser.add_argument(
        "--memory", default="", help="DuckDB's memory_limit, e.g. 4GB; default: its own"
    )
    options = parser.parse_args()
    answers = ask(
        RunDir(options.run.resolve()),
        threads=options.threads,
        by_bucket=options.by_bucket,
        memory=options.memory,
    )
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
