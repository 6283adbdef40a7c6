"""docs/howto/add-a-worker.md: its example, copied into a folder outside the tree, adds a worker."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli import main
from harness.workers.facts import SettingFacts, TimeFacts
from harness.workers.spec import Contract
from tests.page_worker import PAGE, write_page_worker

NAME = "kafka-python-plain"
Capsys = pytest.CaptureFixture[str]
SCENARIO = f"""
name: mine
workers: [clients]
load: {{rate: 100, duration: 5s, producers: {{p: {{client: {NAME}}}}}}}
"""


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the worker of the page in clients/plain/ and a scenario that names it; we are
    in it."""
    folder = write_page_worker(tmp_path / "clients")
    (tmp_path / "mine.yaml").write_text(SCENARIO)
    monkeypatch.chdir(tmp_path)
    return folder


def test_plan_says_what_its_settings_promise(outside: Path, capsys: Capsys) -> None:
    assert main(["--json", "plan", "mine.yaml"]) == 0
    (plan,) = json.loads(capsys.readouterr().out)["plans"]
    assert plan["workers"] == [str(outside)]
    promise = plan["producers"][0]["promise"]
    assert (promise["delivery"], promise["order"], promise["dedup"]) == ("durable", True, True)
    assert promise["because"]["order"] == f"enable_idempotence=true (default of {NAME})"


def test_a_client_that_says_nothing_of_its_settings_is_not_promised_to_keep_order(
    outside: Path, capsys: Capsys
) -> None:
    toml = outside / "worker.toml"
    toml.write_text(
        re.sub(r"^\[promises\].*?^\[", "[", toml.read_text(), flags=re.MULTILINE | re.DOTALL)
    )
    assert main(["plan", "mine.yaml"]) == 0
    said = capsys.readouterr().out
    assert "order unknown" in said
    assert "kept" not in said


@pytest.mark.usefixtures("outside")
def test_an_option_that_it_sets_itself_is_refused(capsys: Capsys) -> None:
    assert main(["plan", "mine.yaml", "--set", "load.producers.p.options.client_id=x"]) == 2
    assert "client_id: is set by brokerstorm itself" in capsys.readouterr().err


@pytest.mark.usefixtures("outside")
def test_list_workers_knows_it_by_the_environment(
    capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["list", "workers"]) == 0
    assert NAME not in capsys.readouterr().out
    monkeypatch.setenv("BROKERSTORM_WORKERS", "clients")
    assert main(["--json", "list", "workers"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["items"]}
    assert rows[NAME]["roles"] == ["producer"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("right", "wrong", "code", "words"),
    [
        ("", "", 0, "kafka-python-plain: 1 ok"),
        ("if __name__", "lay.FORMAT_VERSION = 2\nif __name__", 1, "byte 218 is 0x02, must be 0x01"),
        ("sys.exit(main(", "sys.exit(3 or main(", 1, "--self-test ended with 3"),
        ("versions =", "versons =", 2, "versons: unknown key"),
        ("[python]", 'tools = ["no-such-tool"]\n[python]', 4, "needs no-such-tool"),
    ],
)
def test_check_worker_says_by_its_exit_code_what_is_wrong(
    outside: Path, capsys: Capsys, right: str, wrong: str, code: int, words: str
) -> None:
    for path in (outside / "worker.toml", outside / "worker.py"):
        path.write_text(path.read_text().replace(right, wrong) if right else path.read_text())
    assert main(["check-worker", "clients/plain", "--only", "self-test"]) == code
    assert words in "".join(capsys.readouterr())


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["clients"], "no worker.toml in clients"),
        (["aiokafke"], "did you mean aiokafka?"),
        (["clients/plain", "--only", "selftest"], "no such check"),
    ],
)
def test_check_worker_wants_one_worker_and_checks_that_there_are(
    capsys: Capsys, arguments: list[str], words: str
) -> None:
    assert main(["check-worker", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_the_page_has_every_key_that_a_worker_may_state() -> None:

    for model in (SettingFacts, TimeFacts, Contract):
        for name in model.model_fields:
            assert f"`{name}`" in PAGE, f"{model.__name__}.{name}"
