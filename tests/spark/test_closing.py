"""A session that is closed after its JVM has gone, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import os, signal, time
from pyspark.core.context import SparkContext
from analysis.spark.session import close_session, open_session

session = open_session("local[1]")
session.parallelize([1], 1).map(abs).collect()  # opens the connection for accumulators
jvm = SparkContext._gateway.proc
jvm.send_signal(signal.SIGKILL)
jvm.wait(30)
time.sleep(0.5)  # for whoever else hears of it
close_session(session)
print("closed")
"""


@pytest.mark.extended
def test_a_jvm_that_a_signal_ended_first_is_no_bug_of_ours() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "closed"), done.stderr[-2000:]
    assert (
        "during processing of request" not in done.stderr
    )  # the logs of py4j are for the command to silence
