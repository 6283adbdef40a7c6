"""Run scenarios, start clusters and check results of brokerstorm from Python.

    import brokerstorm

    result = brokerstorm.run("storm.yaml", seed=7)
    brokerstorm.assert_clean(result)

Each call runs the command line in a separate process, so it shares no module, signal handler or JVM
with the caller. docs/howto/use-from-python.md has examples; `brokerstorm.pytest_plugin` has
fixtures for pytest.

In an installed package the program's files are in the same folder as this file, and `__main__` adds
that folder to the module path of the separate process.
"""

from brokerstorm.api import Cluster, Node, run, up
from brokerstorm.command import BrokerstormError
from brokerstorm.results import Fault, Finding, Result, Run, Witness, assert_clean

__all__ = [
    "BrokerstormError",
    "Cluster",
    "Fault",
    "Finding",
    "Node",
    "Result",
    "Run",
    "Witness",
    "assert_clean",
    "run",
    "up",
]
