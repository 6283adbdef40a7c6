"""Files of a kind that nobody expects, at every place where a user or a bundle names a file.

Each is one line with a documented exit code: no hang, no traceback, no gigabytes.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests.cli.answers import STARTS, answer, refuse_to_start
from tests.planted.campaign import leave_campaign

LONGEST_S = 20
SCENARIO = """
name: mine
topics: {{orders: {{}}}}
load:
  rate: 100
  duration: 10s
  profile: {{csv: {csv!r}}}
  producers: {{p: {{topics: [orders]}}}}
"""
CONNECTION = """
system: kafka
yours: true
cluster_id: MkU3OEVBNTcwNTJENDM2Qg
bootstrap: 127.0.9.1:9093
tls: {{ca: {ca!r}, certificate: {ca!r}, key: {ca!r}}}
auth: {{mechanism: plain, user: u, password: {{file: {password!r}}}}}
"""


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(40 << 30)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def to_itself(path: Path) -> None:
    path.symlink_to(path.name)


KINDS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "folder": lambda path: path.mkdir(),
    "pipe": fifo,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "empty device": lambda path: path.symlink_to("/dev/null"),
    "loop of links": to_itself,
    "40 GB": sparse,
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(9_000)),
    "not UTF-8": lambda path: path.write_bytes(b"\xff\xfe" * 900),
    "deep": lambda path: path.write_text("[" * 400),
    "many": lambda path: path.write_text("a: &a [" + "*a, " * 900 + "]"),
    "odd values": lambda path: path.write_text(
        "system: 2024-99-99\nyours: !!int x\n" + "9" * 5_000
    ),
    "unprintable": lambda path: path.write_bytes(b"system: \x00\x1b[31m\n"),
}
#: Names that no file can have, as a text in a document.
NAMES = ("a\0b", "\ud800", "~nosuchuser/x", "", "/proc/self/mem", "x" * 5_000, "/dev/stdin/..")
COMMANDS: dict[str, tuple[str, ...]] = {
    "scenario": ("plan", "FILE"),
    "suite": ("suite", "plan", "FILE"),
    "plan on a cluster": ("plan", "kafka-quick", "--cluster", "FILE"),
    "doctor": ("doctor", "--cluster", "FILE"),
    "clean": ("clean", "--cluster", "FILE"),
    "bundle": ("open", "FILE", "there"),
    "show": ("show", "FILE"),
    "trace": ("trace", "--first", "FILE"),
    "analyze": ("analyze", "FILE"),
    "compare": ("compare", "FILE", "latest"),
    "bundle of": ("bundle", "FILE"),
    "replay": ("run", "--replay", "FILE"),
    "list runs": ("list", "runs", "FILE"),
    "import": ("analyze", "--import", "FILE"),
    "history import": ("history", "import", "FILE"),
    "history merge": ("history", "merge", "FILE"),
    "history export": ("history", "export", "x.parquet", "--history", "FILE"),
    "suite report": ("suite", "report", "--history", "FILE"),
    "new": ("new", "FILE", "--force"),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with runs where nothing can be started; what hangs, or takes gigabytes, is ended."""

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"no answer within {LONGEST_S} s")

    leave_campaign(tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    for owner, name in STARTS:
        monkeypatch.setattr(owner, name, refuse_to_start)
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    before = signal.signal(signal.SIGALRM, late)
    resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + (1 << 30), hard))
    yield tmp_path
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _data_bytes() -> int:
    rows = Path("/proc/self/status").read_text().splitlines()
    return next(int(row.split()[1]) << 10 for row in rows if row.startswith("VmData"))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_any_kind(kind: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = place / "hostile.tar.gz"
    KINDS[kind](path)
    for name, words in COMMANDS.items():
        before = sorted(place.rglob("*")) if name != "new" else []
        signal.alarm(LONGEST_S)
        given = [str(path) if word == "FILE" else word for word in words]
        answer([*given], capsys, f"{kind}, {name}")
        signal.alarm(0)
        assert not before or [each for each in before if not os.path.lexists(each)] == []


@pytest.mark.long
@pytest.mark.parametrize("name", [*NAMES, *KINDS])
def test_a_file_that_a_scenario_or_a_connection_names(
    name: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name in KINDS:
        KINDS[name](place / "named")
        name = "named"
    text = SCENARIO.format(csv=name).encode("utf-8", "backslashreplace").decode()
    (place / "mine.yaml").write_text(text.replace("\\x00", "\0"))
    connections = {
        "ca": CONNECTION.format(ca=name, password="secret"),
        "password": CONNECTION.format(ca="x", password=name),
    }
    (place / "secret").write_text("hunter2")
    for file, text in connections.items():
        (place / f"{file}.yaml").write_text(text.encode("utf-8", "backslashreplace").decode())
    for words in (
        ["plan", "mine.yaml"],
        ["plan", "kafka-quick", "--cluster", "ca.yaml"],
        ["plan", "kafka-quick", "--cluster", "password.yaml"],
        ["doctor", "--cluster", "ca.yaml"],
    ):
        signal.alarm(LONGEST_S)
        answer(words, capsys, f"{name!r}: {words}")
        signal.alarm(0)
