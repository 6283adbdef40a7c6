"""Drivers on real processes: what they do is seen by requests of ours, what they say is not
believed."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pydantic import ValidationError

from harness.clusters.drivers import drivers_of, kubernetes
from harness.clusters.drivers.driven import abilities_of
from harness.connections.drivers import DriversPart
from harness.errors import EnvironmentNotReady, HealError
from harness.protocols.nodes import Killable, Pausable, Stoppable
from tests.driver_rig.kubernetes_api import KubernetesApi
from tests.driver_rig.nodes import ENVIRONMENT, Nodes, operator

pytest.importorskip("kubernetes")
ACTIONS = ("kill", "stop", "restart", "pause", "resume", "check")
T = TypeVar("T")
NOTHING = [sys.executable, "-S", "-c", "", "{node}"]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    found = Nodes(tmp_path_factory.mktemp("nodes"), "kafka-1", "kafka-2")
    yield found
    found.close()


@pytest.fixture
def nodes(started: Nodes) -> Nodes:
    """All of them running."""
    by_command(started).able(Pausable).resume("kafka-1")
    by_command(started).able(Killable).start("kafka-1")
    return started


@pytest.fixture
def api(nodes: Nodes) -> Iterator[KubernetesApi]:
    found = KubernetesApi(nodes)
    yield found
    found.close()


class Driven:
    """What drivers make possible, as faults find it: by ability."""

    def __init__(self, nodes: Nodes, drivers: dict[str, Any], limit_s: float = 60) -> None:
        found = drivers_of(DriversPart.model_validate(drivers), nodes.folder, ENVIRONMENT)
        self.parts = abilities_of(
            found, nodes.endpoints, nodes.answers, seen_s=limit_s, back_s=limit_s
        )

    def able(self, ability: type[T]) -> T:
        return next(part for part in self.parts if isinstance(part, ability))

    @property
    def abilities(self) -> set[type]:
        known = (Killable, Stoppable, Pausable)
        return {each for each in known if any(isinstance(part, each) for part in self.parts)}


def by_command(nodes: Nodes, limit_s: float = 60, **other: Any) -> Driven:
    """The operator's program, with other lists for some actions; None leaves one out."""
    lists = {action: {"run": operator(nodes.folder, action)} for action in ACTIONS}
    given = {action: value for action, value in (lists | other).items() if value}
    return Driven(nodes, {"command": given}, limit_s)


def by_kubernetes(api: KubernetesApi, limit_s: float = 60, **other: Any) -> Driven:
    path = api.kubeconfig(api.nodes.folder)
    return Driven(
        api.nodes,
        {
            "kubernetes": {
                "label": "app=kafka,pod-name={node}",
                "namespace": "staging",
                "kubeconfig": path.name,
                **other,
            }
        },
        limit_s,
    )


@pytest.mark.long
def test_commands_kill_pause_and_stop_a_node_and_bring_it_back(nodes: Nodes) -> None:
    found = by_command(nodes)
    kills, pauses = found.able(Killable), found.able(Pausable)
    kills.kill("kafka-1")
    assert (nodes.answers("kafka-1"), kills.is_running("kafka-1")) == (False, False)
    assert kills.is_running("kafka-2")
    kills.start("kafka-1")
    pauses.pause("kafka-1")
    assert pauses.is_paused("kafka-1")
    assert kills.is_running("kafka-1")  # it is there, and says nothing
    # One that knows nothing of the pause sees it, too, and ends it: `clean` after a kill -9.
    assert by_command(nodes).able(Pausable).is_paused("kafka-1")
    by_command(nodes).able(Pausable).resume("kafka-1")
    assert not pauses.is_paused("kafka-1")
    assert found.able(Stoppable).stop("kafka-1", timeout_s=20)
    found.able(Stoppable).start("kafka-1")
    assert nodes.answers("kafka-1")


@pytest.mark.parametrize(("action", "ability"), [("kill", Killable), ("pause", Pausable)])
def test_a_driver_that_lies_is_told(nodes: Nodes, action: str, ability: type) -> None:
    liar = by_command(
        nodes,
        0.3,
        **{
            action: {"run": NOTHING},
            "check": {"run": [*NOTHING[:3], "raise SystemExit(3)", "{node}"]},
        },
    )
    with pytest.raises(
        EnvironmentNotReady, match=f"says that it {action}.* kafka-1, which still answers"
    ):
        getattr(liar.able(ability), action)("kafka-1")
    assert liar.able(Killable).is_running("kafka-1")
    assert not liar.able(Pausable).is_paused("kafka-1")


@pytest.mark.long
def test_a_heal_that_is_only_said_is_told(nodes: Nodes) -> None:
    by_command(nodes).able(Killable).kill("kafka-1")
    with pytest.raises(HealError, match="says that it started kafka-1, but nothing listens at"):
        by_command(nodes, 0.3, restart={"run": NOTHING}, check={"run": NOTHING}).able(
            Killable
        ).start("kafka-1")
    by_command(nodes).able(Killable).start("kafka-1")
    by_command(nodes).able(Pausable).pause("kafka-1")
    with pytest.raises(HealError, match="says that it resumed kafka-1, which does not answer"):
        by_command(nodes, 0.3, resume={"run": NOTHING}, check={"run": NOTHING}).able(
            Pausable
        ).resume("kafka-1")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ({"run": [sys.executable, "-S", "-c", "print('a\\nno such host'); raise SystemExit(255)", "{node}"]},
         'kill of kafka-1 ended with exit code 255; it said "no such host"'),
        ({"run": ["no-such-program", "{node}"]}, "cannot start no-such-program: No such file"),
        ({"run": [sys.executable, "-S", "-c", "import time; time.sleep(60)", "{node}"], "timeout": 0.2},
         "did not end within 0.2 s and was killed"),
    ],
)  # fmt: skip
def test_a_command_that_fails_or_hangs_is_told_within_its_limit(
    nodes: Nodes, command: dict[str, Any], told: str
) -> None:
    start = time.monotonic()
    with pytest.raises(EnvironmentNotReady, match=told) as caught:
        by_command(nodes, kill=command).able(Killable).kill("kafka-1")
    assert time.monotonic() - start < 30
    assert "drivers.command.kill" in caught.value.hint


def test_no_shell_reads_a_name(nodes: Nodes, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    program = [
        sys.executable,
        "-S",
        "-c",
        "import sys; open(sys.argv[1], 'w').write(sys.argv[2])",
        str(seen),
    ]
    part = DriversPart.model_validate({"command": {"check": {"run": [*program, "a {node} $HOME"]}}})
    (driver,) = drivers_of(part, nodes.folder, ENVIRONMENT)
    assert driver.state("x; touch y") == "running"
    assert seen.read_text() == "a x; touch y $HOME"


def test_what_no_driver_can_do_and_undo_is_no_ability(nodes: Nodes, api: KubernetesApi) -> None:
    assert by_command(nodes, pause=None, resume=None, stop=None).abilities == {Killable}
    assert by_command(nodes, kill=None, stop=None).abilities == {Pausable}
    assert by_kubernetes(api).abilities == {Killable, Stoppable}
    assert Driven(nodes, {}).abilities == set()
    assert Driven(nodes, {"docker": {"label": "node={node}"}}).abilities == {
        Killable,
        Stoppable,
        Pausable,
    }


@pytest.mark.parametrize(
    ("drivers", "why"),
    [
        ({"command": {"kill": {"run": ["k", "{node}"]}, "check": {"run": ["c", "{node}"]}}}, "needs restart"),
        ({"command": {"check": {"run": ["check", "all"]}}}, "does not say which node"),
        ({"command": {"check": {"run": []}}}, "at least 1"),
        ({"docker": {"label": "kafka"}}, "does not say which node"),
        ({"kubernetes": {"label": "app=kafka"}}, "does not say which node"),
    ],
)  # fmt: skip
def test_a_driver_that_names_no_node_or_cannot_heal_is_refused(
    drivers: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValidationError, match=why):
        DriversPart.model_validate(drivers)


def test_pods_are_deleted_without_grace_and_their_replacements_awaited(api: KubernetesApi) -> None:
    found = by_kubernetes(api)
    found.able(Killable).kill("kafka-1")
    assert api.deletions == [("kafka-1", 0)]
    assert not found.able(Killable).is_running("kafka-1")
    found.able(Killable).start("kafka-1")
    assert api.nodes.answers("kafka-1")
    assert found.able(Stoppable).stop("kafka-1", timeout_s=20)
    assert api.deletions[1:] == [("kafka-1", 20)]
    found.able(Killable).start("kafka-1")


def test_an_api_server_that_refuses_hangs_or_lies_is_told(
    api: KubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = by_kubernetes(api)
    api.kubeconfig(api.nodes.folder, token="wrong")
    with pytest.raises(
        EnvironmentNotReady, match="cannot ask for kafka-1: the API server answers 401"
    ):
        found.able(Killable).kill("kafka-1")
    found = by_kubernetes(api, 0.3)
    with pytest.raises(EnvironmentNotReady, match="finds 0 pods of kafka-9"):
        found.able(Killable).kill("kafka-9")
    api.hangs.set()
    with pytest.raises(EnvironmentNotReady, match=r"[Tt]imed out|timeout"):
        by_kubernetes(api, timeout=0.5).able(Killable).kill("kafka-1")
    api.hangs.clear()
    api.kills, api.replaces = False, False
    with pytest.raises(
        EnvironmentNotReady, match="says that it killed kafka-1, which still answers"
    ):
        found.able(Killable).kill("kafka-1")
    api.nodes.kill("kafka-1")
    monkeypatch.setattr(kubernetes, "wait_until", lambda is_ready, *_, **__: is_ready())
    with pytest.raises(
        EnvironmentNotReady, match="waited 180 s in vain for a ready pod of kafka-1"
    ):
        found.able(Killable).start("kafka-1")
