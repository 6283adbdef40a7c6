"""Mistakes in the section ``applications``: one line each, with place, key, value and what is
allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from experiments.plans import choose_plans
from experiments.resolved import Resolved
from faults.schedule.timeline import Timeline
from harness.errors import ScenarioError
from harness.plan.applications import application_plans
from harness.plan.build import build_plan
from harness.scenario.file import load_scenario

GOOD = {
    "run": ["true", "{bootstrap}"],
    "env": {"IN": "{topic:orders}", "OUT": "{topic:invoices}", "GROUP": "{group}"},
    "from": "orders",
    "to": {"topic": "invoices"},
}


def scenario(tmp_path: Path, **more: object) -> Path:
    """A scenario with one application; ``application``: changes to it, a None takes the key
    away."""
    changes = more.pop("application", {})
    assert isinstance(changes, dict)
    application = {key: value for key, value in {**GOOD, **changes}.items() if value is not None}
    document = {
        "name": "x",
        "topics": {"orders": {}, "invoices": {}},
        "load": {"producers": {"shop": {"topics": ["orders"]}}},
        "applications": {"billing": application},
        **more,
    }
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def refused(path: Path) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    return "\n".join([str(caught.value), *caught.value.further])


def test_a_complete_application_is_accepted(tmp_path: Path) -> None:
    assert list(load_scenario(scenario(tmp_path)).applications) == ["billing"]


@pytest.mark.parametrize("target", ["client:billing", "client:application"])
@pytest.mark.parametrize("way", [{"tcp": 8080}, {"http": "http://127.0.0.1:8080/health"}])
def test_an_instance_that_a_fault_adds_is_not_ready_because_the_first_one_answers(
    tmp_path: Path, way: dict[str, object], target: str
) -> None:
    scale = {"fault": "scale", "target": target, "to": 3, "at": "1s"}
    path = scenario(tmp_path, application={"ready": way}, faults=[scale])
    (key,) = way
    sentence = f"billing.ready.{key}: is one port, and there are up to 3 instances: use log"
    assert sentence in refused(path)
    other = {**scale, "target": "client:shipping"}
    applications = {"billing": {**GOOD, "ready": way}, "shipping": {**GOOD, "to": {"http": True}}}
    load_scenario(scenario(tmp_path, applications=applications, faults=[other]))


def test_a_program_in_an_image_needs_no_program_on_this_machine(tmp_path: Path) -> None:
    changes = {"image": "billing:1.0", "run": ["no-such-program-here"]}
    (inside,) = application_plans(load_scenario(scenario(tmp_path, application=changes)))
    changes = {"image": "billing:1.0", "run": None}
    (own,) = application_plans(load_scenario(scenario(tmp_path, application=changes)))
    assert (inside.run, own.run) == (["no-such-program-here"], [])
    assert own.instance_names == ["application-billing"]


def test_a_folder_of_the_command_line_is_where_the_user_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "app").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    loaded = load_scenario(scenario(tmp_path), overrides=("applications.billing.start_in=app",))
    assert application_plans(loaded)[0].folder == str(tmp_path / "here" / "app")


def test_variables_of_the_environment_are_text_as_programs_read_it(tmp_path: Path) -> None:
    loaded = load_scenario(scenario(tmp_path, application={"env": {"DEBUG": True, "N": 3}}))
    assert application_plans(loaded)[0].env == {"DEBUG": "true", "N": "3"}


@pytest.mark.parametrize(
    ("application", "message"),
    [
        (
            {"run": ["no-such-program-here"]},
            "run[0]: is not a program in PATH, got 'no-such-program-here'",
        ),
        ({"run": ["./billing"]}, "run[0]: is not a program in "),
        ({"start_in": "no/such"}, "start_in: is not a folder: "),
        ({"start_in": "~nobody-here/x"}, "start_in: cannot be used: ~nobody-here/x: there is no"),
        ({"start_in": "a\0b"}, "start_in: cannot be used: "),
        ({"start_in": ""}, "start_in: "),
        ({"start_in": "x" * 5000}, "start_in: "),
        (
            {"run": ["true", "{bootstap}"]},
            "run[1]: has no place {bootstap}, got '{bootstap}'; did you mean bootstrap",
        ),
        (
            {"run": ["true", "{topic:order}"]},
            "run[1]: names topic 'order', got '{topic:order}'; did you mean orders",
        ),
        (
            {"run": ["true", "{password}"]},
            "run[1]: must not have {password}: everybody sees arguments",
        ),
        ({"run": ["true", "{jars}"]}, "run[1]: has the place {jars} without the key jars"),
        ({"env": {"A": '{"x": 1}'}}, "env.A: has a single {"),
        ({"env": {"A B": "1"}}, "not a name of an environment variable: 'A B'"),
        ({"run": ["true", "a\0b"]}, "run[1]: has a NUL character"),
        ({"env": {"A": "a\0b"}}, "env.A: has a NUL character"),
        ({"identity": {"regex": "(a{1001})"}}, "regex: must be a regular expression"),
        ({"identity": {"json": "order/id"}}, "json: must be a JSON pointer such as /order/id"),
        ({"identity": {"json": "/order", "key": True}}, "identity: has json and key: write one"),
        ({"ready": {"tcp": 8080}, "instances": 2}, "ready.tcp: is one port, and there are 2"),
        (
            {"ready": {"http": "http://127.0.0.1:8080/health"}, "instances": 2},
            "ready.http: is one port, and there are 2 instances: use log",
        ),
        (
            {"ready": {"http": "http://example.com/"}},
            "ready.http: must be a URL of this machine such as http://127.0.0.1:8080/health",
        ),
        (
            {"ready": {"http": "http://127.0.0.1:99999/"}},
            "ready.http: must be a URL of this machine",
        ),
        ({"from": "order"}, "from: is not declared under topics, got 'order'; did you mean orders"),
        ({"to": {"topic": "orders"}}, "to.topic: is the topic that it reads, got 'orders'"),
        ({"to": {"http": "x"}}, "to.http"),
        ({"to": {}}, "to: needs one of topic, file, http, sql"),
        (
            {"to": {"file": "../x"}},
            "to.file: must be a pattern of files below {folder}, such as *.jsonl",
        ),
        (
            {"packages": ["nats-py"]},
            "packages[0]: must be a package at one version, such as nats-py==2.16.0, got 'nats-py'",
        ),
        ({"jars": ["a:b"]}, "jars[0]: must be group:artifact:version, such as org.apache.kafka:"),
        ({"image": "Billing 1"}, "image: must be the name of a Docker image, such as billing:1.0"),
        ({"to": {"sql": "x", "query": "SELECT 1"}}, "to: sql: must be a URL of SQLAlchemy such as"),
        (
            {"to": {"sql": "postgresql://me:hidden@x/y", "query": "SELECT 1"}},
            "to: sql: must have no password in the URL; write password: {env: NAME}",
        ),
        (
            {"to": {"sql": "postgresql://x/y?password=hidden", "query": "SELECT 1"}},
            "to: sql: must have no password in the URL",
        ),
        ({"to": {"sql": "sqlite:///{folder}/x"}}, "to: sql: {shared} is the one place"),
        ({"to": {"sql": "sqlite:///x"}}, "to: query: is empty"),
        (
            {"to": {"sql": "sqlite:///x", "query": "-- all\nDROP TABLE invoices"}},
            "to: query: must begin with SELECT or WITH: it is not to change the database",
        ),
        ({"to": {"http": True, "query": "SELECT 1"}}, "to: query: has a meaning only with sql"),
        ({"to": {"sql": "sqlite:///x", "query": "SELECT :x"}}, "to: query: has no value for :x"),
        (
            {"to": {"sql": "sqlite:///x", "query": "SELECT 1", "password": {"text": "hidden"}}},
            "to.password.text: ",
        ),
        (
            {"to": {"sql": "sqlite:///x", "query": "SELECT 1"}},
            "identity: is needed where outputs are rows, such as {column: order_id}",
        ),
        (
            {"to": {"sql": "sqlite:///x", "query": "SELECT 1"}, "identity": {"key": True}},
            "identity.key: is nothing that a row has",
        ),
        (
            {
                **{"to": {"sql": "sqlite:///x", "query": "SELECT 1"}, "order": "key"},
                "identity": {"column": "id"},
            },
            "order: needs to.position: the column that says in which order rows were stored",
        ),
        ({"identity": {"column": "id"}}, "identity.column: has a meaning only with to: {sql: URL}"),
        (
            {"order": "key"},
            "order: needs keys: write lanes: key into load.producers.shop, got 'key'",
        ),
        ({"to": {"file": "*.parquet"}}, "identity: is needed where outputs are rows"),
        ({"env": {"A": "{database}"}}, "env.A: has the place {database} without to: {sql: URL}"),
        (
            {
                **{"to": {"sql": "sqlite:///x", "query": "SELECT 1"}},
                **{"run": ["true", "{database-password}"], "identity": {"column": "id"}},
            },
            "run[1]: has the place {database-password} without the key to.password",
        ),
        (
            {"run": ["true", "{endpoint}"]},
            "run[1]: has the place {endpoint} without to: {http: true}",
        ),
        ({"identity": {"json": "order"}}, "identity.json"),
        ({"identity": {"regex": "id="}}, "needs a group in parentheses around the text"),
        ({"identity": {"regex": "("}}, "must be a regular expression"),
        ({"identity": {"key": True, "header": "x"}}, "has header and key: write one of them"),
        ({"ready": {"within": "5s"}}, "needs one of log, tcp, http"),
        ({"ready": {"http": "http://example.org/"}}, "ready.http"),
        ({"stop": {"signal": "KILL"}}, "stop.signal"),
        ({"instances": 0}, "instances"),
        ({"makes": "any", "order": "key"}, "order: has no meaning with makes: any, got 'key'"),
        ({"jars": ["kafka-streams"]}, "jars[0]"),
        ({"packages": ["nats-py"]}, "packages[0]"),
        ({"packages": ["--index-url=http://x/==1"]}, "packages[0]"),
        ({"image": "Billing 1"}, "image"),
        (
            {"run": None, "image": "billing:1", "packages": ["nats-py==2.16.0"]},
            "packages: cannot be combined with image, got ['nats-py==2.16.0']; put them into the image",
        ),
        (
            {"run": None, "image": "billing:1", "jars": ["a:b:1"]},
            "jars: cannot be combined with image",
        ),
        (
            {"run": ["{python}"], "image": "billing:1"},
            "run[0]: has the place {python}, which is not in the image, got '{python}'; leave it out",
        ),
        ({"limits": {"cpu": 0}}, "limits.cpu"),
        ({"limits": {"memory": "lots"}}, "must be a size such as 300MB"),
        ({"limits": {"disk": "1GB"}}, "limits.disk"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path, application: dict[str, object], message: str
) -> None:
    said = refused(scenario(tmp_path, application=application))
    assert message in said
    assert "s.yaml:" in said
    assert "Traceback" not in said
    assert "hidden" not in said  # the password of a database


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"load": {"producers": {"shop": {}}}},
            "load.producers.shop.topics: must leave invoices out, which application billing alone writes",
        ),
        (
            {"load": {"producers": {"shop": {"topics": ["orders"]}}, "consumers": {"c": {}}}},
            "load.consumers.c.topics: must leave invoices out, whose messages are not of a producer",
        ),
        (
            {"topics": {"orders": {}, "invoices": {"count": 2}}},
            "to.topic: must be one topic that keeps its partitions",
        ),
        (
            {
                "topics": {"orders": {}, "other": {}, "invoices": {}},
                "load": {"producers": {"p": {"topics": ["other"]}}},
            },
            "applications.billing.from: gets no message: no producer writes orders",
        ),
        (
            {"system": "pulsar"},
            "applications.billing: is not possible on pulsar yet",
        ),
        (
            {
                "system": "nats",
                "topics": {"orders": {"config": {"retention": "workqueue"}}, "invoices": {}},
            },
            "from: removes messages once they are acknowledged, got 'orders'; must be a topic that",
        ),
    ],
)
def test_what_does_not_fit_the_rest_is_one_line(
    tmp_path: Path, more: dict[str, object], message: str
) -> None:
    assert message in refused(scenario(tmp_path, **more))


@pytest.mark.parametrize("other", ["billing-2", "billing.2"])
def test_an_application_is_not_named_like_an_instance_of_another(
    tmp_path: Path, other: str
) -> None:
    applications = {"billing": GOOD, other: {**GOOD, "to": {"file": "*.txt"}, "group": "g"}}
    if other == "billing.2":
        applications["billing_2"] = applications.pop("billing")
    said = refused(scenario(tmp_path, applications=applications))
    assert f"applications.{other}: is a name of an instance of application" in said


def test_a_fault_scales_one_application_to_another_number(tmp_path: Path) -> None:
    def step(target: str, to: int) -> str:
        faults = [{"fault": "scale", "target": target, "to": to, "at": 1}]
        more = {"application": {"instances": 3}, "faults": faults}
        plan = build_plan(load_scenario(scenario(tmp_path, **more)), seed=1)
        try:
            _ = Resolved(plans=[plan]).timelines
        except ScenarioError as error:
            return str(error)
        return ""

    assert step("client:billing", 5) == ""
    assert "to: is 3, as many instances as there are" in step("client:billing", 3)
    assert "client:shop is not an application; instances: application-billing-1" in step(
        "client:shop", 5
    )
    assert "client:billing-2 is not an application" in step("client:billing-2", 5)
    assert "client:billing-1 is not an application" in step("client:billing-1", 5)


def test_two_applications_with_one_stem_are_scaled_each_by_itself(tmp_path: Path) -> None:
    applications = {
        "billing-1": {**GOOD, "to": {"http": True}},
        "billing-2": {**GOOD, "to": {"http": True}},
    }

    def scales(target: str) -> list[Timeline]:
        faults = [{"fault": "scale", "target": target, "to": 3, "at": 1}]
        made = scenario(tmp_path, applications=applications, faults=faults)
        return Resolved(plans=[build_plan(load_scenario(made), seed=1)]).timelines

    assert scales("client:billing-1")
    assert scales("client:billing-2")
    with pytest.raises(ScenarioError, match="client:billing is not an application"):
        scales("client:billing")


@pytest.mark.parametrize("in_variant", [False, True])
def test_a_fault_on_a_client_that_is_not_there_has_its_line(
    tmp_path: Path, in_variant: bool
) -> None:
    """Clients are known only when the rounds are planned."""
    faults = {"faults": [{"fault": "client-kill", "target": "client:biling", "at": 1}]}
    variants = {"variants": {"v": {"override": faults, "expect": "clean"}}}
    path = scenario(tmp_path, **(variants if in_variant else faults))
    loaded = load_scenario(path)
    plans = choose_plans(loaded, seed=1, rounds=None, variant="")
    with pytest.raises(ScenarioError) as caught:
        _ = Resolved(plans=plans, scenario=loaded).timelines
    number = 1 + next(n for n, line in enumerate(path.read_text().splitlines()) if "biling" in line)
    assert str(caught.value).startswith(f"{path}:{number}: faults[0].target: client:biling is not")


def test_an_instance_is_found_by_its_name(tmp_path: Path) -> None:
    (three,) = application_plans(load_scenario(scenario(tmp_path, application={"instances": 3})))
    (one,) = application_plans(load_scenario(scenario(tmp_path)))
    names = ["application-billing", "application-billing-1", "application-billing-5"]
    assert [three.number_of(name) for name in names] == [None, 1, 5]
    assert [one.number_of(name) for name in names] == [1, None, 5]
    assert three.number_of("application-billing-05") is None
    assert three.number_of("application-bill-1") is None


def test_a_group_has_one_reader(tmp_path: Path) -> None:
    """Two readers of one group would share its partitions: inputs of the other look skipped."""
    load = {
        "producers": {"shop": {"topics": ["orders"]}},
        "consumers": {"c": {"group": "billing", "topics": ["orders"]}},
    }
    said = refused(scenario(tmp_path, load=load))
    assert "billing.group: is the group of consumer c, too" in said


def test_a_template_needs_a_way_to_name_inputs(tmp_path: Path) -> None:
    load = {
        "producers": {"shop": {"topics": ["orders"]}},
        "payload": {"template": '{"id": "{id}"}'},
    }
    said = refused(scenario(tmp_path, load=load))
    assert "billing.identity: is needed with a payload from a template" in said
