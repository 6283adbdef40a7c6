"""The part of docs/querying.md about the history: DuckDB and Spark SQL answer its questions
alike."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
from pyspark import SparkContext

from experiments.history.exchange import export_parquet
from experiments.history.store import History
from tests.history_samples import regressed

pytestmark = pytest.mark.spark

PAGE = Path(__file__).resolve().parents[2] / "docs" / "querying.md"
PART = PAGE.read_text().partition("## Query the history of nightly runs")[2]
QUESTIONS = re.findall(r"^### (.+?)$(.*?)(?=^### |\Z)", PART, re.MULTILINE | re.DOTALL)
TYPES = {"varchar", "int64", "double", "uint64"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("asked")
    with History.open(made / "history.sqlite") as history:
        for row in regressed():
            history.add(row)
        export_parquet(history, made / "history.parquet")
    return made


def rows(code: str) -> list[list[str]]:
    """The cells of the table that a block prints, without frame and types."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, str(PAGE), "exec"), {"__name__": "page"})
    lines = [
        re.split(r"[│|]", line.strip("│|"))
        for line in out.getvalue().splitlines()
        if line[:1] in "│|"
    ]
    cells = [[cell.strip() for cell in line] for line in lines]
    return [line for line in cells if not set(line) <= TYPES]


@pytest.mark.parametrize(
    ("question", "text"),
    [QUESTIONS[0], *(pytest.param(*each, marks=pytest.mark.extended) for each in QUESTIONS[1:])],
    ids=["classes", "slower"],
)
def test_both_engines_give_the_same_answer(
    folder: Path, question: str, text: str, spark: SparkContext
) -> None:
    duck, sql = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    with contextlib.chdir(folder):
        answer = rows(duck)
        assert rows(sql.replace("history.parquet", str(folder / "history.parquet"))) == answer
    expected = {"classes": ["kafka-storm", "acked-lost", "3", "36"], "slower": ["slower"]}
    key = "classes" if "class" in question else "slower"
    assert answer[1][: len(expected[key])] == expected[key]
