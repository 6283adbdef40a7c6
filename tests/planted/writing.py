"""A planted run on disk: the files around the tables, and the sealed tables by the plan's
buckets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.contracts.plan import Plan
from harness.contracts.seal import SealedFile
from harness.records import SEALED, Check, Event
from harness.rundir import RunDir, write_json, write_jsonl
from harness.seal.parquet import BucketFile
from harness.seal.route import Router
from harness.seal.seal import write_sealed_rows

Tables = dict[str, dict[str, npt.NDArray[Any]]]
Rows = Sequence[Mapping[str, Any]]


def bucket_of(
    router: Router, table: str, columns: Mapping[str, npt.NDArray[Any]]
) -> npt.NDArray[np.int64]:
    """Bucket of each row by the rule of `harness.seal.seal`: the header's lane, else the stream."""
    buckets = router.of_rows(columns["lane"], columns["stream"])
    if table == "sends":
        return buckets
    nameless = columns["check"] != Check.OK
    if table == "deliveries":
        nameless = nameless | (columns["event"] != Event.DELIVER)
    return np.where(nameless, router.of_streams(columns["stream"]), buckets)


class GroupedFile:
    """A bucket file that collects chunks of any size into large row groups. No rows: no file."""

    def __init__(self, path: Path, table: str) -> None:
        self._path = path
        self._table = table
        self._parts: list[Mapping[str, npt.NDArray[Any]]] = []
        self._held = 0
        self._file: BucketFile | None = None

    def write(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        self._parts.append(columns)
        self._held += len(columns["stream"])
        if self._held >= _GROUP_ROWS:
            self._flush()

    def commit(self) -> SealedFile | None:
        if self._held:
            self._flush()
        return self._file.commit() if self._file is not None else None

    def _flush(self) -> None:
        names = [c.name for c in SEALED[self._table]]
        whole = {name: np.concatenate([part[name] for part in self._parts]) for name in names}
        self._file = self._file or BucketFile(self._path, self._table)
        self._file.write(whole)
        self._parts, self._held = [], 0


_GROUP_ROWS = 1 << 18  # what harness.seal.seal makes of a run of some ten million rows


def write_sealed(
    run: RunDir, plan: Plan, chunks: Iterable[Tables]
) -> tuple[dict[str, int], dict[str, Any]]:
    """Seal chunks of rows, in order, without a raw form; rows by table, and the files as in
    seal.json."""
    router = Router(plan)
    files: dict[tuple[str, int], BucketFile] = {}
    rows = dict.fromkeys(SEALED, 0)
    for chunk in chunks:
        for table, columns in chunk.items():
            buckets = bucket_of(router, table, columns)
            rows[table] += len(buckets)
            for bucket in np.unique(buckets):
                key = (table, int(bucket))
                if key not in files:
                    files[key] = BucketFile(run.bucket_file(*key, 0), table)
                chosen = np.flatnonzero(buckets == bucket)
                files[key].write({c.name: columns[c.name][chosen] for c in SEALED[table]})
    written = {
        file.path.relative_to(run.sealed).as_posix(): file.commit() for file in files.values()
    }
    return rows, {path: asdict(file) for path, file in written.items()}


def write_run(
    root: Path,
    *,
    plan: Plan,
    chunks: Iterable[Tables],
    names: Rows,
    bounds: Rows,
    leaderships: Rows = (),
    transactions: Rows = (),
    committed: Rows = (),
    replicas: Rows = (),
    faults: Rows = (),
    events: Rows = (),
    epoch_ns: int,
    end_ns: int,
    workers: Mapping[str, Mapping[str, Any]] | None = None,
    manifest: Mapping[str, Any] | None = None,
) -> RunDir:
    """Everything a finished run leaves, with sealed tables and no raw ones."""
    run = RunDir(root).create()
    write_around(
        run,
        plan=plan,
        faults=faults,
        events=events,
        epoch_ns=epoch_ns,
        end_ns=end_ns,
        workers=workers or {},
        manifest=manifest or {},
    )
    run.sealed.mkdir(exist_ok=True)
    rows, files = write_sealed(run, plan, chunks)
    some = (
        (run.leaderships, leaderships),
        (run.transactions, transactions),
        (run.committed_offsets, committed),
        (run.replicas, replicas),
    )
    told = [(path, lines) for path, lines in some if lines]  # a capture may lack them
    for path, lines in ((run.names, names), (run.log_bounds, bounds), *told):
        files[path.name] = asdict(write_sealed_rows(path, map(dict, lines)))
    report = {
        "schema_version": 1,
        "rows": rows,
        "tables": {},
        "files": files,
        "workers": {},
        "wall_s": 0.0,
        "cpu_s": 0.0,
    }
    write_json(run.seal_report, report)
    return run


def write_around(
    run: RunDir,
    *,
    plan: Plan,
    faults: Rows,
    events: Rows,
    epoch_ns: int,
    end_ns: int,
    workers: Mapping[str, Mapping[str, Any]],
    manifest: Mapping[str, Any],
) -> None:
    """plan.json, manifest.json and the JSON-lines files that do not come from sealing."""
    run.plan.write_text(plan.model_dump_json(indent=1) + "\n")
    write_json(run.manifest, _manifest(run, plan, epoch_ns, end_ns, workers) | dict(manifest))
    write_jsonl(run.faults, map(dict, faults))
    write_jsonl(run.events, map(dict, events))
    write_jsonl(run.metrics, map(dict, []))


def _manifest(
    run: RunDir, plan: Plan, epoch_ns: int, end_ns: int, changes: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    second = 1_000_000_000
    edges = [
        ("up", epoch_ns - 10 * second),
        ("ready", epoch_ns - 5 * second),
        ("warm-up", epoch_ns - round(plan.warm_up_s * second)),
        ("load", epoch_ns),
        ("recovery", end_ns),
        ("drain", end_ns + second),
        ("audit", end_ns + 2 * second),
    ]
    ends = [start for _, start in edges[1:]] + [end_ns + 3 * second]
    roles: list[tuple[str, str, str, int]] = [
        *((p.name, "producer", "instance", p.instance) for p in plan.producers),
        *((c.name, "consumer", "session", c.session) for c in plan.consumers),
        ("audit-1", "audit", "reader", 1),
    ]
    workers = [
        {
            "name": name,
            "role": role,
            key: number,
            "client": "confluent-kafka",
            "client_version": "2.16.1",
            "pid": 1000 + index,
            "exit_code": 0,
            "done": True,
            "t_start_ns": edges[1][1],
            "t_end_ns": ends[-1],
            **changes.get(name, {}),
        }
        for index, (name, role, key, number) in enumerate(roles)
    ]
    return {
        "schema_version": 1,
        "run_id": run.run_id,
        "status": "complete",
        "command": "brokerstorm run planted --seed 0",
        "epoch_ns": epoch_ns,
        "epoch_wall": "2026-11-20T12:00:00+00:00",
        "versions": {"brokerstorm": "0", "kafka": plan.version},
        "machine": {"cores": 2},
        "phases": [
            {"name": name, "start_ns": start, "end_ns": end}
            for (name, start), end in zip(edges, ends, strict=True)
        ],
        "workers": workers,
        "readiness_restored": True,
        "drained": True,
        "problems": [],
    }
