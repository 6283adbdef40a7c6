"""The shape of the tree: imports go one way."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from harness.systems import SYSTEMS
from harness.workers import known_workers

ROOT = Path(__file__).resolve().parents[2]

#: What each part may import of ours. A prefix allows everything below it.
ALLOWED = {
    "cli": ("harness", "faults", "analysis", "experiments", "commands"),
    "commands": ("harness", "faults", "analysis", "experiments", "commands"),
    "experiments": ("experiments", "analysis", "faults", "harness"),
    "experiments/bundle": ("experiments.bundle", "analysis", "harness"),
    "experiments/history": (
        *("experiments.history", "analysis", "harness.contracts"),
        *("harness.rundir", "harness.errors", "harness.invocation"),
    ),
    "faults": (
        "faults",
        "harness.protocols",
        "harness.errors",
        "harness.rundir",
        "harness.owners",
        "harness.durations",
        "harness.sizes",
        "harness.start_times",
        "harness.waiting",
        "harness.faultlog",
        "harness.contracts",
        "harness.systems",
    ),
    "analysis": (
        "analysis",
        "harness.contracts",
        "harness.filesystems",
        "harness.records",
        "harness.rundir",
        "harness.errors",
        "harness.invocation",
        "harness.faultlog",
        "harness.logs",
        "harness.memory",
        "harness.systems",
        "harness.toolchains.java",
    ),
    "launcher": ("cli",),
    "harness": ("harness",),
    "bench": (
        "harness",
        "faults",
        "analysis",
        "experiments",
        "bench",
        "tests.planted",
        "tests.standalone",
    ),
    "docs": ("harness", "faults", "analysis", "experiments", "cli", "commands", "docs"),
    "tests": (
        *("harness", "faults", "analysis", "experiments", "cli", "commands"),
        "workers",
        "tests",
        "bench",
        "docs",
    ),
}
#: The bottom of the graph.
BARE = (
    "harness/protocols/cluster.py",
    "harness/protocols/limits.py",
    "harness/protocols/nodes.py",
    "harness/protocols/power.py",
    "harness/errors.py",
    "harness/durations.py",
    "harness/sizes.py",
    "harness/memory.py",
    "harness/start_times.py",
    "harness/waiting.py",
    "harness/contracts/rows.py",
    "harness/contracts/seal.py",
)
#: Client and broker libraries: only who talks to brokers may know them.
CLIENT_LIBRARIES = {
    module for worker in known_workers().values() for module in worker.python.imports
}
CLIENT_LIBRARIES_IN = ("harness/systems", "harness/workers", "workers", "tests", "bench")
SYSTEM_FILES = ROOT / "harness" / "systems"
OURS = (
    *("cli", "commands", "experiments", "harness", "faults", "analysis"),
    *("workers", "bench", "docs", "launcher", "tests"),
)


@cache
def sources() -> tuple[Path, ...]:
    found = [ROOT / "cli.py"] if (ROOT / "cli.py").exists() else []
    for part in OURS[1:]:
        found += sorted((ROOT / part).rglob("*.py"))
    return tuple(found)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    """A module, parsed once for all tests of its process."""
    return ast.parse(path.read_text(), str(path))


@cache
def nodes(path: Path) -> list[ast.AST]:
    """The imports and the functions of a module."""
    kinds = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, kinds)]


@cache
def imports(path: Path) -> list[tuple[int, str]]:
    """(line, module) of every import, also the late ones inside functions."""
    return list(_imports(path))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            # `from harness import plan` names a module only with what follows
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                yield node.lineno, below if module_file(below) else node.module


def is_below(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


def is_worker(path: Path) -> bool:
    return name_of(path).startswith("workers/")


def is_test(path: Path) -> bool:
    return name_of(path).startswith("tests/")


def test_workers_import_only_their_client_and_the_kit() -> None:
    """They run in environments of their own, beside a library of any age."""
    workers = ROOT / "workers"
    wrong = []
    for path in sorted(workers.glob("*/**/*.py")):
        folder = workers / path.relative_to(workers).parts[0]
        client = next(
            (w.python.imports for w in known_workers().values() if w.folder == folder), []
        )
        own = {each.stem for each in folder.glob("*.py")} | {"worker_kit", *client}
        known = sys.stdlib_module_names | own
        wrong += [
            f"{name_of(path)}:{line} imports {module}"
            for line, module in imports(path)
            if module.split(".")[0] not in known
        ]
    assert wrong == []


def test_there_is_something_to_check() -> None:
    names = {name_of(path) for path in sources()}
    assert {
        "harness/run/lifecycle.py",
        "harness/scenario/model.py",
        "analysis/findings.py",
        "faults/kit/params.py",
    } <= names


def allowed(path: Path) -> tuple[str, ...]:
    """What a module may import of ours: as its folder says, else as the part that it stands in."""
    folder = path.parent.relative_to(ROOT).as_posix()
    return ALLOWED.get(folder) or ALLOWED[path.relative_to(ROOT).parts[0].removesuffix(".py")]


@pytest.mark.long
def test_imports_go_one_way() -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {module}"
        for path in sources()
        if not is_worker(path)
        for line, module in imports(path)
        if is_below(module, OURS) and not is_below(module, allowed(path))
    ]
    assert wrong == []


def test_the_bottom_imports_nothing_of_ours() -> None:
    wrong = [
        f"{name}:{line} imports {module}"
        for name in BARE
        for line, module in imports(ROOT / name)
        if is_below(module, OURS) and not is_below(module, ("harness.contracts.rows",))
    ]
    assert wrong == []


def test_the_folder_of_a_system_is_a_plug_in() -> None:
    """Nobody but itself imports it: `System` does, by name, when it is asked for."""
    wrong = [
        f"{name_of(path)}:{line} imports {module}"
        for path in sources()
        if name_of(path).startswith(("cli.py", "commands/", "harness/", "faults/", "analysis/"))
        for line, module in imports(path)
        for name in SYSTEMS
        if is_below(module, (f"harness.systems.{name}",))
        and SYSTEM_FILES / name not in path.parents
    ]
    assert wrong == []


def test_the_facts_of_a_system_stand_on_errors_alone() -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {module}"
        for path in (*SYSTEM_FILES.glob("*.py"), *SYSTEM_FILES.glob("*/__init__.py"))
        for line, module in imports(path)
        if is_below(module, OURS) and not is_below(module, ("harness.systems", "harness.errors"))
    ]
    assert wrong == []


@pytest.mark.long
def test_only_the_modules_of_a_system_name_it() -> None:
    """Everybody else asks `harness.systems`; docs/howto/add-a-system.md says which modules a system
    has."""
    parts = ("cli.py", "commands/", "harness/", "faults/", "analysis/")
    wrong = [
        f"{name_of(path)}:{node.lineno} says {node.value!r}"
        for path in sources()
        if name_of(path).startswith(parts) and SYSTEM_FILES not in path.parents
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and node.value in SYSTEMS
    ]
    assert wrong == []


def rooms_of(path: Path) -> str:
    """The folder of a module; a module beside folders at the top of a part is a room of its own."""
    name = name_of(path)
    is_beside_rooms = name.count("/") < 2 and path.name != "__init__.py"
    return name if is_beside_rooms else path.parent.relative_to(ROOT).as_posix()


@cache
def module_file(module: str) -> Path | None:
    base = ROOT.joinpath(*module.split("."))
    return next((f for f in (base.with_suffix(".py"), base / "__init__.py") if f.exists()), None)


def circle(arrows: Mapping[str, set[str]]) -> list[str]:
    """The members of circles: what is left after leaves were taken away again and again."""
    left = {name: set(targets) - {name} for name, targets in arrows.items()}
    while leaves := {name for name, targets in left.items() if not targets & left.keys()}:
        left = {name: targets for name, targets in left.items() if name not in leaves}
    return sorted(left)


@pytest.mark.long
@pytest.mark.parametrize("unit", [name_of, rooms_of], ids=["modules", "rooms"])
def test_imports_make_no_circle(unit: Callable[[Path], str]) -> None:
    """Late imports inside functions count, too: they hide a circle, they do not remove it."""
    arrows: dict[str, set[str]] = defaultdict(set)
    for path in sources():
        if is_worker(path) or is_test(path):
            continue
        targets = (module_file(module) for _, module in imports(path) if is_below(module, OURS))
        arrows[unit(path)] |= {unit(target) for target in targets if target is not None}
    assert circle(arrows) == []


def test_only_who_talks_to_brokers_knows_a_client_library() -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {module}"
        for path in sources()
        if not name_of(path).startswith(CLIENT_LIBRARIES_IN)
        for line, module in imports(path)
        if module.split(".")[0] in CLIENT_LIBRARIES
    ]
    assert wrong == []


def test_kernels_know_no_spark() -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {module}"
        for path in sorted((ROOT / "analysis" / "kernels").rglob("*.py"))
        for line, module in imports(path)
        if module.split(".")[0] == "pyspark"
    ]
    assert wrong == []


def test_executors_of_spark_get_every_module_of_the_harness_that_theirs_import() -> None:
    """They have nothing of ours but what is shipped to them; modules that are imported when they
    are read."""
    from analysis.spark.session import SHIPPED

    missing = {
        f"{shipped}: {node.module}"
        for shipped in SHIPPED
        for node in tree_of(ROOT / shipped).body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("harness")
        if (file := module_file(node.module or "")) and str(file.relative_to(ROOT)) not in SHIPPED
    }
    assert missing == set()


def test_no_module_is_named_after_nothing() -> None:
    empty_words = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
    assert [name_of(path) for path in sources() if path.stem in empty_words] == []


@pytest.mark.parametrize("crate", ["rust_kit", "rust_rdkafka"])
def test_modules_of_a_crate_use_each_other_in_one_direction(crate: str) -> None:
    files = sorted((ROOT / "workers" / crate / "src").glob("*.rs"))
    used = {
        file.stem: set(re.findall(r"\bcrate::(\w+)", file.read_text())) - {"kit"} for file in files
    }
    assert list(TopologicalSorter(used).static_order())
