"""The part of docs/querying.md about a run: every block runs where `make run` was called.

Here it runs on a planted run of that shape.

After a change of a query, `python -m tests.unit.test_docs_queries` writes what it prints into the
page.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from pathlib import Path

import pytest
import yaml

from analysis.verdict.hits_file import HIT_COLUMNS, write_hits
from harness.records import SEALED
from harness.rundir import RunDir, point_latest, write_json
from tests.planted.judged import hits_here
from tests.planted.large import plant
from tests.planted.parts import in_two_parts
from tests.planted.planters import Truth

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "querying.md"
_BLOCK = re.compile(r"```python\n(?P<code>.*?)```\n\n```text\n(?P<output>.*?)```", re.DOTALL)
ANOMALIES = {
    "acked-lost-middle": 5,
    "acked-lost-tail": 2,
    "false-nack": 3,
    "failed-absent": 4,
    "info-stored": 6,
    "foreign": 2,
}


def make_run(folder: Path) -> Truth:
    """The folders that `make run` leaves, with a known few anomalies of several kinds in
    ``unsafe-1``.

    It is sealed in two parts.
    """
    campaign = RunDir(folder / "runs" / "r1")
    truth = plant(
        campaign.root / "unsafe-1", messages=20_000, partitions=4, anomalies=ANOMALIES, seed=11
    )
    in_two_parts(RunDir(campaign.root / "unsafe-1"))
    write_json(campaign.campaign, {"runs": ["unsafe-1"]})
    write_hits(folder / "hits.parquet", *hits_here(RunDir(campaign.root / "unsafe-1")))
    point_latest(campaign)
    return truth


def blocks() -> list[tuple[str, str]]:
    """(code, output shown) of each query of the page."""
    about_a_run = PAGE.read_text().partition("## Query the history of nightly runs")[0]
    return [(match["code"], match["output"]) for match in _BLOCK.finditer(about_a_run)]


def printed(code: str) -> str:
    """What a block prints when run where ``runs/latest`` is."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, str(PAGE), "exec"), {"__name__": "page"})
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines()) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("docs")
    make_run(place)
    return place


def test_the_page_has_a_query_of_each() -> None:
    assert [re.findall(r"^import (\w+)", code, re.MULTILINE) for code, _ in blocks()] == [
        ["duckdb"],
        ["pandas"],
        ["duckdb"],
    ]


@pytest.mark.parametrize(("code", "output"), blocks(), ids=["duckdb", "pandas", "hits"])
def test_a_query_prints_what_the_page_shows(folder: Path, code: str, output: str) -> None:
    with contextlib.chdir(folder):
        assert printed(code) == output


def test_the_duckdb_query_finds_what_was_planted(folder: Path) -> None:
    lost = sum(int(n) for n in re.findall(r"│ orders-\d +│ +(\d+) │", blocks()[0][1]))
    assert lost == ANOMALIES["acked-lost-middle"] + ANOMALIES["acked-lost-tail"]


def test_the_folder_is_one_that_make_run_leaves() -> None:
    (scenario,) = re.findall(r"run (kafka-\w+) --runtime", (DOCS.parent / "Makefile").read_text())
    variants = yaml.safe_load((DOCS.parent / "scenarios" / f"{scenario}.yaml").read_text())[
        "variants"
    ]
    folders = re.findall(
        r'^run = "runs/latest/(\w+)-1"$', "".join(code for code, _ in blocks()), re.MULTILINE
    )
    assert folders == ["unsafe"] * len(blocks())
    assert "unsafe" in variants


def test_the_format_page_lists_every_sealed_column() -> None:
    section = (
        (DOCS / "capture-format.md").read_text().split("### Sealed columns\n")[1].split("\n**")[0]
    )
    rows = re.findall(
        r"^\| ([\w, ]+) \| (\w+) \| (\w+) \| (\w+) \| (.*) \|$", section, re.MULTILINE
    )[1:]
    listed = {
        (table, *row)
        for tables, *row in rows
        for table in (SEALED if tables == "all" else tables.split(", "))
    }
    short = {"dictionary": "dictionary", "DELTA_BINARY_PACKED": "delta"}
    assert listed == {
        (table, c.name, c.dtype, short[c.encoding], c.doc)
        for table, columns in SEALED.items()
        for c in columns
    }


def test_the_format_page_lists_every_column_of_a_hit() -> None:
    section = (DOCS / "capture-format.md").read_text().split("## Every hit\n")[1]
    listed = re.findall(r"^\| (\w+) \| (\w+) \| (.*) \|$", section, re.MULTILINE)[1:]
    assert listed == [(c.name, str(c.type), c.doc) for c in HIT_COLUMNS]


def rewrite() -> None:
    """Put what the blocks print into the page."""
    with tempfile.TemporaryDirectory() as name:
        make_run(Path(name))
        with contextlib.chdir(Path(name)):
            page = PAGE.read_text()
            for code, output in blocks():
                old = f"```python\n{code}```\n\n```text\n{output}```"
                page = page.replace(old, f"```python\n{code}```\n\n```text\n{printed(code)}```")
    PAGE.write_text(page)


if __name__ == "__main__":
    rewrite()
