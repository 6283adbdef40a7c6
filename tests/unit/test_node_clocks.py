"""A process whose wall clock is a file's: what it is told, and what stays as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.clusters.clocks.clocks import NodeClocks, why_not
from harness.errors import EnvironmentNotReady
from harness.protocols.clocks import OWN_CLOCKS

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())
NEEDS = frozenset({OWN_CLOCKS})
#: Answers each line of its input with both clocks.
ASKED = "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"


@pytest.fixture
def clocks(tmp_path: Path) -> NodeClocks:
    return NodeClocks({"kafka-1": tmp_path / "kafka-1"}, NEEDS)


def test_a_jump_and_a_drift_show_at_once_and_monotonic_time_stays(clocks: NodeClocks) -> None:
    environment = {**os.environ, **clocks.environment("kafka-1")}
    command = [sys.executable, "-c", ASKED]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def look() -> tuple[float, float]:
            process.stdin.write("\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            wall, monotonic = process.stdout.readline().split()  # type: ignore[union-attr]
            return float(wall) - float(monotonic), float(monotonic)

        real, _ = look()
        assert not clocks.were_set()
        clocks.set("kafka-1", 3600.0)
        assert look()[0] - real == pytest.approx(3600.0, abs=0.5)
        clocks.set("kafka-1", -60.0)
        assert look()[0] - real == pytest.approx(-60.0, abs=0.5)
        clocks.set("kafka-1", 0.0, speed=3.0)
        (first, begin), (last, end) = look(), look()
        assert last - first == pytest.approx(2 * (end - begin), rel=0.05, abs=1e-3)
        clocks.set("kafka-1", 0.0)
        assert look()[0] == pytest.approx(real, abs=0.5)
        assert clocks.told("kafka-1", within_s=0.05) is None, "it did not ask"
        process.stdin.close()
    assert clocks.were_set()


def test_what_the_process_was_told_is_read_from_outside(clocks: NodeClocks) -> None:
    environment = {**os.environ, **clocks.environment("kafka-1")}
    clocks.set("kafka-1", 120.0)
    asks = "import time\nwhile True: time.time(); time.sleep(0.01)"
    with subprocess.Popen([sys.executable, "-c", asks], env=environment) as process:
        try:
            assert clocks.told("kafka-1", within_s=20.0) == pytest.approx(120.0, abs=1e-3)
        finally:
            process.kill()


def test_a_cluster_that_was_started_without_says_what_to_do(tmp_path: Path) -> None:
    without = NodeClocks({"kafka-1": tmp_path}, frozenset())
    assert without.environment("kafka-1") == {}
    with pytest.raises(EnvironmentNotReady, match="kafka-1 was started without own-clocks") as caught:
        without.set("kafka-1", 1.0)
    assert "brokerstorm up" in caught.value.hint
