"""docs/howto/add-a-system.md: its example, copied over a copy of the tree, adds a system."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "howto" / "add-a-system.md"
EXAMPLE = ROOT / "examples" / "system"
TREE = (
    "cli.py",
    "commands",
    "harness",
    "faults",
    "analysis",
    "experiments",
    "compose",
    "scenarios",
    "workers",
)
SCENARIO = """\
name: mine
system: artemis
topics: {orders: {count: 2}}
load: {rate: 100, duration: 5s, warm_up: 0s, consumers: {c: {receive: listener}}}
variants:
  safe: {}
  unsafe: {expect: acked-lost, override: {load: {producers: {p: {options: {receipt: false}}}}}}
"""

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Call:
    """Runs a program of the copy: (arguments) -> the ended process."""
    tree = tmp_path_factory.mktemp("tree")
    for name in TREE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tree / name)
    shutil.copytree(EXAMPLE, tree, dirs_exist_ok=True)
    (tree / "mine.yaml").write_text(SCENARIO)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=tree, capture_output=True, text=True, check=False, timeout=60
        )

    return run


def test_the_example_has_every_file_of_the_table() -> None:
    for pattern in re.findall(r"^\| `([^`]*<name>[^`]*)`", PAGE.read_text(), re.MULTILINE):
        assert (EXAMPLE / pattern.replace("<name>", "artemis")).exists()


@pytest.mark.long
def test_list_knows_the_system_and_its_client(call: Call) -> None:
    rows = json.loads(call("cli.py", "--json", "list", "systems").stdout)["items"]
    assert [row["name"] for row in rows] == [
        "artemis",
        "kafka",
        "nats",
        "pulsar",
        "qpid",
        "rabbitmq",
    ]
    workers = json.loads(call("cli.py", "--json", "list", "workers").stdout)["items"]
    assert "stomp.py" in {row["name"] for row in workers}


@pytest.mark.long
def test_plan_says_what_its_settings_promise(call: Call) -> None:
    done = call("cli.py", "plan", "mine.yaml")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    for words in (
        "artemis 2.31.2",
        "2 topics, orders-000 to orders-001, a queue",
        "stomp.py",
        "delivery durable: a receipt is sent when the journal has the message",
        "delivery none: receipt=false",
    ):
        assert words in said


#: --set of a scenario -> what the error says.
REFUSED = {
    "load.consumers.c.commit_every=2s": "commit_every: has no meaning on artemis, got '2s'; a consumer of",
    "topics.orders.partitions=3": "partitions: must be 1: a queue has no partitions, got 3",
    "cluster.topology=group": "cluster.topology: is not a topology of artemis, got 'group'",
    "system=artemi": "must be 'artemis', 'kafka', 'nats', 'pulsar', 'qpid' or 'rabbitmq', got 'artemi'",
}
#: Each starts with what a process has to import: one process makes all plans.
PLAN_EACH = """
import sys
from cli import main
for setting in sys.argv[1:]:
    code = main(["plan", "mine.yaml", "--set", setting])
    print(f"END {code}", file=sys.stderr, flush=True)
"""


@pytest.mark.long
def test_scenarios_are_checked_against_it(call: Call) -> None:
    done = call("-c", PLAN_EACH, *REFUSED)
    errors = re.split(r"END (\d+)\n", done.stderr)
    assert errors[1::2] == ["2"] * len(REFUSED), done.stderr
    for error, said in zip(errors[::2], REFUSED.values(), strict=False):
        assert said in error


@pytest.mark.long
def test_schema_and_cluster_know_it(call: Call) -> None:
    done = call(
        "-c",
        "from harness.clusters import spec_of\n"
        "from harness.clusters.assembly import assembly_of\n"
        "from harness.scenario.schema import scenario_schema\n"
        "print(scenario_schema({})['properties']['system']['enum'])\n"
        "print([node.name for node in spec_of('artemis').nodes], type(assembly_of('artemis')).__name__)\n",
    )
    assert done.stdout.splitlines() == [
        "['artemis', 'kafka', 'nats', 'pulsar', 'qpid', 'rabbitmq']",
        "['artemis-1'] _Artemis",
    ], done.stderr
