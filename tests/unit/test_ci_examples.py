"""The files of examples/ci: right by the schemas of CI systems, and calling commands there are."""

from __future__ import annotations

import configparser
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from cli import cli
from experiments.nights.file import load_suite
from harness.toolchains.versions import numbers
from tests.howto import files_of
from tests.unit.test_imports import ROOT

FOLDER = ROOT / "examples" / "ci"
HOWTO = ROOT / "docs" / "howto" / "run-in-ci.md"


@pytest.mark.parametrize(
    ("file", "schema"),
    [
        ("github-nightly.yml", "vendor.github-workflows"),
        ("github-shards.yml", "vendor.github-workflows"),
        ("gitlab-nightly.yml", "vendor.gitlab-ci"),
        ("gitlab-shards.yml", "vendor.gitlab-ci"),
        ("gitlab-container.yml", "vendor.gitlab-ci"),
    ],
)
def test_the_schema_of_the_ci_system_takes_the_file(file: str, schema: str) -> None:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        schema,
        str(FOLDER / file),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("number", [0, 1])
def test_kubernetes_knows_every_key_of_its_objects(number: int) -> None:
    """Its client's classes are made from the published schema: what they do not know gets lost in
    them."""
    client = pytest.importorskip("kubernetes").client
    written = list(yaml.safe_load_all((FOLDER / "kubernetes-nightly.yaml").read_text()))[number]
    with client.ApiClient() as api:
        response = SimpleNamespace(data=json.dumps(written))
        read = api.deserialize(response, f"V1{written['kind']}")
        assert api.sanitize_for_serialization(read) == written


def test_a_service_is_stopped_gently_and_has_a_timer() -> None:
    service, timer = (unit(f"brokerstorm-nightly.{kind}") for kind in ("service", "timer"))
    # With KillMode=control-group brokers would get the signal too, and die before they are healed.
    assert service["Service"]["KillMode"] == "mixed"
    assert timer["Install"]["WantedBy"] == "timers.target"
    assert {"OnCalendar", "Persistent"} <= set(timer["Timer"])


def unit(name: str) -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((FOLDER / name).read_text())
    return {section: dict(parser[section]) for section in parser.sections()}


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_examples_call_commands_with_options_that_there_are(path: Path) -> None:
    text = re.sub(r"(?m)^ *#.*\n", "", path.read_text())
    text = re.sub(r"\n +(?=--)", " ", text)  # folded by YAML into one line
    calls = r"brokerstorm (?:--run-dir \S+ )?((?:suite|history|clean)\b.*)$"
    for called in re.finditer(calls, text, re.MULTILINE):
        words = called[1].split()
        command: Any = cli.commands[words[0]]
        command = command.commands[words[1]] if words[0] in ("suite", "history") else command
        known = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known


def test_a_job_may_take_longer_than_the_night(tmp_path: Path) -> None:
    budget_s = load_suite("nightly").suite.budget or 0
    job = yaml.safe_load((FOLDER / "github-nightly.yml").read_text())["jobs"]["nightly"]
    assert job["timeout-minutes"] * 60 > budget_s


@pytest.mark.parametrize("file", ["gitlab-nightly.yml", "gitlab-shards.yml"])
def test_the_image_has_the_languages_of_the_nightly_suite(file: str) -> None:
    text = (FOLDER / file).read_text()
    image = re.search(r"image: golang:(\d+\.\d+)-bookworm", text)
    assert image, "Debian's golang-go is older than workers ask for"
    lines = [
        re.search(r"^go (\S+)", path.read_text(), re.M)
        for path in (ROOT / "workers").glob("*/go.mod")
    ]
    assert numbers(f"{image[1]}.99") >= max(numbers(line[1]) for line in lines if line)
    assert {"nodejs", "npm", "cargo-web", "openjdk-17-jre-headless"} <= set(text.split())


def test_a_night_that_was_killed_gets_a_page() -> None:
    steps = yaml.safe_load((FOLDER / "github-nightly.yml").read_text())["jobs"]["nightly"]["steps"]
    (page,) = [step for step in steps if "suite report" in step.get("run", "")]
    assert page["if"] == "failure() || cancelled()"
    assert "suite report" in str(
        yaml.safe_load((FOLDER / "gitlab-nightly.yml").read_text())["nightly"]["after_script"]
    )


def test_the_suite_of_the_how_to_can_be_used(tmp_path: Path) -> None:
    (text,) = files_of(HOWTO).values()
    (tmp_path / "client.yaml").write_text(text)
    assert [spec.control for spec in load_suite(tmp_path / "client.yaml").suite.cells] == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    "folder", [FOLDER, ROOT / ".github" / "workflows"], ids=lambda path: path.name
)
def test_every_action_is_pinned_to_a_commit(folder: Path) -> None:
    """A tag or a branch is what its owner, or a thief of the account, says it is today."""
    used = re.findall(r"uses: *(\S+)", "".join(path.read_text() for path in folder.glob("*.yml")))
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each)] == []
