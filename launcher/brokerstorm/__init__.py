"""brokerstorm from Python: `run` a scenario, keep a cluster `up`, `assert_clean` what a run found.

    import brokerstorm

    result = brokerstorm.run("storm.yaml", seed=7)
    brokerstorm.assert_clean(result)

Each call starts the command line in a process of its own, so it shares no module, signal handler or JVM with
the caller. docs/howto/use-from-python.md has examples; `brokerstorm.pytest_plugin` has fixtures for pytest.

In an installed package the tree lies beside this file, and `__main__` puts it on the path of that process.
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
