"""`analyze --import`: tables of another tool become a run that every other command understands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tests.live.run_rig import ROOT, brokerstorm
from tests.planted.foreign import description, rows_of, write_import
from tests.planted.streams import STREAMS

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = pytest.mark.spark


def test_the_command_makes_a_run_that_every_other_one_understands(
    spark: SparkContext, tmp_path: Path
) -> None:
    """Tables of another tool are judged, traced, and judged again as the run that they have become;
    a glob character in their path is one of its letters."""
    history = next(s for s in STREAMS if s.name == "acked-loss-last-two").history()
    source = str(
        write_import(tmp_path / "in*[1]?", rows_of(history), description(history), "jsonl")
    )
    runs = str(tmp_path / "runs")
    done = brokerstorm("--json", "--run-dir", runs, "analyze", "--import", source)
    document = done.document
    assert (done.code, document["verdict"]) == (1, "fail"), done.err
    assert [
        (f["class"], f["count"]) for f in document["findings"] if f["status"] == "violation"
    ] == [("acked-lost", 2)]
    assert (tmp_path / "runs" / "latest" / "report.html").exists()
    traced = brokerstorm("--json", "--run-dir", runs, "trace", "1/0/3").document
    assert [row["place"] for row in traced["log"]] == ["orders-0@3"]
    assert len(traced["sends"]) == len(traced["deliveries"]) == 1
    again = brokerstorm("--json", "--run-dir", runs, "analyze")
    assert (again.code, again.document["run_id"]) == (1, document["run_id"]), again.err
    assert spark.range(3).count() == 3, "a session that was open stays open"

    assert brokerstorm("--run-dir", runs, "analyze", "latest", "--import", source).code == 2
    assert (
        brokerstorm("--run-dir", runs, "analyze", "--import", str(tmp_path / "nowhere")).code == 2
    )
    assert [p.name for p in (tmp_path / "runs").iterdir() if not p.is_symlink()] == [
        document["run_id"]
    ]
    sealed = tmp_path / "runs" / "latest" / "sealed" / "seal.json"
    assert json.loads(sealed.read_text())["imported"] == source


@pytest.mark.extended
def test_the_example_shows_what_its_page_says(spark: SparkContext, tmp_path: Path) -> None:
    hits, source = str(tmp_path / "hits.parquet"), str(ROOT / "examples" / "import")
    done = brokerstorm(
        "--json", "--run-dir", str(tmp_path), "analyze", "--import", source, "--hits", hits
    )
    shown = {f["class"]: [w["message"] for w in f["witnesses"]] for f in done.document["findings"]}
    assert shown == {
        "acked-lost": ["1/0/11", "1/0/12"],
        "not-dispatched": ["1/1/7"],
        "info-stored": ["1/0/13"],
    }
    assert done.code == 1
    assert all(check["ok"] for check in done.document["coverage"])
    listed = pq.read_table(hits).select(["class", "message", "fault"]).to_pylist()
    assert sorted((row["class"], row["message"]) for row in listed) == sorted(
        (name, message) for name, messages in shown.items() for message in messages
    )
    assert {row["fault"] for row in listed} == {1}
