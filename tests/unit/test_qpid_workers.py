"""Which jars a version of a JMS client stands for, and how one source serves two names of the
API."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.systems import SYSTEMS
from harness.toolchains.coordinates import Artifacts
from harness.workers import load_worker, worker_names
from harness.workers.java_build import _renamed, client_of


def test_workers_of_qpid() -> None:
    assert {"pika", "qpid-jms-legacy"} <= set(worker_names("qpid"))
    for name in worker_names("qpid"):
        worker = load_worker(name)
        assert {"producer", "consumer"} <= set(worker.roles)
    assert SYSTEMS["qpid"].topologies == ("node", "memory", "group")


@pytest.mark.parametrize(
    ("version", "title", "excluded"),
    [
        ("", "org.apache.qpid:qpid-client:6.4.0", ()),
        ("qpid-client 0.12", "org.apache.qpid:qpid-client:0.12", ()),
        ("andes 3.0.2", "org.wso2.andes.wso2:andes:3.0.2", ("*:*",)),
        ("qpid-jms 1.12.0", "org.apache.qpid:qpid-jms-client:1.12.0", ()),
    ],
)
def test_a_client_is_named_and_versioned(
    version: str, title: str, excluded: tuple[str, ...]
) -> None:
    client = client_of(load_worker("qpid-jms-legacy"), version)
    assert (client.artifacts.title, client.artifacts.exclude) == (title, excluded)
    assert not client.renames


def test_the_api_of_qpid_jms_2_has_another_name(tmp_path: Path) -> None:
    client = client_of(load_worker("qpid-jms-legacy"), "qpid-jms 2.6.1")
    source = tmp_path / "One.java"
    source.write_text("import javax.jms.Session; class One { javax.jms.Session s; }")
    (made,) = _renamed([source], client.renames, tmp_path / "sources")
    assert made.name == "One.java"
    assert made.read_text() == "import jakarta.jms.Session; class One { jakarta.jms.Session s; }"


def test_versions_older_than_any_published_one_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot be used"):
        client_of(load_worker("qpid-jms-legacy"), "qpid-client 0.5")


def test_all_that_is_pulled_in_can_be_left_out() -> None:
    assert Artifacts(("a:b:1",), ("*:*",)).exclude == ("*:*",)
    with pytest.raises(UsageError, match="group:artifact"):
        Artifacts(("a:b:1",), ("*:b",))
