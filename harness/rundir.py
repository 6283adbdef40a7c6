"""Every path inside a run directory, in one place: of a run, or a campaign whose rounds are
sub-folders."""

from __future__ import annotations

import json
import os
import shlex
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from fcntl import LOCK_EX, flock
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from harness.errors import UsageError
from harness.run_ids import is_run_id, run_id_from

LATEST = "latest"
#: An object of JSON, YAML or TOML as a file, an answer or a message has it: not checked by a model
#: yet, or made to be written or shown.
Document = dict[str, Any]
#: Of the JSON Schemas that we publish.
DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: Bounds of what is read of a run, which may come from a stranger. Ours nest 8 deep at most.
MOST_BYTES = 64 << 20
MOST_ROWS_BYTES = 1 << 30
MOST_DEPTH = 64
#: What makes a folder a night of a suite (`experiments.nights.night`).
NIGHT_FILE = "night.json"
#: What was asked, of an experiment that the user can resume.
ASKED = "experiment.json"


class PathBelow:
    """An attribute: a path below the ``root`` that an object has."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, folder: Any, owner: type) -> Path:
        found: Path = folder.root / self._path
        return found


@dataclass(frozen=True, slots=True)
class RunDir:
    """Paths of one run. Nothing is created until `create`."""

    root: Path

    #: What was asked, and what was resolved from it.
    scenario = PathBelow("scenario.yaml")
    plan = PathBelow("plan.json")
    #: Versions, machine, command, promise, phases, status.
    manifest = PathBelow("manifest.json")
    #: Present only in the folder of a scenario with variants.
    campaign = PathBelow("campaign.json")
    #: Present only in the folder of an experiment that can be resumed: what was asked.
    experiment = PathBelow(ASKED)
    #: A folder a worker: spec.json, names.jsonl, segments, stdout.jsonl, stderr.log.
    raw = PathBelow("raw")
    #: A folder an instance of an application: its stdout and stderr, and the folder of its own.
    applications = PathBelow("applications")
    #: A folder a table, with one a bucket (`bucket_folder`).
    sealed = PathBelow("sealed")
    names = PathBelow("sealed/names.jsonl")
    log_bounds = PathBelow("sealed/log_bounds.jsonl")
    #: Who led which stream; missing where it is not known. Raw: as it was reported, before it was
    #: sealed.
    leaderships = PathBelow("sealed/leaderships.jsonl")
    raw_leaderships = PathBelow("leaderships.jsonl")
    #: What the groups of pipelines had committed in the end; missing where it is not known.
    committed_offsets = PathBelow("sealed/committed_offsets.jsonl")
    raw_committed_offsets = PathBelow("committed_offsets.jsonl")
    #: What every replica has; missing where only leaders were read.
    replicas = PathBelow("sealed/replicas.jsonl")
    raw_replicas = PathBelow("replicas.jsonl")
    #: What producers journalled of their transactions; missing where there were none.
    transactions = PathBelow("sealed/transactions.jsonl")
    #: Transactions as the brokers' logs hold them; missing where none were used.
    log_transactions = PathBelow("log_transactions.jsonl")
    #: Rows, files and damage per worker; present when sealing has finished.
    seal_report = PathBelow("sealed/seal.json")
    #: What was sealed during the run; removed when sealing has finished.
    sealed_parts = PathBelow("sealed/parts.jsonl")
    #: What the bundle that a run came from leaves out of its capture; missing where it is whole.
    left_out = PathBelow("left-out.json")
    #: What a bundle says of itself; present only where one was opened.
    bundle = PathBelow("bundle.json")
    faults = PathBelow("faults.jsonl")
    events = PathBelow("events.jsonl")
    metrics = PathBelow("metrics.jsonl")
    #: Faults that are applied right now.
    ledger = PathBelow("ledger")
    #: Dumps of workers that hung.
    stacks = PathBelow("stacks")
    #: A folder a node; of the rounds of a campaign or an experiment, in the folder of that.
    cluster = PathBelow("cluster")
    result = PathBelow("result.json")
    report = PathBelow("report.html")
    junit = PathBelow("junit.xml")

    @property
    def run_id(self) -> str:
        """The id of the run: the name of its folder."""
        return self.root.name

    def worker(self, name: str) -> Path:
        """Return the raw folder of a worker."""
        return self.raw / name

    def bucket_folder(self, table: str, bucket: int) -> Path:
        """The folder that holds a table's rows of one bucket, in any number of parts."""
        return self.sealed / table / f"bucket={bucket:02d}"

    def bucket_file(self, table: str, bucket: int, part: int) -> Path:
        """Where sealing writes one part of a bucket. Readers take all parts
        (`analysis.capture.capture.bucket_parts`): no part is the bucket.

        ``part``: 0, 1, 2 ... in a run that is sealed during the load; 1 and up: parts of other
        machines.
        """
        return self.bucket_folder(table, bucket) / f"part-{part}.parquet"

    def calibration(self, name: str) -> RunDir:
        """Where one measurement of what the machine keeps leaves its logs."""
        return RunDir(self.root / "calibration" / name)

    def create(self) -> RunDir:
        """Make the folder and its fixed sub-folders; return self."""
        for folder in (self.root, self.raw, self.ledger):
            folder.mkdir(parents=True, exist_ok=True)
        return self

    def rounds(self) -> list[RunDir]:
        """The runs below a campaign, in order of start; empty for a plain run.

        Raises:
            UsageError: campaign.json is damaged, or names a folder that is not below its own: it
                may come from a stranger, and what is read of a run is also written there.
        """
        if not self.campaign.exists():
            return []
        entries = read_json(self.campaign).get("runs")
        if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
            raise UsageError(f"{self.campaign}: runs is not a list of folders")
        for entry in entries:
            if not is_run_id(entry):
                raise UsageError(f"{self.campaign}: {entry!r} is not the folder of a round")
        return [RunDir(self.root / entry) for entry in entries]


def is_url(name: str) -> bool:
    """Whether a run, or a folder of them, is named by a URL (`harness.stored`)."""
    return "://" in name


def find_run(base: Path, name: str | None) -> RunDir:
    """The run that the user means: a path, an id below ``base``, or the latest.

    Raises:
        UsageError: no such run, a night, or the folder holds no run or does not say which is the
            latest.
    """
    if night := find_night(base, name):
        raise UsageError(
            f"{night.name} is a night of several runs",
            hint=f"`brokerstorm list runs {night.name}` names them; `brokerstorm show {night.name}` shows it",
        )
    wanted = name or LATEST
    candidates = _places(base, wanted)
    for path in candidates:
        run = RunDir(resolved(path))
        if run.manifest.exists() or run.campaign.exists():
            return run
    have = ", ".join(r.run_id for r in list(all_runs(base))[:5])
    if not have and name is None:
        raise UsageError(
            f"there is no run in {base} yet", hint="`brokerstorm run kafka-quick` makes one"
        )
    is_there = any(path.exists() for path in candidates)
    raise UsageError(
        f"no run {wanted!r} in {base}"
        + (": it has no manifest.json or campaign.json" if is_there else ""),
        hint=f"runs there: {have or 'none yet'}. `brokerstorm list runs` shows all",
    )


def find_night(base: Path, name: str | None) -> Path | None:
    """The folder of the night that the user names; without a name, of the newest one in a folder
    that holds nights and no run. None if it is not a nightly run."""
    if name is not None:
        return next((path for path in _places(base, name) if (path / NIGHT_FILE).is_file()), None)
    if _latest(base) is not None or not base.is_dir():
        return None
    nights = (path.parent for path in base.glob(f"*/{NIGHT_FILE}") if not path.parent.is_symlink())
    return max(nights, key=lambda path: path.name, default=None)


def _places(base: Path, name: str) -> list[Path]:
    """Where a run of that name may be."""
    head, _, rest = name.partition(os.sep)
    found = [Path(name)] if os.sep in name else []
    if head == LATEST and (latest := _latest(base)) is not None:
        found.append(latest / rest)
    return [*found, base / name, Path(name)]


def _latest(base: Path) -> Path | None:
    """The latest run of a folder; None where there is none.

    The link says it. Copies of runs come without the link: then it is the one that began last.

    Raises:
        UsageError: several runs, and not all of their names say when they began.
    """
    link = base / LATEST
    if any(path.exists() for path in (RunDir(link).manifest, RunDir(link).campaign)):
        return link
    runs = list(all_runs(base))
    if len(runs) < 2:
        return runs[0].root if runs else None
    try:
        return max(runs, key=lambda run: begun_at(run.run_id)).root
    except ValueError:
        names = ", ".join(run.run_id for run in runs[:5])
        raise UsageError(
            f"{base} has several runs and no link {LATEST!r}, so the latest one is unknown",
            hint=f"name one: {names}. `brokerstorm list runs` shows all",
        ) from None


def all_runs(base: Path) -> Iterator[RunDir]:
    """Every run and campaign below ``base``, newest first."""
    if not base.is_dir():
        return
    folders = [p for p in base.iterdir() if p.is_dir() and not p.is_symlink()]
    for path in sorted(folders, key=lambda p: p.name, reverse=True):
        run = RunDir(path)
        if run.manifest.exists() or run.campaign.exists():
            yield run


#: When a run began, in the time of its machine, as its name says it.
_BEGUN = "%Y%m%d-%H%M%S"


def begun_at(run_id: str) -> datetime:
    """When the run of a name began.

    Raises:
        ValueError: the name is somebody's own.
    """
    return datetime.strptime("-".join(run_id.split("-")[:2]), _BEGUN).astimezone()


def new_run(run_dir: Path, name: str) -> RunDir:
    """A folder of its own for a run that starts now, named so that names sort by time. The name is
    a run id: what else ``name`` has becomes a dash.

    Raises:
        UsageError: the folder of runs cannot be written, or something else has the name of the
            latest run.
    """
    stem = run_id_from(f"{time.strftime(_BEGUN)}-{name}")
    _require_a_link(run_dir / LATEST)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        for number in range(1, 100):
            folder = run_dir / (stem if number == 1 else f"{stem}-{number}")
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return RunDir(folder)
    except OSError as error:
        raise UsageError(
            f"cannot write to the run folder {run_dir}: {error.strerror}",
            hint="--run-dir names another",
        ) from error
    raise UsageError(f"{run_dir} already holds a hundred runs of this second")


def _require_a_link(latest: Path) -> None:
    if latest.exists() and not latest.is_symlink():
        raise UsageError(
            f"{latest} is not the link to the latest run, but a file or folder of another origin",
            hint=f"mv {shlex.quote(str(latest))} {shlex.quote(f'{latest}.old')}",
        )


def point_latest(run: RunDir) -> None:
    """Let the link ``latest`` in the folder of runs point at the run.

    Raises:
        UsageError: something else than a link has that name.
    """
    link = run.root.parent / LATEST
    _require_a_link(link)
    temporary = link.with_name(f".{LATEST}.{os.getpid()}")
    temporary.symlink_to(run.root.name)
    os.replace(temporary, link)


def write_json(path: Path, document: Any) -> None:
    """Write a JSON file so that a reader sees the old or the new one, never half (fsync,
    rename)."""
    with _appearing(path) as file:
        json.dump(document, file, indent=1, default=str)
        file.write("\n")


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all. A link of that name is replaced, and not followed."""
    with _appearing(path) as file:
        file.write(text)


def write_jsonl(path: Path, rows: Iterable[Document]) -> None:
    """Write a JSON-lines file as `write_json` writes a document: whole or not at all."""
    with _appearing(path) as file:
        file.writelines(json.dumps(row, default=str) + "\n" for row in rows)


@contextmanager
def _appearing(path: Path) -> Iterator[IO[str]]:
    """A file that takes its name when the block ends, and is gone when the block fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def open_regular(path: Path) -> BufferedReader:
    """Open a file that a user, a bundle or a run names, for reading. A pipe would be waited for,
    and a device may never end.

    Raises:
        UsageError: missing, unreadable, no regular file, or a name that no file can have.
    """
    try:
        file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: SIM115
    except (OSError, ValueError) as error:  # a zero byte, or a character that no file system takes
        raise UsageError(f"cannot read {_printable(path)}: {reason_of(error)}") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise UsageError(f"cannot read {path}: it is not a regular file")
    return file


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """The content of a file that a user, a bundle or a run names.

    Raises:
        UsageError: as `open_regular`, or larger than ``most`` bytes.
    """
    with open_regular(path) as file:
        try:
            # As much as is there: a buffer of the whole limit would be taken for every small file.
            size = os.fstat(file.fileno()).st_size
            data = file.read(min(size, most) + 1)
            if len(data) > size:  # it grew meanwhile
                data += file.read(most + 1 - len(data))
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > most:
        raise UsageError(f"cannot read {path}: larger than {most:,} bytes")
    return data


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """The text of a file that a user, a bundle or a run names; without a byte order mark.

    Raises:
        UsageError: as `read_bytes`, or not UTF-8.
    """
    try:
        return read_bytes(path, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {path}: not UTF-8 text (byte {error.start})") from error


def reason_of(error: OSError | ValueError) -> str:
    """Why a file could not be opened, without its name."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "no file can have this name"


def _printable(path: Path) -> str:
    return str(path).encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def path_below(folder: Path, text: str) -> Path:
    """The path that a text in a file means: relative to ``folder``, ``~`` and ``~user`` expanded.

    Raises:
        UsageError: no such user, or a name that no file can have.
    """
    try:
        path = folder / Path(text).expanduser()
        os.fsencode(path)
    except RuntimeError:
        raise UsageError(f"{text}: there is no user of this name") from None
    except ValueError:
        raise UsageError(f"{_printable(Path(text))}: no file can have this name") from None
    if "\0" in text:
        raise UsageError(f"{_printable(Path(text))}: no file can have this name")
    return path


def resolved(path: Path) -> Path:
    """The absolute path without links; a loop of links, which `Path.resolve` refuses, stays as it
    is."""
    return Path(os.path.realpath(path))


def read_json(path: Path) -> Document:
    """Read a JSON document of a run.

    Raises:
        UsageError: as `read_bytes`, or not a JSON object, or nested too deeply.
    """
    try:
        return json_object(read_bytes(path).decode())
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON: {error}") from error


def read_jsonl(path: Path) -> list[Document]:
    """Rows of a JSON-lines file; a missing file has none and a torn last line is left out.

    Raises:
        UsageError: as `read_bytes`, or a line is not a JSON object, or nested too deeply.
    """
    if not path.exists():
        return []
    rows: list[Document] = []
    # Not splitlines(): it also cuts at U+2028 and the like, which JSON may hold unescaped.
    lines = (
        read_bytes(path, MOST_ROWS_BYTES).decode(errors="replace").removesuffix("\n").split("\n")
    )
    for number, line in enumerate(lines):
        try:
            rows.append(json_object(line))
        except json.JSONDecodeError:
            if number != len(lines) - 1:
                raise UsageError(f"{path}, line {number + 1}: not JSON") from None
        except ValueError as error:
            raise UsageError(f"{path}, line {number + 1}: {error}") from None
    return rows


def json_object(text: str) -> Document:
    """The object that a JSON text holds.

    Raises:
        ValueError: it holds another value, is nested deeper than `MOST_DEPTH`, or is not JSON.
    """
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    if text.count("{") + text.count("[") > MOST_DEPTH and is_deeper(found, MOST_DEPTH):
        raise ValueError("nested too deeply")
    return _encodable(found) if "\\ud" in text.lower() else found


def _encodable(value: Any) -> Any:
    """JSON can hold halves of characters, which no file, terminal or browser takes: they become
    U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_encodable(key): _encodable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_encodable(each) for each in value]
    return value


def is_deeper(document: Any, most: int) -> bool:
    """Whether objects and lists of a JSON document are nested more than so deep."""
    level: list[Any] = [document]
    for _ in range(most):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


@contextmanager
def reading(run: RunDir) -> Iterator[None]:
    """Around what takes the documents of a run apart: a key or a value that is not as it was
    written makes one line about the run, and no internal error.

    Raises:
        UsageError: the documents are damaged.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise UsageError(
            f"the files of {run.root} are damaged: {what}",
            hint="bring plan.json, manifest.json and the *.jsonl files back from a copy",
        ) from error


def append_jsonl(path: Path, row: Document, *, sync: bool = False) -> None:
    """Append one row. Threads and processes may append to one file: a lock on it keeps each line
    whole. What is left of a line that was cut (a full disk, a kill) goes first: it would spoil the
    next one.

    ``sync``: return when it is on disk.
    """
    line = json.dumps(row, default=str).encode() + b"\n"
    with path.open("a+b", buffering=0) as file:
        flock(file, LOCK_EX)  # until it is closed
        if (size := file.seek(0, os.SEEK_END)) and os.pread(file.fileno(), 1, size - 1) != b"\n":
            file.truncate(path.read_bytes().rfind(b"\n") + 1)
        while line:
            line = line[file.write(line) :]
        if sync:
            os.fsync(file.fileno())
