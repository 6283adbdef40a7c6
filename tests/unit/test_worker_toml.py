"""Worker folders: their own settings, their promises, and clear messages when one is wrong."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from harness.contracts.plan import ConsumerPromise, PromisePlan, TopicPlan
from harness.errors import ScenarioError, UsageError
from harness.plan.build import build_plan
from harness.plan.settings import Consuming, PromiseContext, consumer_promise, producer_settings
from harness.scenario.file import load_scenario
from harness.scenario.model import RequireSpec
from harness.workers import known_workers, load_worker, worker_names
from harness.workers.spec import FILE, KIT_SUPPORTS, WorkerSpec

HEAD = """
library = "mine"
system = "kafka"
about = "a client of my own"
language = "python"
roles = ["producer", "consumer"]
entry = "worker.py"
versions = "all"
"""
KAFKA = """
[promises]
acks = { options = ["acks"], default = "1" }
idempotence = { options = ["idempotent"], default = "false" }
in_flight = { default = "5" }
retries = { default = "3" }
"""


def worker(folder: Path, text: str, head: str = HEAD) -> str:
    (folder / "worker.toml").write_text(head + text)
    return str(folder)


def promised(folder: Path, text: str, version: str = "", **options: str) -> PromisePlan:
    settings = producer_settings("mine", version, options, [worker(folder, text)])
    topic = TopicPlan(
        name="orders", partitions=1, replication=3, config={"min.insync.replicas": "2"}
    )
    return settings.promise(PromiseContext([topic], {}), RequireSpec())


def kept(made: PromisePlan) -> tuple[str, bool | None, bool | None]:
    return made.delivery, made.order, made.dedup


def test_a_worker_with_a_kit_supports_what_every_kit_does(tmp_path: Path) -> None:
    alone = WorkerSpec.read(Path(worker(tmp_path, '[supports]\nrate = ["constant", "profile"]\n')))
    assert alone.supports == {"rate": ["constant", "profile"]}
    head = f"kit = true\n{HEAD}"
    with_kit = WorkerSpec.read(
        Path(worker(tmp_path, '[supports]\ncalls = ["async", "sync"]\n', head))
    )
    of_kit = {key: list(values) for key, values in KIT_SUPPORTS.items()}
    assert with_kit.supports == {**of_kit, "calls": ["async", "sync"]}


def test_each_thing_that_a_kit_does_is_declared_once() -> None:
    for found in known_workers().values():
        assert found.kit
        stated = tomllib.loads((found.folder / FILE).read_text())["supports"]
        assert [
            key for key, of_kit in KIT_SUPPORTS.items() if {*of_kit} & {*stated.get(key, ())}
        ] == []


# ----- what is not stated is not known ------------------------------------------------------------


def test_a_client_that_states_nothing_promises_nothing_that_is_known(tmp_path: Path) -> None:
    made = promised(tmp_path, "", acks="all")
    assert kept(made) == ("unknown", None, None)
    assert made.because["order"] == "not known: worker.toml of mine has no [promises]"


@pytest.mark.parametrize(
    ("left_out", "expected"),
    [
        ("acks", ("unknown", False, False)),
        ("idempotence", ("leader", None, None)),
        ("in_flight", ("leader", None, False)),
        ("retries", ("leader", None, None)),
    ],
)
def test_what_rests_on_a_setting_that_is_not_stated_is_not_known(
    tmp_path: Path, left_out: str, expected: tuple[str, bool | None, bool | None]
) -> None:
    stated = "\n".join(line for line in KAFKA.splitlines() if not line.startswith(left_out))
    made = promised(tmp_path, stated)
    assert kept(made) == expected
    assert f"does not state promises.{left_out}" in " ".join(made.because.values())


def test_a_promise_that_other_settings_make_needs_no_more(tmp_path: Path) -> None:
    made = promised(tmp_path, '[promises]\nin_flight = { default = "1" }')
    assert (made.order, made.because["order"]) == (True, "in_flight=1 (always so in mine)")


def test_a_consumer_whose_settings_are_not_stated(tmp_path: Path) -> None:
    folder = worker(tmp_path, "[promises]\n", HEAD.replace("kafka", "pulsar"))
    made = consumer_promise(Consuming("mine", "", {}, {}, "ack", folders=[folder]))
    assert made.unknown == ["order", "ack_timeout", "ack", "batch_index_acks"]
    assert (
        made.because["order"]
        == "not known: worker.toml of mine does not state promises.subscription"
    )


def test_the_order_of_keys_is_not_known_if_a_producer_may_mix_them_in_a_batch(
    tmp_path: Path,
) -> None:
    folder = worker(tmp_path, "", HEAD.replace("kafka", "pulsar"))
    options = {"subscriptionType": "Key_Shared"}
    made = consumer_promise(
        Consuming("pulsar-client-java", "", options, {}, "ack", [("mine", {})], folders=[folder])
    )
    assert isinstance(made, ConsumerPromise)
    assert made.unknown == ["order"]


# ----- forms of settings --------------------------------------------------------------------------


def test_an_option_may_say_the_opposite(tmp_path: Path) -> None:
    """franz-go is idempotent unless told otherwise, and refuses to start with acks that contradict
    it."""
    stated = """
    [promises.idempotence]
    options = ["DisableIdempotentWrite"]
    default = "false"
    inverse = true
    unasked = "refused"
    [promises.acks]
    options = ["RequiredAcks"]
    default = "AllISRAcks"
    values = { allisracks = "all", leaderack = "1" }
    [promises.in_flight]
    default = "5"
    [promises.retries]
    default = "9223372036854775807"
    """
    assert kept(promised(tmp_path, stated)) == ("durable", True, True)
    off = promised(tmp_path, stated, DisableIdempotentWrite="true", RequiredAcks="LeaderAck")
    assert kept(off) == ("leader", False, False)
    assert off.because["dedup"] == "DisableIdempotentWrite=true: a retry may store twice"
    with pytest.raises(
        ScenarioError, match="RequiredAcks=LeaderAck contradicts DisableIdempotentWrite=false"
    ):
        promised(tmp_path, stated, RequiredAcks="LeaderAck")


def test_a_setting_may_imply_another(tmp_path: Path) -> None:
    """aiokafka's idempotence brings acks=all along, unless acks are given: then it refuses them."""
    implied = (
        '{ options = ["acks"], default = "1", implied = [{ when = "idempotence", value = "all" }] }'
    )
    stated = KAFKA.replace('{ options = ["acks"], default = "1" }', implied)
    assert kept(promised(tmp_path, stated)) == ("leader", False, False)
    made = promised(tmp_path, stated, idempotent="true")
    assert kept(made) == ("durable", True, True)
    assert (
        made.because["delivery"] == "acks=all (implied by idempotent=true), min.insync.replicas=2"
    )
    with pytest.raises(ScenarioError, match="acks=1 contradicts idempotent=true"):
        promised(tmp_path, stated, idempotent="true", acks="1")


def test_a_default_is_that_of_the_version(tmp_path: Path) -> None:
    older = '{ before = "2.0", default = "0" }, { from = "2.5", before = "2.5.1", default = "all" }'
    other = f", other_defaults = [{older}]"
    stated = KAFKA.replace(
        'options = ["acks"], default = "1"', f'options = ["acks"], default = "1"{other}'
    )
    found = {
        v: promised(tmp_path, stated, v).delivery for v in ("", "1.9.9", "2.0.0", "2.5.0", "2.5.1")
    }
    assert found == {
        "": "leader",
        "1.9.9": "none",
        "2.0.0": "leader",
        "2.5.0": "durable",
        "2.5.1": "leader",
    }


def test_without_a_version_the_default_of_the_worker_counts(tmp_path: Path) -> None:
    other = ', other_defaults = [{ before = "2.0", default = "0" }]'
    stated = KAFKA.replace(
        'options = ["acks"], default = "1"', f'options = ["acks"], default = "1"{other}'
    )
    assert promised(tmp_path, stated + '\n[python]\ndefault = "1.4.0"\n').delivery == "none"


def test_what_the_worker_sets_by_itself_is_in_force_unless_the_scenario_sets_it(
    tmp_path: Path,
) -> None:
    stated = KAFKA + '\n[options.producer]\nacks = "all"\n'
    made = promised(tmp_path, stated)
    assert (made.delivery, made.because["delivery"]) == (
        "durable", "acks=all (default of mine), min.insync.replicas=2")  # fmt: skip
    assert promised(tmp_path, stated, acks="0").delivery == "none"


@pytest.mark.parametrize(
    ("facts", "options", "seconds"),
    [
        ("", {}, 110),
        ('send_timeout = { options = ["t"], default = "30", unit = "s", times = 2 }', {}, 70),
        (
            'send_timeout = { options = ["t"], default = "30", unit = "s", '
            'implied = [{ when = "idempotence", value = "0", over = ["*"] }] }',
            {"t": "5", "idempotent": "true", "acks": "all"},
            110,
        ),
        ('send_timeout = { options = ["t"], default = "30", unit = "s" }', {}, 40),
        ('send_timeout = { options = ["t"], default = "30", unit = "s" }', {"t": "0"}, 110),
        ('send_timeout = { options = ["t"], default = "2m", unit = "duration" }', {}, 130),
        (
            'each_attempt = [{ default = "500", unit = "ms" }, { default = "1", unit = "s" }]',
            {},
            4 * 1.5 + 10,
        ),
    ],
)
def test_how_long_a_send_may_take(
    tmp_path: Path, facts: str, options: dict[str, str], seconds: float
) -> None:
    settings = producer_settings("mine", "", options, [worker(tmp_path, KAFKA + facts)])
    assert settings.call_deadline_s(100) == pytest.approx(seconds)


# ----- where workers are --------------------------------------------------------------------------


def test_workers_of_a_folder_outside_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").mkdir()
    worker(tmp_path / "one", "")
    with pytest.raises(UsageError, match="no worker for client 'mine'"):
        load_worker("mine")
    monkeypatch.setenv("BROKERSTORM_WORKERS", f"{tmp_path}:")
    assert load_worker("mine").folder == tmp_path / "one"
    assert load_worker("mine", [tmp_path / "one"]) is load_worker("mine", [tmp_path / "one"])
    assert load_worker("mine", [tmp_path, tmp_path / "one"]).about == "a client of my own"
    assert "sarama" in known_workers()


def test_a_scenario_names_folders_of_workers_beside_its_file(tmp_path: Path) -> None:
    (tmp_path / "clients" / "mine").mkdir(parents=True)
    worker(tmp_path / "clients" / "mine", '[exposure]\nstumbles = "what it stumbled over"\n')
    file = tmp_path / "mine.yaml"
    file.write_text("name: x\nworkers: [clients]\nload: {producers: {p: {client: mine}}}\n")
    plan = build_plan(load_scenario(file, clients=known_workers), seed=1)
    assert plan.workers == [str(tmp_path / "clients" / "mine")]
    assert load_worker("mine", plan.workers).about == "a client of my own"
    assert plan.producers[0].promise.order is None
    assert build_plan(load_scenario("kafka-smoke"), seed=1).workers == []

    file.write_text("name: x\nworkers:\n  - client\nload: {producers: {p: {client: mine}}}\n")
    with pytest.raises(ScenarioError, match=f"{file}:2: workers: no workers in {tmp_path}/client"):
        load_scenario(file, clients=known_workers)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"cannot read .*worker\.toml: Is a directory"),
        ('library = "mine"', r"worker\.toml: system: must be one of kafka, .*, rabbitmq, got nothing"),
        ("library = mine", r"worker\.toml: not valid TOML: .* \(at line 1"),
        (HEAD.replace('about = "a client of my own"', ""), r"about: is missing"),
        (HEAD + "rolls = []", r"rolls: unknown key, got \[\]; did you mean roles\? allowed: about, "),
        (HEAD.replace('"producer", ', '"sender", '), r"roles\[0\]: must be 'producer', .*, got 'sender'"),
        (HEAD + "[promises.ack]\n", r"promises\.ack: unknown key, got \{\}; did you mean acks\?"),
        (HEAD + '[promises.acks]\ndefault = 1', r"promises\.acks\.default: must be text .*, got 1"),
        (HEAD + '[promises.acks]\noptions = []', r"promises\.acks: needs options, or a default"),
        (HEAD + '[promises.acks]\noptions = ["acks"]', r"promises\.acks needs a default, or one of its"),
        (HEAD + '[promises.send_timeout]\ndefault = "1"', r"promises\.send_timeout\.unit: is missing"),
        (HEAD + '[on.rabbit]', r"on\.rabbit: must be one of nats, pulsar, qpid, rabbitmq"),
        (HEAD + '[on.qpid]\nsupports = 3', r"on\.qpid\.supports: must be .*, got 3"),
        (HEAD + '[on.qpid.promises.acks]', r"on\.qpid\.promises\.acks: unknown key"),
        (HEAD.replace("python", "go"), r"language go needs a table \[go\]"),
        (HEAD.replace('entry = "worker.py"', ""), r"language python requires entry"),
        (HEAD.replace("mine", "sarama"), r"two workers of library 'sarama': .*sarama and "),
    ],
)  # fmt: skip
def test_a_folder_that_cannot_be_used_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    if text:
        (tmp_path / "worker.toml").write_text(text)
    else:
        (tmp_path / "worker.toml").mkdir()
    with pytest.raises(UsageError, match=message) as caught:
        known_workers([tmp_path])
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_a_worker_of_two_systems_has_other_options_and_promises_there(tmp_path: Path) -> None:
    more = """
    [options.producer]
    acks = "all"
    [promises.acks]
    options = ["acks"]
    [on.qpid]
    roles = ["producer"]
    supports = { calls = ["sync"] }
    [on.qpid.options.producer]
    transacted = "20"
    [on.qpid.promises.transacted]
    options = ["transacted"]
    """
    (tmp_path / "worker.toml").write_text(HEAD + more)
    made = load_worker("mine", [tmp_path])
    there = load_worker("mine", [tmp_path], system="qpid")
    assert (made.system, made.systems, made.roles) == (
        "kafka",
        ("kafka", "qpid"),
        ["producer", "consumer"],
    )
    assert (there.system, there.roles, there.supports["calls"]) == ("qpid", ["producer"], ["sync"])
    assert (made.options["producer"], there.options["producer"]) == (
        {"acks": "all"},
        {"transacted": "20"},
    )
    assert set(there.promises.model_fields_set) == {"transacted"}  # type: ignore[union-attr]
    assert load_worker("mine", [tmp_path], system="nats") is made
    assert there.on_system("kafka") is made
    assert "mine" in worker_names("qpid", [tmp_path])


def test_a_folder_without_workers(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"no workers in {tmp_path}"):
        known_workers([tmp_path])
