"""Installed from wheel or sdist, or as a checkout: our modules and files are found, and nobody
else's."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from cli import main
from tests.installed import ROOT, Installed, build, install, run

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(wheel, tmp_path_factory.mktemp("installed"))


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_puts_one_package_into_site_packages(wheel: Path) -> None:
    assert {name.split("/")[0].partition("-")[0] for name in names(wheel)} == {"brokerstorm"}
    tops = {name.split("/")[0] for name in names(wheel)}
    assert tops == {"brokerstorm", f"{wheel.name.rpartition('-py3')[0]}.dist-info"}


def test_the_wheel_holds_every_file_that_a_command_reads(wheel: Path) -> None:
    folders = (
        "analysis",
        "commands",
        "compose",
        "experiments",
        "faults",
        "harness",
        "scenarios",
        "workers",
    )
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    paths += (ROOT / "docs").rglob("*.md")
    wanted = {
        f"brokerstorm/{path.relative_to(ROOT)}" for path in paths if "__pycache__" not in path.parts
    }
    assert wanted - names(wheel) == set()


@pytest.mark.extended
def test_the_sdist_makes_the_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "tree", filter="data")
    (tree,) = (tmp_path / "tree").iterdir()
    assert names(build("wheel", tmp_path / "made", tree=tree)) == names(wheel)


# ----- beside a user's own cli.py, harness/ and analysis/ -----------------------------------------


LAUNCHER = [sys.executable, str(ROOT / "launcher" / "brokerstorm" / "__main__.py")]


@pytest.fixture(scope="module")
def editable(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(ROOT, tmp_path_factory.mktemp("editable"))


@pytest.mark.extended
@pytest.mark.parametrize("kind", ["installed", "editable"])
@pytest.mark.parametrize("way", ["brokerstorm", "python -m brokerstorm", "launcher of a checkout"])
@pytest.mark.parametrize("safe_path", ["", "1"])
def test_no_module_of_the_user_comes_before_ours(
    request: pytest.FixtureRequest, kind: str, way: str, safe_path: str
) -> None:
    installed: Installed = request.getfixturevalue(kind)
    words = {
        "brokerstorm": [str(installed.command)],
        "python -m brokerstorm": [str(installed.python), "-m", "brokerstorm"],
        "launcher of a checkout": LAUNCHER,
    }[way]
    done = installed.call(*words, "list", "workers", PYTHONSAFEPATH=safe_path)
    assert (done.returncode, done.stderr) == (0, "")
    page = done.stdout.splitlines()[-1].partition(" says ")[0]
    is_tree = kind == "editable" or way == "launcher of a checkout"
    assert Path(page).is_relative_to(ROOT if is_tree else installed.environment.resolve())


@pytest.mark.parametrize("kind", ["scenarios", "bugs", "workers", "faults", "classes"])
def test_an_installed_tree_finds_its_own_files(
    installed: Installed, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    def names(said: str) -> list[str]:
        return [
            row.get("name") or row.get("kind") or row["class"] for row in json.loads(said)["items"]
        ]

    assert main(["--json", "list", kind]) == 0
    theirs = installed.call(str(installed.command), "--json", "list", kind).stdout
    assert names(theirs) == names(capsys.readouterr().out) != []


@pytest.mark.extended
def test_an_installed_plan_is_that_of_the_tree(installed: Installed) -> None:
    plans = [
        installed.call(*words, "plan", "pulsar-storm")
        for words in ([str(installed.command)], LAUNCHER)
    ]
    assert plans[0].stdout == plans[1].stdout
    assert (plans[0].returncode, plans[0].stderr) == (0, "")


def test_a_message_names_the_page_where_it_was_installed(installed: Installed) -> None:
    line = installed.call(str(installed.command), "list", "workers").stdout.splitlines()[-1]
    page = Path(line.partition(" says ")[0])
    assert page.is_relative_to(installed.environment.resolve())
    assert page.read_text().startswith("# ")


# ----- the command in messages --------------------------------------------------------------------


@pytest.mark.parametrize(
    "typed",
    [
        "brokerstorm",
        "{bin}/brokerstorm",
        "../environment/bin/brokerstorm",
        "python -m brokerstorm",
        "{bin}/python -m brokerstorm",
    ],
)
def test_messages_name_the_command_as_it_was_called(installed: Installed, typed: str) -> None:
    folder = installed.environment / "bin"
    typed = typed.format(bin=folder)
    path = os.pathsep.join([*([] if "/" in typed else [str(folder)]), os.environ["PATH"]])
    done = installed.call("sh", "-c", f"{typed} run", PATH=path)
    assert done.stderr == f"brokerstorm: which scenario?\n  `{typed} list scenarios` shows them\n"


@pytest.mark.parametrize(
    "typed", ["./brokerstorm", "../tree/brokerstorm", "{root}/brokerstorm", "bs"]
)
def test_messages_name_the_launcher_of_a_checkout(tmp_path: Path, typed: str) -> None:
    root = tmp_path / "tree"
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / "launcher").symlink_to(ROOT / "launcher")
    shutil.copy(ROOT / "brokerstorm", root)
    for name in ("brokerstorm", "python"):
        program = root / ".venv" / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        program.chmod(0o755)
    (tmp_path / "bs").symlink_to(root / "brokerstorm")
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    typed = typed.format(root=root)
    done = run(["sh", "-c", f"{typed} run"], cwd=root, env={**os.environ, "PATH": path})
    assert done.stderr == f"brokerstorm: which scenario?\n  `{typed} list scenarios` shows them\n"


@pytest.mark.extended
def test_files_keep_the_plain_name(installed: Installed) -> None:
    done = installed.call(str(installed.command), "--json", "run")
    assert json.loads(done.stdout)["error"]["hint"] == "`brokerstorm list scenarios` shows them"
