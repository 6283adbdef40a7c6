"""Files of runs, bundles, connections, histories and imports, damaged at random: every command
answers.

A failure names its seed; `check(seed, ...)` makes the same case again.
"""

from __future__ import annotations

import io
import json
import random
import shutil
import sqlite3
import tarfile
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli import main
from experiments.history.store import History
from harness.errors import Exit
from tests.cli.answers import REFUSALS, answer

# a fixture: no starts, a limit of memory and time
from tests.cli.test_hostile_files import place as place
from tests.cli.test_hostile_scenarios import ODD, change_text, containers
from tests.history_samples import a_round
from tests.planted.campaign import LOST

ROOT = Path(__file__).resolve().parents[2]
RUN = "latest/unsafe-1"
READERS: tuple[tuple[str, ...], ...] = (
    ("show", RUN),
    ("show", "latest"),
    ("--json", "show", RUN),
    ("show", "latest", "--html"),
    ("trace", "--first", RUN),
    ("trace", LOST, RUN),
    ("trace", "orders-2@3", RUN),
    ("list", "runs"),
    ("compare", RUN, "latest/safe-1"),
    ("bundle", RUN, "-o", "x.tar.gz", "--force"),
    ("analyze", RUN),
    ("run", "--replay", RUN),
)
IMPORT = ROOT / "examples" / "import"
CONNECTION = {
    "system": "kafka",
    "yours": True,
    "cluster_id": "MkU3OEVBNTcwNTJENDM2Qg",
    "bootstrap": "127.0.9.1:9093",
    "tls": {"ca": "ca.pem", "certificate": "client.pem", "key": "client.key"},
    "auth": {"mechanism": "plain", "user": "u", "password": {"file": "secret"}},
    "topics": {"prefix": "brokerstorm"},
    "nodes": {"kafka-1": {"address": "127.0.9.1:9093"}},
    "drivers": {"a": {"command": {"kill": ["true"], "start": ["true"]}}},
}


@pytest.fixture
def sources(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with whole files, which each case copies before it damages them."""
    monkeypatch.setattr(webbrowser, "open", lambda *_: True)
    assert main(["bundle", RUN, "-o", "whole.tar.gz"]) == Exit.PASS
    with History.open(place / "whole.sqlite") as history:
        for number in range(3):
            history.add(a_round(number))
    return place


def damaged_bytes(rng: random.Random, data: bytes) -> bytes:
    """Some bytes changed, left out or repeated."""
    kind = rng.choice(["flip", "flip", "cut", "empty", "zeros", "twice", "other"])
    at = rng.randrange(len(data) + 1)
    if kind == "cut":
        return data[:at]
    if kind == "empty":
        return b""
    if kind == "zeros":
        return data[:at] + bytes(min(512, len(data) - at)) + data[at + 512 :]
    if kind == "twice":
        return data + data[at:]
    if kind == "other":
        return rng.choice(
            [b"null", b"[]", b"{}", b"[" * 3000, b"\xff\xfe" * 50, b"1e999", b'"\\ud800"']
        )
    changed = bytearray(data)
    for _ in range(rng.choice([1, 3, 30])):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def damaged_json(rng: random.Random, text: str) -> str:
    """A value of a JSON document, or of one line of several, is another one."""
    lines = text.splitlines() if "\n{" in text else [text]
    number = rng.randrange(len(lines))
    try:
        document = json.loads(lines[number])
    except ValueError:
        return text[: len(text) // 2]
    places = list(containers(document))
    if places:
        node = rng.choice(places)
        key = rng.choice(list(node) if isinstance(node, dict) else list(range(len(node))))
        node[key] = rng.choice(ODD)
    try:
        lines[number] = json.dumps(document)
    except (TypeError, ValueError):
        lines[number] = "NaN"
    return "\n".join(lines)


def damage(rng: random.Random, path: Path) -> None:
    """One file is another one, or is something that is no file."""
    kind = rng.choice(["bytes", "json", "json", "json", "gone", "folder", "link"])
    if kind == "json" and path.suffix in (".json", ".jsonl"):
        path.write_text(damaged_json(rng, path.read_text()), errors="surrogatepass")
    elif kind in ("gone", "folder", "link"):
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind == "link":
            path.symlink_to(rng.choice(["/etc/passwd", path.name, "..", "/dev/zero"]))
    else:
        path.write_bytes(damaged_bytes(rng, path.read_bytes()))


def a_run(rng: random.Random, place: Path) -> tuple[str, ...]:
    shutil.rmtree(place / "runs")
    shutil.copytree(place / "whole-runs", place / "runs", symlinks=True)
    found = sorted(
        path for path in (place / "runs").rglob("*") if path.is_file() and not path.is_symlink()
    )
    for path in rng.sample(found, rng.choice([1, 1, 2, 4])):
        damage(rng, path)
    return rng.choice(READERS)


def a_bundle(rng: random.Random, place: Path) -> tuple[str, ...]:
    target = place / "x.tar.gz"
    if rng.random() < 0.3:
        target.write_bytes(damaged_bytes(rng, (place / "whole.tar.gz").read_bytes()))
    else:
        with tarfile.open(place / "whole.tar.gz") as old, tarfile.open(target, "w:gz") as new:
            members = old.getmembers()
            chosen = rng.sample(members, min(len(members), 2))
            for member in members:
                file = old.extractfile(member)
                data = file.read() if file else b""
                if member in chosen:
                    data = _changed_member(rng, member, data, place)
                new.addfile(member, io.BytesIO(data) if member.isfile() else None)
    there = f"opened-{rng.randrange(10**9)}"
    return rng.choice(
        [("open", str(target), there), ("show", str(target)), ("trace", "--first", str(target))]
    )


def _changed_member(rng: random.Random, member: tarfile.TarInfo, data: bytes, place: Path) -> bytes:
    kind = rng.choice(["data", "data", "name", "type"])
    if kind == "name":
        names = [
            "../outside",
            f"{place}/outside",
            "a/../../outside",
            "x" * 300,
            "-rf",
            "latest",
            "\udcff",
            ".",
        ]
        member.name = rng.choice(names)
    elif kind == "type":
        member.type = rng.choice(
            [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
        )
        member.linkname = rng.choice(["/etc/passwd", "../..", member.name])
        member.size = 0
        return b""
    elif member.name.endswith((".json", ".jsonl")):
        data = damaged_json(rng, data.decode()).encode("utf-8", "surrogatepass")
    else:
        data = damaged_bytes(rng, data)
    member.size = len(data)
    return data


def a_connection(rng: random.Random, place: Path) -> tuple[str, ...]:
    document: Any = yaml.safe_load(yaml.safe_dump(CONNECTION))
    for _ in range(rng.choice([1, 1, 3])):
        node = rng.choice(list(containers(document)))
        key = rng.choice(list(node) if isinstance(node, dict) else list(range(len(node))))
        node[key] = rng.choice(ODD)
    text = yaml.safe_dump(document, allow_unicode=True)
    if rng.random() < 0.4:
        text = change_text(rng, text)
    path = place / "connection.yaml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    command = rng.choice([("plan", "kafka-own"), ("clean",)])
    return *command, "--cluster", str(path)


def a_history(rng: random.Random, place: Path) -> tuple[str, ...]:
    path = place / "x.sqlite"
    (place / "x.parquet").unlink(missing_ok=True)
    data = bytearray((place / "whole.sqlite").read_bytes())
    if rng.random() < 0.5:
        path.write_bytes(damaged_bytes(rng, bytes(data)))
    else:
        path.write_bytes(data)
        with sqlite3.connect(path) as connection:
            tables = [
                row[0]
                for row in connection.execute("select name from sqlite_master where type='table'")
            ]
            table = rng.choice(tables)
            columns = [row[1] for row in connection.execute(f'pragma table_info("{table}")')]
            odd = rng.choice(
                [None, "x", -1, 1e308, b"\xff", "9" * 400, "[" * 400, "\x1b[31m", "../.."]
            )
            connection.execute("pragma ignore_check_constraints = on")
            connection.execute(
                f'update or ignore "{table}" set "{rng.choice(columns)}" = ?', (odd,)
            )
        connection.close()
    return rng.choice(
        [
            ("history", "export", "x.parquet", "--history", str(path)),
            ("history", "merge", str(path), "--history", str(place / "into.sqlite")),
            ("suite", "report", "--history", str(path)),
        ]
    )


def an_import(rng: random.Random, place: Path) -> tuple[str, ...]:
    folder = place / "import"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(IMPORT, folder)
    path = rng.choice(sorted(folder.iterdir()))
    if path.suffix in (".yaml", ".csv", ".jsonl") and rng.random() < 0.7:
        text = change_text(rng, path.read_text())
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    else:
        damage(rng, path)
    return "analyze", "--import", str(folder)


KINDS: tuple[Callable[[random.Random, Path], tuple[str, ...]], ...] = (
    a_run,
    a_run,
    a_bundle,
    a_connection,
    a_history,
    an_import,
)


def check(seed: int, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(seed)
    words = KINDS[seed % len(KINDS)](rng, place)
    is_verdict = "show" in words
    answer(words, capsys, f"seed {seed}", codes=[*REFUSALS, Exit.FAIL] if is_verdict else REFUSALS)
    assert not (place / "outside").exists()
    assert not (place.parent / "outside").exists()


@pytest.fixture
def whole(sources: Path) -> Path:
    shutil.copytree(sources / "runs", sources / "whole-runs", symlinks=True)
    return sources


@pytest.mark.long
def test_some_damaged_files(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(36):
        check(seed, whole, capsys)


@pytest.mark.slow
def test_many_damaged_files(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(1_000, 4_000):
        check(seed, whole, capsys)
