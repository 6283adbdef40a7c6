"""Imports a capture of another tool: plain Parquet tables become a run that every command understands.

The source is a folder (any URI Spark reads) with ``sends/`` and ``log/``, and ``deliveries/`` if there are
any, in the sealed columns of `harness.records`; columns left out take a neutral value. Beside them lie the
small files of a run, as far as they exist:

    names.jsonl        names of the streams: needed
    log_bounds.jsonl   how far the log was read: without it no loss at the tail is proved, and nothing passes
    plan.json, manifest.json, faults.jsonl, events.jsonl, metrics.jsonl: made up where missing

Here, and only here, rows are shuffled: Spark repartitions each table by lane -> bucket. From then on an
imported run is a sealed run and meets the same kernels.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pafs

from analysis.capture.imports_plan import Routing, make_manifest, make_plan, renumbered, routing_of
from harness.errors import UsageError
from harness.records import SEALED, Check, Event, Kind
from harness.rundir import RunDir, write_json, write_jsonl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUCKETS = 16  # several a core, so that cores stay busy to the end; more only costs files
_REQUIRED = {
    "sends": ("instance", "lane", "seq", "outcome"),
    "log": ("stream", "position", "instance", "lane", "seq"),
    "deliveries": ("session", "ordinal", "stream", "position"),
}
_NEUTRAL: Mapping[str, int] = {
    "kind": int(Kind.LOAD),
    "event": int(Event.DELIVER),
    "epoch": 1,
    "redelivery": -1,
    "broker_time_ms": -1,
}
_ORDER = {
    "sends": ("instance", "lane", "seq", "attempt"),
    "log": ("stream", "ledger", "position", "batch"),
    "deliveries": ("session", "ordinal"),
}
_JSON_LINES = ("names", "log_bounds", "faults", "events", "metrics")
_DOCUMENTS = ("plan", "manifest")
_WHAT_IT_HOLDS = "it must hold sends/ and log/ with Parquet files, see docs/howto/judge-another-capture.md"
#: Spark has no unsigned types: the next larger signed one.
_SPARK_TYPE = {"uint8": "smallint", "uint16": "int", "uint32": "bigint", "int32": "int", "int64": "bigint"}


@dataclass(frozen=True, slots=True)
class Source:
    """Where the tables are, and the small files that were found beside them."""

    uri: str
    tables: tuple[str, ...]
    lines: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    documents: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def open(cls, uri: str) -> Source:
        """List the folder and read its small files.

        Raises:
            UsageError: it cannot be read, or holds no ``sends`` and ``log``.
        """
        try:
            filesystem, root = (
                pafs.FileSystem.from_uri(uri) if "://" in uri else (pafs.LocalFileSystem(), uri)
            )
            found = {i.base_name for i in filesystem.get_file_info(pafs.FileSelector(root))}
            texts = {
                name: filesystem.open_input_stream(f"{root}/{name}").read().decode()
                for name in found
                if name.endswith((".json", ".jsonl"))
            }
            lines = {n: _lines(texts[f"{n}.jsonl"]) for n in _JSON_LINES if f"{n}.jsonl" in texts}
            documents = {n: json.loads(texts[f"{n}.json"]) for n in _DOCUMENTS if f"{n}.json" in texts}
        except FileNotFoundError as error:
            raise UsageError(
                f"cannot read a capture from {uri}: there is no such folder", hint=_WHAT_IT_HOLDS
            ) from error
        except (OSError, pa.ArrowException, ValueError) as error:
            raise UsageError(f"cannot read a capture from {uri}: {error}", hint=_WHAT_IT_HOLDS) from error
        tables = tuple(name for name in SEALED if name in found)
        if missing := [name for name in ("sends", "log") if name not in tables]:
            raise UsageError(
                f"no capture in {uri}: folder {missing[0]}/ is missing",
                hint=_WHAT_IT_HOLDS,
            )
        return cls(uri, tables, lines, documents)


def import_capture(source_uri: str, run: RunDir, session: SparkSession, *, buckets: int = BUCKETS) -> RunDir:
    """Make ``run`` from the tables at ``source_uri``; return it, sealed and ready for `analysis.spark.judge`.

    Args:
        source_uri: folder of another tool's capture, readable by the driver and by executors.
        buckets: tasks to judge it with, at most.

    Raises:
        UsageError: a table, a column or the names of the streams are missing.
    """
    source = Source.open(source_uri)
    topics, ids = renumbered(source.lines.get("names", ()), source_uri)
    frames = {name: _table(session, source, name, ids) for name in source.tables}
    for name, frame in frames.items():
        _refuse_odd(frame, f"{source.uri}/{name}", name)
    span_ns = _span_ns(frames)
    plan = source.documents.get("plan")
    if plan is None:
        routing = Routing.of(_lane_streams(frames), topics, buckets)
        owners = _distinct(frames, "instance"), _distinct(frames, "session")
        plan = make_plan(topics, routing, buckets, *owners, (span_ns[1] - span_ns[0]) / 1e9)
    else:
        routing = routing_of(plan)
    manifest = source.documents.get("manifest") or make_manifest(run.run_id, plan, source_uri, *span_ns)
    run.create()
    rows = {name: _write(session, frame, name, routing, run) for name, frame in frames.items()}
    write_json(run.plan, plan)
    write_json(run.manifest, manifest)
    _write_lines(run, source, topics, ids)
    tables = {name: _written(run, name, count) for name, count in rows.items()}
    report = {"schema_version": 1, "rows": rows, "tables": tables, "workers": {}, "wall_s": 0.0, "cpu_s": 0.0}
    write_json(run.seal_report, report | {"imported": source_uri})
    return run


def _written(run: RunDir, table: str, rows: int) -> dict[str, int]:
    """A table as the report of sealing counts it."""
    files = list((run.sealed / table).glob("bucket=*/*.parquet"))
    return {"rows": rows, "files": len(files), "bytes": sum(file.stat().st_size for file in files)}


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _table(session: SparkSession, source: Source, name: str, ids: Mapping[int, int]) -> DataFrame:
    """The sealed columns of a table, with stream ids of the plan's order."""
    from pyspark.sql import functions as F

    frame = session.read.parquet(f"{source.uri}/{name}")
    missing = [column for column in _REQUIRED[name] if column not in frame.columns]
    if missing:
        raise UsageError(
            f"{source.uri}/{name}: column {missing[0]!r} is missing; found {', '.join(frame.columns)}",
            hint="docs/capture-format.md lists the sealed columns",
        )
    columns = [
        (F.col(c.name) if c.name in frame.columns else F.lit(_NEUTRAL.get(c.name, 0)))
        .cast(_SPARK_TYPE[c.dtype])
        .alias(c.name)
        for c in SEALED[name]
    ]
    renamed = F.coalesce(_looked_up(ids, "stream"), F.lit(0)).cast("int")
    return frame.select(*columns).withColumn("stream", renamed)


def _refuse_odd(frame: DataFrame, uri: str, name: str) -> None:
    """Numbers that are no identity of a message: kernels take them for places in arrays.

    Raises:
        UsageError: the column and the value.
    """
    from pyspark.sql import functions as F

    messages = frame.where(_is_message(name))
    names = ("instance", "lane", "seq", "attempt")
    odd = messages.agg(
        *(F.min(n).alias(n) for n in names),
        *(F.sum(F.col(n).isNull().cast("int")).alias(f"no {n}") for n in names),
    ).collect()[0]
    for column in names:
        if odd[f"no {column}"]:
            raise UsageError(f"{uri}: {odd[f'no {column}']} messages have no {column}")
        if odd[column] is not None and odd[column] < 0:
            raise UsageError(f"{uri}: {column} must be 0 or more, found {odd[column]}")


def _is_message(name: str) -> Any:
    """Rows that name a message: not what is foreign in the log, nor an event of a session."""
    from pyspark.sql import functions as F

    found = F.lit(True) if name == "sends" else F.col("check") == int(Check.OK)
    return found & (F.col("event") == int(Event.DELIVER)) if name == "deliveries" else found


def _looked_up(values: Mapping[int, int], column: str) -> Any:
    """The value for each entry of a column, null where there is none. For few entries: streams."""
    from pyspark.sql import functions as F

    if not values:
        return F.lit(None)
    pairs = [F.lit(number) for pair in values.items() for number in pair]
    return F.try_element_at(F.create_map(*pairs), F.col(column).cast("int"))


def _lane_streams(frames: Mapping[str, DataFrame]) -> list[tuple[int, int]]:
    """(lane, stream) wherever a message of the lane was found; stream 0 for a lane found nowhere."""
    seen = (
        frames["sends"]
        .select("lane", "stream")
        .unionByName(frames["log"].where(f"check = {int(Check.OK)}").select("lane", "stream"))
    )
    return [(int(r["lane"]), int(r["stream"])) for r in seen.distinct().collect()]


def _distinct(frames: Mapping[str, DataFrame], column: str) -> list[int]:
    table = "sends" if column == "instance" else "deliveries"
    if table not in frames:
        return []
    return sorted(int(row[0]) for row in frames[table].select(column).distinct().collect())


def _write(session: SparkSession, frame: DataFrame, name: str, routing: Routing, run: RunDir) -> int:
    """One folder a bucket, in the order that kernels like; rows written."""
    from pyspark.sql import functions as F

    lanes = session.createDataFrame(list(routing.lanes.items()), "lane bigint, lane_bucket int")
    stream_bucket = F.coalesce(_looked_up(routing.streams, "stream"), F.lit(0))
    bucket = F.when(_is_message(name), F.coalesce("lane_bucket", stream_bucket)).otherwise(stream_bucket)
    routed = (
        frame.join(F.broadcast(lanes), "lane", "left")
        .withColumn("bucket", F.format_string("%02d", bucket.cast("int")))
        .select(*(c.name for c in SEALED[name]), "bucket")
    )
    (
        routed.repartition("bucket")
        .sortWithinPartitions("bucket", *_ORDER[name])
        .write.mode("overwrite")
        .partitionBy("bucket")
        .parquet(str(run.sealed / name))
    )
    return int(frame.count())


def _span_ns(frames: Mapping[str, DataFrame]) -> tuple[int, int]:
    """First intended time and last outcome of the sends."""
    from pyspark.sql import functions as F

    first, last, done = (
        frames["sends"]
        .where(f"kind != {int(Kind.PROBE)}")
        .agg(F.min("t_intended_ns"), F.max("t_start_ns"), F.max("t_done_ns"))
        .collect()[0]
    )
    return int(first or 0), max(int(last or 0), int(done or 0))


def _write_lines(run: RunDir, source: Source, topics: Mapping[str, int], ids: Mapping[int, int]) -> None:
    """The JSON-lines files, with stream ids of the plan's order."""
    streams = [f"{topic}-{p}" for topic, count in topics.items() for p in range(count)]
    other = [r for r in source.lines.get("names", ()) if r["kind"] != "stream"]
    if clash := [r for r in other if int(r["id"]) <= len(streams)]:
        raise UsageError(
            f"{source.uri}/names.jsonl: id {clash[0]['id']} of {clash[0]['text']!r} is needed for a stream",
            hint=f"ids 1..{len(streams)} are the streams; number the rest from {len(streams) + 1}",
        )
    named = [{"id": i, "kind": "stream", "text": text} for i, text in enumerate(streams, start=1)]
    write_jsonl(run.names, [*named, *other])
    bounds = source.lines.get("log_bounds", ())
    write_jsonl(run.log_bounds, [{**row, "stream_id": ids.get(int(row["stream_id"]), 0)} for row in bounds])
    for path in (run.faults, run.events, run.metrics):
        write_jsonl(path, _of(source, path.stem))


def _of(source: Source, name: str) -> Iterable[dict[str, Any]]:
    return source.lines.get(name, ())
