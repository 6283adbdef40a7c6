"""Checks before a run starts: the same for `plan`, `doctor`, `run` and `repro`."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli import main
from experiments import preflight as preflight_module
from experiments.plans import ScenarioRequest, choose_plans, read_scenario, resolve
from experiments.preflight import Preflight, preflight
from experiments.resolved import RoundOptions
from harness import workers
from harness.clusters.network import packets
from harness.contracts.worker import ProcessSpec
from harness.doctor import machine
from harness.errors import EnvironmentNotReady, Exit, ScenarioError, WorkerError
from harness.plan.estimate import Estimate, estimate
from harness.workers import load_worker
from harness.workers.spec import WorkerSpec

pytestmark = pytest.mark.usefixtures("clients_are_not_asked")
SMALL = {"load.rate": "1000", "load.duration": "10s", "load.warm_up": "2s"}


def scenario(tmp_path: Path, text: str = "name: x\n") -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return str(path)


def checked(tmp_path: Path, *settings: str, text: str = "name: x\n", **options: Any) -> Preflight:
    overrides = (*(f"{key}={value}" for key, value in SMALL.items()), *settings)
    asked = ScenarioRequest(scenario=scenario(tmp_path, text), overrides=overrides, seed=1)
    resolved = resolve(asked, RoundOptions(**{"runtime": "process", **options}))
    return preflight(resolved, tmp_path, ask_indexes=False)


IN_A_DATABASE = """
name: x
topics: {orders: {}}
load: {producers: {shop: {topics: [orders]}}}
applications:
  billing:
    run: ["true"]
    from: orders
    to: {sql: "nosuch://host/invoices", query: SELECT id FROM invoices}
    identity: {column: id}
"""


def test_a_database_that_cannot_be_used_is_found_before_anything_starts(tmp_path: Path) -> None:
    found = checked(tmp_path, text=IN_A_DATABASE)
    (missing,) = (check for check in found.missing if check.name == "database")
    assert missing.text.startswith("applications.billing.to.sql: host: Can't load plugin")
    assert found.exit_code == Exit.ENVIRONMENT


IN_AN_IMAGE = """
name: x
topics: {orders: {}, invoices: {}}
load: {producers: {shop: {topics: [orders]}}}
applications: {billing: {image: "no-such-image:1", from: orders, to: {topic: invoices}}}
"""


def test_an_application_in_an_image_needs_brokers_in_containers_and_its_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ScenarioError) as refused:
        checked(tmp_path, text=IN_AN_IMAGE)
    assert str(refused.value) == (
        "applications.billing.image: needs brokers in containers, and this run has --runtime process"
    )
    assert refused.value.hint.startswith("--runtime docker, or")
    with pytest.raises(ScenarioError) as refused:
        checked(tmp_path, text=IN_AN_IMAGE, secure=True)
    assert refused.value.hint.startswith("remove --secure, or")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine")
    found = checked(tmp_path, text=IN_AN_IMAGE, runtime="auto")
    (missing,) = (check for check in found.missing if check.name == "application image")
    assert missing.text.startswith("applications.billing.image: no Docker engine")
    assert found.exit_code == Exit.ENVIRONMENT


def test_a_program_without_a_password_is_refused_on_a_cluster_with_users(tmp_path: Path) -> None:
    """It could not connect, and would look as if it stalled."""
    text = IN_AN_IMAGE.replace('image: "no-such-image:1"', 'run: ["true"]')
    with pytest.raises(ScenarioError, match=r"has no \{password\}") as refused:
        checked(tmp_path, text=text, secure=True)
    assert str(refused.value).startswith("applications.billing.env: ")
    with_one = text.replace('run: ["true"]', 'run: ["true"], env: {SECRET: "{password}"}')
    for secure, program in ((False, text), (True, with_one)):
        checked(tmp_path, text=program, secure=secure)


# ----- refused everywhere -------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["plan", "doctor", "run", "fetch", "up"])
def test_a_fault_that_the_system_does_not_have_is_refused_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    path = scenario(tmp_path, "name: x\nfaults:\n  - {fault: unload, at: 2s}\n")
    assert main([command, path, "--run-dir", str(tmp_path / "runs")]) == Exit.USAGE
    assert f"{path}:3: faults[0].fault: unload" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.long
@pytest.mark.parametrize("command", ["plan", "doctor", "run"])
def test_broker_settings_that_the_runtime_owns_are_refused_at_once_each_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    path = scenario(tmp_path, "name: x\ncluster:\n  config:\n    node.id: 7\n    log.dirs: /data\n")
    assert main([command, path, "--run-dir", str(tmp_path / "runs")]) == Exit.USAGE
    said = capsys.readouterr().err
    assert f"{path}:4: cluster.config.node.id: cannot be set, the runtime decides it, got 7" in said
    assert f"{path}:5: cluster.config.log.dirs: cannot be set" in said


@pytest.mark.usefixtures("asked")
@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "name: x\nload: {producers: {p: {options: {lingr.ms: 5}}}}\n",
            "options of producer-p: lingr.ms: confluent-kafka refused its options: _INVALID_ARG: No such "
            'configuration property: "lingr.ms"; did you mean linger.ms?',
        ),
        (
            "name: x\nload: {consumers: {c: {client: kafka-python, options: {fetch_max: 5}}}}\n",
            "has no option fetch_max",
        ),
        (
            "name: x\nsystem: pulsar\nload: {producers: {p: {client: pulsar-client, options: {batchin: 5}}}}",
            "options of producer-p: ",
        ),
        (
            "name: x\nsystem: qpid\nload: {producers: {p: {client: pika, options: {hartbeat: 5}}}}\n",
            "has no option hartbeat; did you mean heartbeat?",
        ),
        *(
            (
                "name: x\nsystem: rabbitmq\nload: {producers: {p: {client: pika}}, consumers: "
                f"{{c: {{client: pika, options: {{prefetch_count: {value}}}}}}}}}\n",
                f"prefetch_count={value} must be a whole number from 0 to 65535",
            )
            for value in (-1, 1.5, 65536)
        ),
    ],
)
def test_an_option_that_a_client_refuses_is_found_without_a_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    assert main(["plan", scenario(tmp_path, text)]) == Exit.USAGE
    assert said in capsys.readouterr().err


def test_a_value_that_is_out_of_range_has_its_line_and_no_other_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "name: x\nsystem: rabbitmq\nload:\n  producers:\n    p:\n      options: {DeliveryMode: 3}\n"
    )
    path = scenario(tmp_path, text)
    assert main(["plan", path]) == Exit.USAGE
    said = f"{path}:6: load.producers.p.options: DeliveryMode=3: must be 1 (transient) or 2"
    assert said in capsys.readouterr().err
    worker, spec = load_worker("pika"), SimpleNamespace()
    spec.client = SimpleNamespace(options={"confirms": 9})
    told = "pika: confirms=9 must be 0 or 1"
    assert preflight_module._with_near_name(told, worker, spec) == told  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["plan", "doctor", "run"])
def test_all_options_that_clients_refuse_are_listed_with_their_lines(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    def refused(worker: WorkerSpec, spec: ProcessSpec) -> str:
        return next(
            (
                f"has no option {each}"
                for each in spec.client.options
                if each in ("lingr.ms", "akcs")
            ),
            "",
        )

    monkeypatch.setattr(workers, "refused_options", refused)
    options = "{options: {\n  lingr.ms: 5,\n  batch.size: 9,\n  akcs: all}}"
    path = scenario(tmp_path, f"name: x\nload: {{producers: {{p: {options}}}}}\n")
    assert main([command, path, "--run-dir", str(tmp_path / "runs")]) == Exit.USAGE
    said = capsys.readouterr().err
    assert f"{path}:3: options of producer-p: lingr.ms: has no option lingr.ms" in said
    assert f"{path}:5: options of producer-p: akcs: has no option akcs" in said
    assert "batch.size" not in said


@pytest.mark.usefixtures("asked")
def test_plan_says_whose_options_were_not_checked_and_how_clients_read_and_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def not_built(*_: object, **__: object) -> None:
        raise WorkerError("not built")

    monkeypatch.setattr(workers, "launch", not_built)
    text = (
        "name: x\nload: {producers: {p: {results: ignored}}, consumers: {c: {commit_every: 3s}}}\n"
    )
    assert main(["plan", scenario(tmp_path, text)]) == Exit.PASS
    said = " ".join(capsys.readouterr().out.split())
    assert "options of confluent-kafka were not checked: its worker is not built yet" in said
    assert "calls async, results ignored" in said
    assert "settle auto, commits every 3 s" in said


@pytest.mark.usefixtures("asked")
@pytest.mark.long
@pytest.mark.parametrize(
    ("client", "text", "said"),
    [
        (
            "kafka-clients",
            "consumers: {c: {client: kafka-clients, options: {fetch.min.byte: 5}}}",
            "fetch.min.bytes",
        ),
        (
            "sarama",
            "producers: {p: {client: sarama, options: {Producer.Retry.Maxx: 5}}}",
            "Producer.Retry.Max",
        ),
        (
            "pulsar-client-java",
            "producers: {p: {client: pulsar-client-java, options: {maxPendingMessage: 5}}}",
            "maxPendingMessages",
        ),
        (
            "qpid-jms-legacy",
            "producers: {p: {client: qpid-jms-legacy, options: {broker.retriess: 5}}}",
            "broker.retries?",
        ),
    ],
)
def test_the_same_of_clients_in_java_and_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], client: str, text: str, said: str
) -> None:
    worker = load_worker(client)
    found = workers.readiness(worker)
    if not (found.ok and found.fetched):
        pytest.skip(f"{client}: {found.detail}")
    assert (
        main(["plan", scenario(tmp_path, f"name: x\nsystem: {worker.system}\nload: {{{text}}}\n")])
        == Exit.USAGE
    )
    assert said in capsys.readouterr().err


# ----- versions -----------------------------------------------------------------------------------


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A cache without any list of versions, and the names of clients whose index was asked."""
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path / "cache"))
    asked: list[str] = []

    def released(worker: WorkerSpec, version: str) -> list[str]:
        asked.append(worker.library)
        return ["2.1.0", "2.2.0", "2.16.1"]

    toolchain = workers.TOOLCHAINS["python"]
    monkeypatch.setitem(workers.TOOLCHAINS, "python", replace(toolchain, released=released))
    return asked


def of_client(version: str) -> str:
    return f"name: x\nload: {{producers: {{p: {{client: confluent-kafka, client_version: {version}}}}}}}\n"


@pytest.mark.parametrize("command", ["plan", "doctor", "run"])
def test_versions_that_do_not_exist_are_refused_before_anything_starts(
    tmp_path: Path,
    index: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    monkeypatch.setattr("harness.toolchains.maven.released", lambda *_: ["4.0.0", "4.1.2"])
    monkeypatch.setattr("harness.toolchains.maven.is_released", lambda title: False)
    path = scenario(tmp_path, f"{of_client('9.9.9')}cluster: {{version: 8.8.8}}\n")
    assert main([command, path, "--run-dir", str(tmp_path / "runs")]) == Exit.USAGE
    said = capsys.readouterr().err
    assert "there is no confluent-kafka 9.9.9, no kafka 8.8.8" in said
    assert (
        "confluent-kafka 9.9.9: the closest ones are 2.1.0, 2.2.0, 2.16.1; "
        "kafka 8.8.8: the closest ones are 4.0.0, 4.1.2" in said
    )
    assert index == ["confluent-kafka"]
    assert not (tmp_path / "runs").exists()


def test_a_version_that_a_list_leaves_out_and_the_index_has_is_not_refused(
    tmp_path: Path, index: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.toolchains.maven.released", lambda *_: ["4.0.0"])
    monkeypatch.setattr(
        "harness.toolchains.maven.is_released", lambda title: title.endswith(":4.0.1")
    )
    path = scenario(tmp_path, "name: x\ncluster: {version: 4.0.1}\n")
    assert main(["plan", path]) == Exit.PASS


def test_without_network_plan_says_what_was_not_checked(
    tmp_path: Path,
    index: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def unreachable(worker: WorkerSpec, version: str) -> list[str]:
        raise WorkerError("no network")

    toolchain = workers.TOOLCHAINS["python"]
    monkeypatch.setitem(workers.TOOLCHAINS, "python", replace(toolchain, released=unreachable))
    assert main(["plan", scenario(tmp_path, of_client("9.9.9")), "--json"]) == Exit.PASS
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert warning == "whether there is confluent-kafka 9.9.9 was not checked: no network"


@pytest.mark.long
def test_a_fault_that_only_this_machine_lacks_the_means_for_is_missing_and_no_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    which = shutil.which
    monkeypatch.setattr(
        packets.shutil, "which", lambda name, **more: name != "iptables" and which(name, **more)
    )
    path = scenario(tmp_path, "name: x\nfaults: [{fault: packet-loss, at: 2s, for: 1s}]\n")
    assert main(["plan", path]) == Exit.ENVIRONMENT
    assert "missing" in (said := capsys.readouterr().out)
    assert ("iptables needs root" if os.geteuid() else "iptables is not installed") in said
    assert main(["doctor", path]) == Exit.ENVIRONMENT
    assert main(["run", path, "--run-dir", str(tmp_path / "runs")]) == Exit.ENVIRONMENT
    assert not (tmp_path / "runs").exists()


def test_memory_and_disk_are_those_of_the_scenario(tmp_path: Path) -> None:
    small, large = checked(tmp_path), checked(tmp_path, "load.rate=1000000", "load.duration=1h")
    with pytest.raises(EnvironmentNotReady, match="disk"):
        large.require()
    assert {check.name for check in large.missing} - {check.name for check in small.missing} == {
        "disk"
    }


def test_nothing_is_required_that_a_run_can_go_without() -> None:
    absent = machine.Need("docker engine", False, "none", needed=False)
    found = Preflight((absent,), (), Estimate(True, 0, 0, 0, 0, 0.0, 0.0))
    assert found.require().missing == []


# ----- warnings -----------------------------------------------------------------------------------

KILL = "name: x\nfaults: [{fault: kill, at: 9s, for: 5s}]\n"


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "text", "said"),
    [
        (["limits.drain=0"], "name: x\n", "limits.drain is 0: that phase ends before anything"),
        ([], KILL, "faults[0]: kill at +9 s for 5 s outlasts the load of 10 s"),
        (
            ["load.payload=2000"],
            "name: x\ntopics: {orders: {config: {max.message.bytes: 1000}}}\n",
            "load.payload is 2,000 B and orders takes 1,000 B at most",
        ),
        (
            ["load.payload=2000"],
            "name: x\nsystem: pulsar\ncluster: {config: {maxMessageSize: 1500}}\n",
            "load.payload is 2,000 B and orders takes 1,500 B at most",
        ),
        (
            ["load.duration=20m"],
            "name: x\ntopics: {orders: {config: {retention.ms: 900000}}}\nload: {producers: {a: "
            "{transactions: {messages: 5}}}}\n",
            "topic orders keeps 900 s of its messages, and its log is read once the load is over",
        ),
        (
            [],
            "name: x\nvariants: {a: {expect: info-stored}, b: {}}\n",
            "a: expect: info-stored breaks no promise",
        ),
        (
            [],
            "name: x\nvariants: {a: {expect: not-dispatched}, b: {}}\n",
            "a: expect: not-dispatched cannot be shown: no consumer read",
        ),
        (
            [],
            "name: x\nvariants: {a: {expect: unchecked-failure}, b: {}}\n",
            "a: expect: unchecked-failure cannot be shown: every producer checked the results of its sends",
        ),
        (
            [],
            "name: x\nsystem: qpid\nvariants: {a: {expect: producer-reorder}, b: {}}\n",
            "a: expect: producer-reorder cannot be shown: queues keep no log",
        ),
    ],
)
def test_what_cannot_be_as_expected_is_said(
    tmp_path: Path, settings: list[str], text: str, said: str
) -> None:
    (warning,) = checked(tmp_path, *settings, text=text).warnings
    assert warning.startswith(said)


def test_a_bucket_that_memory_does_not_hold_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.memory.free_memory_mb", lambda: 4096)
    text = "name: x\ntopics: {orders: {partitions: 6}}\nload: {consumers: {c: {}}}\n"
    load = ("load.rate=50000", "load.warm_up=0s")
    assert checked(tmp_path, *load, "load.duration=9m", text=text).warnings == ()
    (warning,) = checked(tmp_path, *load, "load.duration=2h", text=text).warnings
    assert (
        "the largest comes to 180,000,000 rows, about 15 GiB, and 4 are free: more partitions"
        in warning
    )


@pytest.mark.extended
@pytest.mark.usefixtures("asked")
@pytest.mark.long
def test_every_scenario_of_ours_is_without_a_warning(tmp_path: Path) -> None:
    from harness.scenario.file import bundled_bugs, bundled_scenarios

    for name in (*bundled_scenarios(), *bundled_bugs()):
        resolved = resolve(ScenarioRequest(scenario=name, seed=1, rounds=1), RoundOptions())
        assert preflight(resolved, tmp_path, ask_indexes=False).warnings == (), name


def test_a_plan_in_json_has_checks_warnings_and_totals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["plan", scenario(tmp_path, KILL), "--set", "load.duration=10s", "--json"])
        == Exit.PASS
    )
    document = json.loads(capsys.readouterr().out)
    assert document["warnings"]
    assert {"name", "ok", "needed", "text", "remedy", "passing"} == set(document["checks"][0])
    assert document["estimate"]["messages"] == 50_000 * 15


# ----- totals -------------------------------------------------------------------------------------


def totals(tmp_path: Path, *settings: str, text: str = "name: x\n") -> Estimate:
    return checked(tmp_path, *settings, text=text).estimate


def test_totals_are_of_all_rounds_and_the_warm_up_is_in_them(tmp_path: Path) -> None:
    one = totals(tmp_path)
    assert (one.messages, one.payload_bytes, one.load_s) == (12_000, 12_000 * 150, 12)
    several = totals(tmp_path, text="name: x\nrounds: 3\nvariants: {a: {}, b: {}}\n")
    assert (several.messages, several.load_s) == (6 * 12_000, 6 * 12)
    assert several.clients_mb == one.clients_mb


@pytest.mark.long
def test_more_copies_and_more_readers_take_more_disk(tmp_path: Path) -> None:
    base = totals(tmp_path, text="name: x\ntopics: {orders: {replication: 1}}\n").disk_bytes
    assert totals(tmp_path).disk_bytes - base == 2 * 12_000 * (150 + 30)
    assert totals(tmp_path, text="name: x\nload: {consumers: {c: {}}}\n").disk_bytes > base


def test_payloads_of_several_sizes_count_by_their_average(tmp_path: Path) -> None:
    assert totals(tmp_path, "load.payload=100..300").payload_bytes == 12_000 * 200


def test_an_unlimited_load_is_guessed(tmp_path: Path) -> None:
    found = totals(tmp_path, "load.unlimited=true")
    assert not found.is_limited
    assert found.messages > 12_000


def test_memory_is_that_of_the_round_with_most_clients(tmp_path: Path) -> None:
    text = "name: x\nvariants: {few: {}, many: {override: {load: {producers: {p: {count: 4}}}}}}\n"
    plans = choose_plans(read_scenario(scenario(tmp_path, text)), seed=1)
    both = estimate(plans, lambda client, folders: "python").clients_mb
    assert both == estimate(plans[1:], lambda client, folders: "python").clients_mb
    assert both > estimate(plans[:1], lambda client, folders: "python").clients_mb
    assert estimate(plans, lambda client, folders: "java").clients_mb > both


# ----- codecs -------------------------------------------------------------------------------------

COMPRESSED = """name: x
topics: {orders: {}, clicks: {}}
load:
  producers:
    shop: {client: franz-go, topics: [TOPIC]}
    web: {client: sarama}
  consumers:
    billing: {client: kafka-python, topics: [orders]}
    stock: {client: aiokafka, topics: [orders], group: stock}
"""


def codec_checks(found: Preflight) -> list[tuple[bool, str, str]]:
    return [
        (each.ok, each.text, each.remedy) for each in found.missing if each.name.startswith("codec")
    ]


def test_a_consumer_whose_client_cannot_read_a_producers_codec_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """franz-go compresses with snappy by default. kafka-python reads it with a package that is not
    there; the environment of aiokafka has what it needs."""
    from harness.workers import environments

    here = {"kafka-python": load_worker("kafka-python").default_version}
    monkeypatch.setattr(environments, "installed_version", lambda name: here.get(name, ""))
    orders = COMPRESSED.replace("TOPIC", "orders")
    (check,) = codec_checks(checked(tmp_path, text=orders))
    assert check == (
        False,
        "consumer-billing (kafka-python) cannot read what producer-shop (franz-go) writes: its "
        "environment has no python-snappy",
        f"run `{sys.executable} -m pip install python-snappy`, or write "
        "`options: {ProducerBatchCompression: none}` of this producer",
    )
    assert not codec_checks(checked(tmp_path, text=COMPRESSED.replace("TOPIC", "clicks")))
    plain = "load.producers.shop.options.ProducerBatchCompression=none"
    assert not codec_checks(checked(tmp_path, plain, text=orders))
    here["python-snappy"] = "0.7.3"
    assert not codec_checks(checked(tmp_path, text=orders))
