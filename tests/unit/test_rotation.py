"""The order in which CI runs further tests: touched ones first, then by the date, a group in one
piece."""

from __future__ import annotations

from itertools import pairwise

from tests.rotation import ROOT, imported_by, touched_tests, turn_of

ALL = [
    f"tests/{folder}/test_{name}.py::test_{n}"
    for folder in ("live", "unit")
    for name in "abc"
    for n in "123"
]


def order_on(day: str, *touched: str) -> list[str]:
    return sorted(ALL, key=lambda nodeid: turn_of(nodeid, day, set(touched)))


def test_touched_files_come_first_and_groups_stay_together() -> None:
    touched = ALL[-4].partition("::")[0]
    order = order_on("2026-11-27", touched)
    files = [nodeid.partition("::")[0] for nodeid in order]
    assert files[:3] == [touched] * 3
    assert sum(one != other for one, other in pairwise(files)) == len(set(files)) - 1


def test_the_order_depends_on_the_date_only() -> None:
    first_files = {order_on(f"2026-11-{day:02}")[0].partition("::")[0] for day in range(1, 31)}
    assert len(first_files) > 3
    assert order_on("2026-11-27") == order_on("2026-11-27")


def test_a_test_is_touched_by_what_its_imports_import() -> None:
    here = ROOT / "tests" / "unit" / "test_rotation.py"
    assert ROOT / "tests" / "machine.py" in imported_by(here)  # through tests.rotation
    assert "tests/unit/test_rotation.py" in touched_tests({ROOT / "tests" / "machine.py"})
    assert touched_tests({ROOT / "README.md"}) == set()
