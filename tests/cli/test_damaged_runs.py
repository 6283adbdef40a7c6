"""Runs whose files were damaged at random: one clear line and a documented exit code, never a
traceback.

A failure names its seed; `damaged(random.Random(seed), ...)` makes the same damage again.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from analysis.report.documents import write_result
from harness.rundir import RunDir
from tests.cli.answers import answer
from tests.planted.streams import STREAMS
from tests.unit.test_result import result

COMMANDS = (
    ["trace", "1/0/4", "damaged"],
    ["show", "damaged"],
    ["list", "runs"],
    ["compare", "damaged", "whole"],
)
ODD: tuple[Any, ...] = (None, [], {}, "x", -1, 1e99, True, 2**63, "\x1b[31m", [None])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    clean = next(stream for stream in STREAMS if not stream.cls)
    run = clean.history().write(tmp_path_factory.mktemp("runs") / "whole")
    write_result(run, result(run))
    return run


@pytest.mark.long
@pytest.mark.parametrize("seed", range(25))
def test_some_damage(whole: RunDir, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    check(whole, seed, capsys)


@pytest.mark.slow
def test_much_damage(whole: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(100, 2_600):  # four commands each
        check(whole, seed, capsys)


def check(whole: RunDir, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    runs = whole.root.parent
    shutil.rmtree(runs / "damaged", ignore_errors=True)
    shutil.copytree(whole.root, runs / "damaged")
    rng = random.Random(seed)
    told = [damage(rng, runs / "damaged") for _ in range(rng.randint(1, 2))]
    for command in COMMANDS:
        answer(["--run-dir", str(runs), *command], capsys, f"seed {seed}: {told}")


def damage(rng: random.Random, root: Path) -> str:
    """Damage one file of a run; returns what was done to which."""
    path = rng.choice(sorted(p for p in root.rglob("*") if p.is_file()))
    content = path.read_bytes()
    kind = rng.choice(["truncate", "garble", "delete", "folder", "value", "value", "value"])
    if kind == "truncate":
        path.write_bytes(content[: rng.randrange(len(content) + 1)])
    elif kind == "garble" and content:
        garbled = bytearray(content)
        for _ in range(rng.randint(1, 5)):
            garbled[rng.randrange(len(garbled))] = rng.randrange(256)
        path.write_bytes(bytes(garbled))
    elif kind == "value" and path.suffix in (".json", ".jsonl"):
        change_a_value(rng, path)
    else:
        path.unlink()
        if kind == "folder":
            path.mkdir()
    return f"{kind} {path.relative_to(root)}"


def change_a_value(rng: random.Random, path: Path) -> None:
    """Take a key of one of its documents away, or give it a value of another kind."""
    text = path.read_text(errors="replace")
    documents = text.splitlines() if path.suffix == ".jsonl" else [text]
    number = rng.randrange(max(len(documents), 1))
    try:
        node = document = json.loads(documents[number])
    except (ValueError, IndexError):  # damaged before
        return
    while isinstance(node, dict | list) and node:
        key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        if isinstance(node[key], dict | list) and node[key] and rng.random() < 0.7:
            node = node[key]
            continue
        if rng.random() < 0.3:
            del node[key]
        else:
            node[key] = rng.choice(ODD)
        break
    documents[number] = json.dumps(document)
    path.write_text("\n".join(documents) + "\n")
