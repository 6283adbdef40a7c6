"""Where the load of a run comes from: what options say together, and what only this machine can
do."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.load_request import LoadRequest, load_request
from experiments.plans import ScenarioRequest, resolve
from experiments.preflight import refuse_from_elsewhere
from experiments.resolved import RoundOptions
from harness.errors import UsageError

MASTER = "spark://10.0.0.10:7077"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((None, 3, "", None), "--load-tasks requires --load-master"),
        ((None, None, "s3://x", None), "--load-store requires --load-master"),
        (("local[2]", None, "", None), "threads of this machine"),
        ((MASTER, None, "", "spark://other:7077"), "a process has one Spark master"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    given: tuple[str | None, int | None, str, str | None], says: str
) -> None:
    with pytest.raises(UsageError, match=says.replace("[", r"\[")):
        load_request(*given)


def test_without_the_option_the_load_comes_from_here() -> None:
    assert load_request(None, None, "", MASTER) is None
    assert load_request(MASTER, 3, "", MASTER) == LoadRequest(MASTER, 3)


def test_a_port_for_the_tasks_requires_other_machines() -> None:
    with pytest.raises(UsageError, match="--load-port requires --load-master"):
        load_request(None, None, "", None, port=7080)
    assert load_request(MASTER, None, "", MASTER, port=7080) == LoadRequest(MASTER, port=7080)


def test_tasks_may_reach_this_machine_by_a_tunnel() -> None:
    with pytest.raises(UsageError, match="--load-address requires --load-master"):
        load_request(None, None, "", None, address="127.0.0.1:7700")
    asked = load_request(MASTER, None, "", MASTER, port=7080, address="gate.example:7700")
    assert asked == LoadRequest(MASTER, port=7080, reached_at=("gate.example", 7700))
    asked = load_request(MASTER, None, "", MASTER, address="[::1]")
    assert asked == LoadRequest(MASTER, reached_at=("::1", 0))


@pytest.mark.parametrize(
    "address",
    [
        " ",
        ":",
        ":7700",
        "a:0",
        "a:99999",
        "a:b",
        "a:",
        "tcp://a:1",
        "u@a:1",
        "a b",
        "-a",
        "a/b",
        "a\n",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="--load-address: not HOST or HOST:PORT"):
        load_request(MASTER, None, "", MASTER, address=address)


def test_a_run_is_kept_below_the_store() -> None:
    assert LoadRequest(MASTER).place_of("campaign/unsafe-1") == ""
    assert (
        LoadRequest(MASTER, store="s3://b/runs?scheme=http").place_of("r/a-1")
        == "s3://b/runs/r/a-1?scheme=http"
    )
    assert LoadRequest(MASTER, store="/mnt/runs/").place_of("r") == "/mnt/runs/r"


PLAIN = """
name: far
topics: {orders: {partitions: 2}, made: {partitions: 2}}
load: {rate: 100, duration: 5s, producers: {shop: {topics: [orders]}}%s}
%s
"""
PIPELINE = ", pipelines: {bill: {from: orders, to: made}}"


@pytest.mark.parametrize(
    ("more", "override", "says"),
    [
        (("", ""), "load.rate={at_most: 100}", "measured on this machine"),
        (
            ("", "faults: [{fault: client-freeze, at: 1s}]"),
            "",
            "client-freeze hits processes of this machine",
        ),
        (
            ("", "faults: [{fault: clock-jump, at: 1s, target: client}]"),
            "",
            "clock-jump hits processes of this machine",
        ),
        (("", ""), "secure", "go to no other machine"),
    ],
)
def test_what_only_this_machine_can_do_is_refused(
    more: tuple[str, str], override: str, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "far.yaml"
    path.write_text(PLAIN % more)
    plain = tuple(each for each in (override,) if "=" in each)
    asked = ScenarioRequest(scenario=str(path), overrides=plain, seed=1)
    resolved = resolve(asked, RoundOptions(secure=override == "secure"))
    with pytest.raises(UsageError, match=says):
        refuse_from_elsewhere(resolved)


def test_a_plain_load_may_come_from_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "far.yaml"
    faults = (
        "[{fault: kill, target: random, at: 1s, for: 1s}, {fault: client-kill, at: 1s, for: 1s}]"
    )
    path.write_text(PLAIN % (PIPELINE, f"faults: {faults}"))
    refuse_from_elsewhere(resolve(ScenarioRequest(scenario=str(path), seed=1), RoundOptions()))
