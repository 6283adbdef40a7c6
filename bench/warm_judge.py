"""A process with an open Spark session that judges a run when told to: what `run` is after its
drain.

    python -m bench.warm_judge RUN MASTER

Prints ``ready``, waits for a line, judges, prints the counts by class as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from analysis.spark.judge import judge
from analysis.spark.session import WarmSession
from harness.rundir import RunDir


def main() -> None:
    """Wait for a line, judge the run, and print what was found and how long it took."""
    run = RunDir(Path(sys.argv[1]).resolve())
    with WarmSession(sys.argv[2]) as warm:
        session = warm.get()
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.perf_counter()
        result = judge(run, session)
        wall_s = time.perf_counter() - began
        answer = {"wall_s": wall_s, "result": result.document()}
        print(json.dumps(answer, default=str), flush=True)
        sys.stdin.readline()  # the meter reads our CPU time before we go


if __name__ == "__main__":
    main()
