"""The page about scaling has the tables that the model makes."""

from __future__ import annotations

from pathlib import Path

from bench.capacity import LOADS, Load, checked, planned

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "several-machines.md"


def test_the_tables_of_the_page_are_those_of_the_model() -> None:
    assert "\n".join(checked()) in PAGE.read_text()
    assert "\n".join(planned(LOADS)) in PAGE.read_text()


def test_ten_times_the_load_takes_ten_times_the_cores_and_larger_tasks_once_buckets_run_out() -> (
    None
):
    one, ten = Load(1e5, 3600), Load(1e6, 3600)
    assert ten.cores(5.0) == 10 * one.cores(5.0)
    assert one.task_gib <= 1.25 < ten.task_gib
