"""Runs the contract: the self-test, then every check on a live cluster, each with its result."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from harness.clusters import BrokerCluster, open_cluster
from harness.contract.checks import WorkerCheck
from harness.contract.driving import ContractBroken, NotHere, expect
from harness.contract.rig import RUN_TAG, CheckPlace, Rig
from harness.errors import WorkerError
from harness.systems import SYSTEMS
from harness.workers import launch
from harness.workers.spec import FILE, WorkerSpec

#: What a self-test must write, byte for byte (docs/worker-protocol.md).
GOLDEN: Final = Path(__file__).parent / "golden"
#: Golden files of a worker that can do something more: key and value of its ``[supports]``.
ABLE_ONLY: Final = {
    "due-times.bin": ("rate", "profile"),
    "transactions-7-000000.seg": ("transactions", "produce"),
    "payload-mixed.bin": ("payload", "mixed"),
    "payload-compressible.bin": ("filling", "compressible"),
    "payload-template.bin": ("payload", "template"),
    "payload-encoded.bin": ("payload", "encoded"),
}
SELF_TEST: Final = "the self-test writes the golden files"
SELF_TEST_S: Final = 60.0
UP_S: Final = 180.0  # a start takes 3 to 8 s; machines do other things, too
#: What a check meets where a worker left rows or lines of another form.
_ODD = (LookupError, ValueError, TypeError, OSError)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check. ``text``: why it is broken or was skipped."""

    name: str
    outcome: Literal["ok", "broken", "skipped"]
    text: str
    seconds: float


@contextmanager
def cluster_of(
    system: str,
    run_id: str,
    folder: Path,
    *,
    guard: Callable[[], AbstractContextManager[None]] = nullcontext,
    **more: Any,
) -> Iterator[BrokerCluster[Any]]:
    """A cluster that works and has transactions, with the namespace of the checks; gone at the end.

    ``guard`` is around its end; ``more``: as of `open_cluster`.

    Raises:
        EnvironmentNotReady: it does not come up.
    """
    settings = {"broker_config": dict(SYSTEMS[system].transactional_config)}
    found = open_cluster(system, run_id=run_id, folder=folder, **(settings | more))
    try:
        found.up(timeout_s=UP_S)
        if namespace := SYSTEMS[system].namespace(RUN_TAG):
            found.admin.enter_namespace(namespace)
        yield found
    finally:
        with guard():
            found.down()


def self_test(worker: WorkerSpec, version: str = "") -> None:
    """Let a worker write the golden files.

    Raises:
        ContractBroken: it does not, or writes other bytes; it says where.
        WorkerError, UsageError, EnvironmentNotReady: it cannot be built.
    """
    argv, env = launch(worker, version)
    with tempfile.TemporaryDirectory(prefix="brokerstorm-golden-") as name:
        command = [*argv, "--self-test", name]
        try:
            done = subprocess.run(
                command,
                env={**os.environ, **env},
                capture_output=True,
                text=True,
                timeout=SELF_TEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ContractBroken(f"--self-test does not end within {SELF_TEST_S:.0f} s") from None
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        expect(done.returncode == 0, f"--self-test ended with {done.returncode}: {last[:200]}")
        able: Mapping[Any, Sequence[str]] = worker.supports
        needless = {
            file for file, (key, value) in ABLE_ONLY.items() if value not in able.get(key, ())
        }
        compare_with_golden(Path(name), needless)


def compare_with_golden(folder: Path, needless: Collection[str] = ()) -> None:
    """Raise ContractBroken unless a folder holds the golden files, names.jsonl equal as JSON.

    ``needless``: those that may be left out.
    """
    goldens = sorted(
        path
        for path in GOLDEN.iterdir()
        if path.name not in needless or (folder / path.name).exists()
    )
    found, wanted = (sorted(path.name for path in each) for each in (folder.iterdir(), goldens))
    expect(found == wanted, f"files {', '.join(found) or 'none'}, must be {', '.join(wanted)}")
    for golden in goldens:
        theirs, ours = (path.read_bytes() for path in (folder / golden.name, golden))
        if golden.suffix == ".jsonl":
            lines = [[json.loads(line) for line in each.splitlines()] for each in (theirs, ours)]
            expect(lines[0] == lines[1], f"{golden.name} says {lines[0]}, must say {lines[1]}")
            continue
        at = next(
            (n for n, pair in enumerate(zip(theirs, ours, strict=False)) if pair[0] != pair[1]),
            None,
        )
        if at is not None:
            raise ContractBroken(
                f"{golden.name}: byte {at} is {theirs[at]:#04x}, must be {ours[at]:#04x}"
            )
        expect(
            len(theirs) == len(ours),
            f"{golden.name} has {len(theirs)} bytes, must have {len(ours)}",
        )


def run_self_test(worker: WorkerSpec, version: str = "") -> CheckResult:
    """The self-test as a result."""
    begun = time.monotonic()
    try:
        self_test(worker, version)
    except ContractBroken as broken:
        return CheckResult(SELF_TEST, "broken", str(broken), time.monotonic() - begun)
    return CheckResult(SELF_TEST, "ok", "", time.monotonic() - begun)


def run_checks(
    checks: Iterable[WorkerCheck], place: CheckPlace, worker: WorkerSpec
) -> Iterator[CheckResult]:
    """The result of each check, as soon as it is known; what it left is in a folder of its own.

    Raises:
        EnvironmentNotReady: the cluster does not work any more.
    """
    for number, check in enumerate(checks, start=1):
        if lacking := check.missing(worker):
            text = f"{FILE} has no contract.{lacking}"
            yield CheckResult(check.name, "skipped", text, 0.0)
            continue
        begun = time.monotonic()
        rig = Rig(replace(place, folder=place.folder / f"{number:02d}"), worker)
        outcome, text = _ask(check, rig)
        yield CheckResult(check.name, outcome, text, time.monotonic() - begun)


def _ask(check: WorkerCheck, rig: Rig) -> tuple[Literal["ok", "broken", "skipped"], str]:
    rig.folder.mkdir(parents=True)
    try:
        check.run(rig)
    except NotHere as error:
        return "skipped", str(error)
    except (ContractBroken, WorkerError) as error:
        return "broken", f"{error} (see {rig.folder})"
    except _ODD as error:
        return "broken", f"its output cannot be read: {error!r} (see {rig.folder})"
    finally:
        rig.close()
    return "ok", ""
