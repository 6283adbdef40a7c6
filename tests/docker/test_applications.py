"""Applications in images of the user: instances in containers are killed, restarted and frozen, and
their outputs judged."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.clusters.docker import engine as docker_engine
from harness.clusters.docker.programs import INSTANCE_LABEL
from harness.clusters.limits.groups import why_not
from harness.toolchains.go import find_go
from tests.live.run_rig import LiveRun
from tests.machine import ORPHANS

pytestmark = [pytest.mark.docker, pytest.mark.extended, pytest.mark.usefixtures("plugin")]

PROGRAM = Path(__file__).parent / "invoices"
IMAGE = "brokerstorm-tests/invoices:1"
SCENARIO = f"""
name: application-image
topics: {{orders: {{partitions: 4}}, invoices: {{partitions: 4}}}}
load:
  rate: 200
  duration: 16s
  warm_up: 1s
  producers: {{shop: {{topics: [orders]}}}}
applications:
  billing:
    image: {IMAGE}
    run: [instance, "{{instance}}"]
    env:
      BOOTSTRAP: "{{bootstrap}}"
      IN: "{{topic:orders}}"
      OUT: "{{topic:invoices}}"
      GROUP: "{{group}}"
      FOLDER: "{{folder}}"
    instances: 2
    ready: {{log: started}}
    from: orders
    to: {{topic: invoices}}
faults:
  - {{fault: client-kill, target: "client:billing-1", at: 2s, for: 1s}}
  - {{fault: client-restart, target: "client:billing-2", at: 6s}}
  - {{fault: client-freeze, target: "client:billing-1", at: 10s, freeze: 1s, period: [2s, 2s], for: 2s}}
require: {{rate_ratio: 0.5}}
limits: {{drain: 30s}}
"""


@pytest.fixture(scope="module")
def program(
    engine: Any, image: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The image of the program: one file of Go without libraries, as `FROM scratch` makes it."""
    image("kafka")
    built = tmp_path_factory.mktemp("image") / "invoices"
    subprocess.run(
        [find_go().path, "build", "-trimpath", "-buildvcs=false", "-o", str(built), "."],
        cwd=PROGRAM,
        env={**os.environ, "CGO_ENABLED": "0"},
        check=True,
        timeout=300,
    )
    tree = io.BytesIO()
    with tarfile.open(fileobj=tree, mode="w") as tar:
        tar.add(built, "invoices")
    said = engine.api.import_image_from_data(
        tree.getvalue(),
        repository=IMAGE.rpartition(":")[0],
        tag=IMAGE.rpartition(":")[2],
        changes=['ENTRYPOINT ["/invoices"]', "USER 1000:1000"],
    )
    assert "error" not in said, said


@pytest.mark.usefixtures("program")
def test_instances_in_containers_are_judged_as_processes_are(tmp_path: Path, engine: Any) -> None:
    with LiveRun(tmp_path, scenario=SCENARIO, runtime="auto") as run:
        assert run.wait() == 0, run.errors()
        document = run.document()
        rows = [json.loads(line) for line in run.journal().splitlines()]
        assert len([row for row in rows if row["event"] == "inject"]) == 3
        assert all(row["effective"] for row in rows if row["event"] == "effect")
        rows = json.loads((run.root / "manifest.json").read_text())["applications"]
        assert [(row["name"], row["exit_code"], row["killed"]) for row in rows] == [
            ("application-billing-1", -signal.SIGKILL, True),
            ("application-billing-2", 0, False),
            ("application-billing-1.2", 0, False),
            ("application-billing-2.2", 0, False),
        ]
        own = run.root / "applications" / "application-billing-2"
        assert "started instance 2" in (own / "stdout.log").read_text()
        assert (own / "folder" / "starts.txt").read_text() == "start\n" * 2
        assert document["environment"]["runtime"].startswith("docker")
        assert docker_engine.leftovers(engine, run.root.name) == {}


@pytest.mark.usefixtures("program")
def test_clean_removes_the_containers_of_applications(tmp_path: Path, engine: Any) -> None:
    with LiveRun(tmp_path, scenario=SCENARIO, runtime="docker") as run:
        run.wait_for_fault()
        with ORPHANS:
            run.signal(signal.SIGKILL)
            run.process.wait()
            names = {
                each.attrs["Labels"].get(INSTANCE_LABEL)
                for each in docker_engine.containers(engine, run.root.name)
            }
            assert {"application-billing-1", "application-billing-2"} & names
            done = run.command("clean")
        assert done.code == 0, done.err
        assert docker_engine.leftovers(engine, run.root.name) == {}
        assert run.processes() == []


@pytest.mark.usefixtures("program")
def test_limits_and_faults_on_the_network_take_effect_on_containers(tmp_path: Path) -> None:
    for controller in ("cpu", "memory"):
        if reason := why_not(controller):
            pytest.skip(reason)
    step = 'latency, link: "application:billing-2", target: kafka-1, delay: 300ms, at: 2s, for: 3s'
    text = SCENARIO[: SCENARIO.index("faults:")] + f"faults:\n  - {{fault: {step}}}\n"
    text += SCENARIO[SCENARIO.index("require:") :]
    limits = "limits: {cpu: 0.4, memory: 96MB}\n    restarts: always\n    instances: 2"
    text = text.replace("instances: 2", limits)
    text = text.replace('FOLDER: "{folder}"', 'FOLDER: "{folder}"\n      EATS: "{instance}"')
    with LiveRun(tmp_path, scenario=text, runtime="auto") as run:
        assert run.wait() == 0, run.errors()
        (latency,) = run.document()["faults"]
        assert latency["effective"], latency
        assert "(application-billing-2 -> kafka-1)" in latency["evidence"]
        assert "application-billing-1 had to wait" in run.errors()
        ended = (run.root / "events.jsonl").read_text()
        assert "because it needed more than its limit of 96 MB memory" in ended
