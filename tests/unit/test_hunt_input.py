"""What a user may give a hunt: versions, corpora, folders of other runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli import main
from experiments.hunt.hunting import (
    HuntRequest,
    _possible_step,
    _with_reference,
    _with_releases,
)
from tests.unit.test_hunt import INVENTORY, NOTHING_ELSE

RELEASES = {"sarama": ["1.43.3", "1.61.1", "1.60.0"], "franz-go": ["1.22.3", "2.0.0"]}


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package index with the releases of two clients."""
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "experiments.versions.released_clients", lambda worker: RELEASES[worker.library]
    )


@pytest.mark.usefixtures("index")
def test_open_versions_are_those_of_today() -> None:
    given: dict[str, Any] = {
        **NOTHING_ELSE,
        "client": "sarama@latest",
        "reference": "franz-go@latest-minor",
        "offline": False,
    }
    asked = _with_releases(HuntRequest(**given), print)
    assert (asked.client, asked.reference) == ("sarama@1.61.1", "franz-go@1.22.3")


@pytest.mark.usefixtures("index")
def test_a_version_that_no_release_fits_is_refused_with_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--run-dir", str(tmp_path / "runs"), "hunt", "--budget", "1m"]
    assert main([*words, "--client", "sarama@>=2"]) == 2
    assert "--client sarama@>=2: no release fits >=2: the newest is 1.61.1" in (
        capsys.readouterr().err
    )


def test_a_kind_that_takes_longer_than_the_load_is_left_out() -> None:
    load = {"load": {"duration": 0.1}}
    assert _possible_step("kill", INVENTORY, load, lambda step: True) is None


def test_a_reference_client_that_sends_no_batches_gets_no_size_of_them() -> None:
    shop = {"client": "sarama", "client_version": "1.43.3", "calls": "batch", "batch": 50}
    data = {"load": {"producers": {"shop": shop}, "consumers": {}}}
    changed, _ = _with_reference("confluent-kafka@2.16.1", data)
    assert not {"calls", "batch"} & {*changed["load"]["producers"]["shop"]}
