"""The process that Spark forks its Python workers from, on this machine.

Spark's own daemon imports nothing before it forks, so each worker imports NumPy, PyArrow and the
kernels again. This one imports them once. Nothing here may have started a thread by then:
`analysis.spark.session` sets the variables that keep NumPy's and PyArrow's libraries from it.
"""

from __future__ import annotations

import pyspark.worker  # noqa: F401 - what is forked runs it
from pyspark.daemon import manager

from analysis.spark.probe import import_for_judging

if __name__ == "__main__":
    import_for_judging()
    manager()
