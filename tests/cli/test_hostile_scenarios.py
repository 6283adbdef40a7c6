"""Scenario files and --set values changed at random: `plan` takes them, or says in a line what is
wrong.

A failure names its seed; `hostile(random.Random(seed), ...)` makes the same file again.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.scenario.bundled import bundled_bugs, bundled_scenarios
from tests.cli.answers import answer

TEXTS = [path.read_text() for path in {**bundled_scenarios(), **bundled_bugs()}.values()]
READY = [yaml.safe_load(text) for text in TEXTS]
#: Billions of nodes from a few lines.
LAUGHS = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        [],
        {},
        [[]],
        [None],
        {"": ""},
        {1: 2},
        "",
        "x",
        " ",
        "0",
        "-1s",
        "1e9d",
        "5%",
        "all",
    ),
    *(0, -1, 0.5, 10**6, 2**31, 2**63, 10**400, 1e308, float("nan"), float("inf")),
    *(
        "\x1b[31m",
        "\r\n",
        "\u2028",
        "\ud7ff",
        "a" * 300,
        "x" * 100_000,
        "../../etc",
        "${HOME}",
        "{{x}}",
    ),
)
SNIPPETS = (
    *(
        "\t",
        "- ",
        ": ",
        "{",
        "}",
        "[",
        "'",
        '"',
        "|",
        ">-\n",
        "#",
        "%",
        "@",
        "`",
        "\x00",
        "\x1b[2J",
        "\r",
    ),
    *(
        "&a ",
        "*a",
        "<<: *a\n",
        "!!python/object/apply:os.getcwd []\n",
        "---\n",
        "...\n",
        "? ",
        "é",
        "\ufeff",
    ),
    *("\n  ", "\n" * 50, "[" * 2000, LAUGHS),
)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_some_hostile_scenarios(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(seed, tmp_path, capsys)


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("seed", range(40, 44))
def test_a_few_with_clients_that_are_asked(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(seed, tmp_path, capsys)


@pytest.mark.slow
def test_many_hostile_scenarios(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(1_000, 11_000):
        check(seed, tmp_path, capsys)


def check(seed: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(seed)
    path = folder / "hostile.yaml"
    path.write_bytes(hostile(rng).encode("utf-8", "surrogateescape"))
    words = ["--json"] if rng.random() < 0.3 else []
    if rng.random() < 0.15:
        words += ["--set", override(rng)]
    answer(["--run-dir", str(folder / "runs"), "plan", str(path), *words], capsys, f"seed {seed}")


def hostile(rng: random.Random) -> str:
    """A ready scenario with a few changes, of its values or of its text."""
    if rng.random() < 0.3:
        text = rng.choice(TEXTS)
        for _ in range(rng.randint(1, 3)):
            text = change_text(rng, text)
        return text
    data = copy.deepcopy(rng.choice(READY))
    for _ in range(rng.choice([1, 1, 2, 3])):
        change_value(rng, data)
    return yaml.safe_dump(data, allow_unicode=True, sort_keys=False)


def change_text(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    kind = rng.choice(["truncate", "insert", "insert", "insert", "remove", "repeat", "byte"])
    if kind == "truncate":
        return text[:at]
    if kind == "insert":
        return text[:at] + rng.choice(SNIPPETS) + text[at:]
    if kind == "remove":
        return text[:at] + text[at + rng.randint(1, 20) :]
    if kind == "repeat":
        lines = text.splitlines(keepends=True)
        return "".join(lines) + "".join(rng.choices(lines, k=rng.randint(1, 5))) if lines else text
    return (
        text[:at] + bytes([rng.randrange(128, 256)]).decode("utf-8", "surrogateescape") + text[at:]
    )


def change_value(rng: random.Random, data: dict[str, Any]) -> None:
    places = list(containers(data))
    node = rng.choice(places)
    keys: list[Any] = list(node) if isinstance(node, dict) else list(range(len(node)))
    if not keys:
        return
    key = rng.choice(keys)
    kind = rng.choice(
        ["delete", "rename", "odd", "odd", "scale", "scale", "alike", "alike", "borrow", "many"]
    )
    if kind == "delete":
        del node[key]
    elif kind == "rename" and isinstance(node, dict):
        new = rng.choice([f"{key}x", str(key).upper(), "", 7, None, "\x1b[31m", "a.b", "name"])
        node[new] = node.pop(key)
    elif kind == "scale" and isinstance(node[key], int | float):
        node[key] = rng.choice([-1, 0, 1e-9, 0.5, 2, 3, 1000, 10**9]) * node[key]
    elif kind == "alike":
        alike = [
            each[key]
            for each in containers(rng.choice(READY))
            if isinstance(each, dict) and key in each
        ]
        node[key] = copy.deepcopy(rng.choice(alike or [node[key]]))
    elif kind == "borrow":
        donor = rng.choice(list(containers(rng.choice(READY))))
        node[key] = copy.deepcopy(
            rng.choice(list(donor.values() if isinstance(donor, dict) else donor))
        )
    elif kind == "many" and isinstance(node, list):
        node *= rng.choice([2, 100, 3000])
    else:
        node[key] = copy.deepcopy(rng.choice(ODD))


def containers(node: Any) -> Iterator[dict[Any, Any] | list[Any]]:
    """Every map and list that holds something, from the outermost on."""
    if isinstance(node, dict | list) and node:
        yield node
        for value in node.values() if isinstance(node, dict) else node:
            yield from containers(value)


def override(rng: random.Random) -> str:
    """A --set of a key that some scenario has, or nearly."""
    node: Any = rng.choice(READY)
    words: list[str] = []
    while isinstance(node, dict) and node and rng.random() < 0.9:
        word = rng.choice(list(node))
        node = node[word]
        words.append(rng.choice([str(word)] * 8 + [f"{word}x", "", "*", "0", "x!new"]))
    text = str(rng.choice([*ODD, "[", "{a: b", "&a *a", "@x", "2s", "50%"]))
    return rng.choice([f"{'.'.join(words)}={text}"] * 9 + [".".join(words), text])
