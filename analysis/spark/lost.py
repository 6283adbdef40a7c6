"""Ends a job that no executor is left for: Spark itself waits for one for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from analysis.spark.barrier import executors_of
from analysis.spark.session import is_local
from harness.errors import EnvironmentNotReady

if TYPE_CHECKING:
    from pyspark import SparkContext

#: Executors of a busy cluster, or of one that lends them as they are needed, may come back so late.
LOST_S: Final = 120.0
_LOOK_EVERY_S: Final = 1.0


@contextmanager
def ends_without_executors(session: SparkContext) -> Iterator[None]:
    """Cancel the jobs of this block once there has been no executor for `LOST_S`.

    Raises:
        EnvironmentNotReady: that was so.
    """
    over, is_lost = threading.Event(), threading.Event()

    def watch() -> None:
        since = time.monotonic()
        while not over.wait(_LOOK_EVERY_S):
            if executors_of(session):
                since = time.monotonic()
            elif time.monotonic() - since > LOST_S:
                is_lost.set()
                session.cancelAllJobs()
                return

    watching = threading.Thread(target=watch, name="executors", daemon=True)
    if not is_local(session.master):
        watching.start()
    try:
        yield
    except Exception as error:
        if not is_lost.is_set():
            raise
        raise EnvironmentNotReady(
            f"no executor of {session.master} has been there for {LOST_S:.0f} s: start its master and"
            " workers, then `brokerstorm analyze` judges what was captured"
        ) from error
    finally:
        over.set()
