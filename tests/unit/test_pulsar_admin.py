"""Pulsar's names and bundles, and what becomes of the answers that its brokers give over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from harness.admin.failover import NotThere
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import Endpoint, Node
from harness.systems.pulsar.admin import PulsarAdmin
from harness.systems.pulsar.names import (
    bundle_of,
    bundles_between,
    full_name,
    local_name,
    streams_of,
)
from harness.systems.pulsar.probe import what_to_probe
from harness.systems.pulsar.rest import PulsarRest
from tests.http_server import HOST, Answer, Request, answering

FOUR = bundles_between(["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"])


def test_streams_are_topics_or_their_partitions() -> None:
    assert streams_of("orders", 2) == ["orders-0", "orders-1"]
    assert local_name("orders-0", 1) == "orders"
    assert local_name("orders-3", 4) == "orders-partition-3"
    assert full_name("public/bs-1", "orders") == "persistent://public/bs-1/orders"


def test_a_topic_is_in_the_bundle_that_pulsar_puts_it_in() -> None:
    assert FOUR[0] == "0x00000000_0x40000000"
    # Seen on a 4.0.8 broker with twelve bundles.
    here = bundles_between(["0x15555555", "0x2aaaaaaa", "0x3fffffff"])
    assert bundle_of("persistent://public/bs-0000abcd/orders-000", here) == "0x2aaaaaaa_0x3fffffff"
    assert {bundle_of(f"persistent://public/x/t-{n}", FOUR) for n in range(50)} == set(FOUR)


def test_bundles_with_a_gap_are_an_error() -> None:
    with pytest.raises(UsageError, match="none of the bundles"):
        bundle_of("persistent://public/bs-0000abcd/orders-000", FOUR[1:])


class Broker:
    """Answers what it was told to, on a port of its own."""

    def __init__(self, name: str) -> None:
        self.asked: list[tuple[str, str, bytes]] = []
        self.answer: Callable[[str, str], Answer] = lambda method, path: (200, [], {})
        listening = ExitStack()
        self.close = listening.close
        at = Endpoint(HOST, listening.enter_context(answering(self._answer)))
        self.node = Node(name, 1, at, at, at, Path(), ("broker",))

    def _answer(self, request: Request) -> Answer:
        self.asked.append((request.method, request.path, request.body))
        return self.answer(request.method, request.path)


@pytest.fixture
def two() -> Iterator[tuple[Broker, Broker]]:
    with closing(Broker("broker-1")) as first, closing(Broker("broker-2")) as second:
        yield first, second


def rest_of(*brokers: Broker, away: str = "") -> PulsarRest:
    return PulsarRest([broker.node for broker in brokers], lambda name: name != away)


def test_a_redirect_is_followed_with_method_body_and_query(two: tuple[Broker, Broker]) -> None:
    first, second = two
    first.answer = lambda method, path: (307, "", {"Location": f"http://{second.node.admin}{path}"})
    second.answer = lambda method, path: (204, None, {})
    rest_of(first, second).put("/namespaces/public/x?a=b", {"bundles": 4})
    assert second.asked == [("PUT", "/admin/v2/namespaces/public/x?a=b", b'{"bundles": 4}')]


def test_a_redirect_to_a_name_that_only_brokers_know_is_followed_by_node(
    two: tuple[Broker, Broker],
) -> None:
    first, second = two
    ids = {"broker-1": "broker-1-mesh:18080", "broker-2": "broker-2-mesh:18080"}
    first.answer = lambda method, path: (307, "", {"Location": f"http://broker-2-mesh:18080{path}"})
    second.answer = lambda method, path: (200, "here", {})
    rest = PulsarRest([first.node, second.node], lambda name: True, ids)
    assert rest.get("/x?authoritative=true") == "here"
    assert second.asked[0][1] == "/admin/v2/x?authoritative=true"
    assert (
        rest.name_of("broker-2-mesh:18080")
        == rest.name_of(f"http://{second.node.admin}")
        == "broker-2"
    )


def test_brokers_that_send_us_round_are_given_up_in_time(two: tuple[Broker, Broker]) -> None:
    first, second = two
    first.answer = lambda method, path: (307, "", {"Location": f"http://{second.node.admin}{path}"})
    second.answer = lambda method, path: (307, "", {"Location": f"http://{first.node.admin}{path}"})
    with pytest.raises(EnvironmentNotReady, match="sent from broker to broker"):
        rest_of(first, second).get("/x", within_s=0.3)


def test_a_broker_that_is_starting_is_asked_again(two: tuple[Broker, Broker]) -> None:
    first, _ = two
    start = time.monotonic()
    first.answer = lambda method, path: (
        (503, {"reason": "starting"}, {}) if time.monotonic() < start + 0.3 else (200, {"a": 1}, {})
    )
    assert rest_of(first).get("/x") == {"a": 1}


def test_the_next_broker_is_asked_when_one_is_dead(two: tuple[Broker, Broker]) -> None:
    first, second = two
    first.close()
    second.answer = lambda method, path: (200, "here", {})
    assert rest_of(first, second).get("/x") == "here"
    assert rest_of(first, second, away="broker-1").get("/x") == "here"


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (404, "Namespace does not exist", NotThere),
        (409, "Namespace already exists", UsageError),
        (412, "Namespace name is not valid", UsageError),
        (412, "Invalid upper boundary for bundle", UsageError),
        (400, "no", UsageError),
    ],
)
def test_a_refusal_is_told_at_once(
    two: tuple[Broker, Broker], status: int, reason: str, kind: type[UsageError]
) -> None:
    first, _ = two
    first.answer = lambda method, path: (status, {"reason": reason}, {})
    with pytest.raises(kind, match=reason):
        rest_of(first).put("/namespaces/public/x")
    assert len(first.asked) == 1


def test_deleting_what_is_not_there_is_no_error(two: tuple[Broker, Broker]) -> None:
    first, _ = two
    first.answer = lambda method, path: (404, {"reason": "not found"}, {})
    rest_of(first).delete("/namespaces/public/x")


def test_probe_topics_have_names_that_faults_leave_out() -> None:
    bundles = bundles_between(["0x00000000", "0x40000000", "0x80000000", "0xffffffff"])
    ours = "persistent://public/bs-1/orders"
    asked, read = what_to_probe([ours], "public/bs-1", bundles)
    assert asked[0] == ours
    assert len(read) == 3
    assert {bundle_of(address, bundles) for address in read} == set(bundles)
    found = [address.rpartition("/")[2] for address in asked[1:]]
    assert len(found) == 2
    assert all(name.startswith("__") for name in found), (
        "`faults.inject_once` skips internal topics by that"
    )


class PolicyBrokers:
    """Brokers with one metadata store of policies; a broker that lags answers with none."""

    def __init__(self, *brokers: Broker) -> None:
        self.stored: dict[str, object] = {}
        self.lags: set[str] = set()
        self.old = False
        for broker in brokers:
            broker.answer = partial(self._answer, broker)
        self.admin = PulsarAdmin([broker.node for broker in brokers])
        self.admin.enter_namespace("public/bs-1")

    def _answer(self, broker: Broker, method: str, path: str) -> Answer:
        policy = path.partition("public/bs-1/")[2]
        if method == "POST":
            self.stored[policy] = json.loads(broker.asked[-1][2])
        elif method == "DELETE":
            self.stored.pop(policy, None)
        elif self.old and policy == "publishRate" and policy not in self.stored:
            return 404, {"reason": "Publish-rate is not configured for cluster brokerstorm"}, {}
        return 200, None if broker.node.name in self.lags else self.stored.get(policy), {}


@pytest.mark.parametrize(
    ("read", "waits", "left"),
    [
        ("34:309", True, 0),
        ("34:309", False, 0),
        ("34:300", False, 9),
        ("29:390", False, 315),
        ("35:-1", False, 0),
    ],
)
def test_a_subscription_that_is_not_durable_has_only_what_was_not_sent_to_it(
    two: tuple[Broker, Broker], read: str, waits: bool, left: int
) -> None:
    """An acknowledgement that was lost with its connection stays in its backlog for ever."""
    cursors = {
        "tail": {"markDeletePosition": "29:391", "readPosition": read, "waitingReadOp": waits},
        "billing": {
            "markDeletePosition": "29:391",
            "readPosition": "34:309",
            "waitingReadOp": True,
        },
    }
    ledgers = [{"ledgerId": 29, "entries": 396}, {"ledgerId": 34, "entries": 0}]
    answers = {
        "partitions": {"partitions": 0},
        "stats": {
            "subscriptions": {
                "tail": {"msgBacklog": 1, "isDurable": False},
                "billing": {"msgBacklog": 3, "isDurable": True},
            }
        },
        "internalStats": {"cursors": cursors, "ledgers": ledgers, "currentLedgerEntries": 309},
    }

    def answer(method: str, path: str) -> Answer:
        return 200, answers.get(path.rpartition("/")[2].partition("?")[0]), {}

    for broker in two:
        broker.answer = answer
    admin = PulsarAdmin([broker.node for broker in two])
    admin.enter_namespace("public/bs-1")
    assert admin.backlogs(["orders"]) == {"orders-0": {"tail": left, "billing": 3}}


SETTINGS = {
    "publishRate.publishThrottlingRateInMsg": "1000",
    "maxUnackedMessagesPerConsumer": "10",
    "deduplication": "true",
}


@pytest.mark.parametrize("old", [False, True], ids=["4.0", "2.8"])
def test_policies_are_changed_and_put_back(two: tuple[Broker, Broker], old: bool) -> None:
    brokers = PolicyBrokers(*two)
    brokers.old = old
    before: dict[str, object] = {"maxUnackedMessagesPerConsumer": 500, "dispatchRate": {"a": 1}}
    brokers.stored = dict(before)
    admin, keys = brokers.admin, list(SETTINGS)
    own = admin.own_settings("namespace", keys)
    assert list(own.values()) == [None, "500", None]
    assert list(admin.settings("namespace", keys).values()) == [
        "the brokers' own",
        "500",
        "the brokers' own",
    ]
    admin.change_settings("namespace", SETTINGS)
    assert admin.settings("namespace", keys) == SETTINGS
    assert brokers.stored == {
        **before,
        "publishRate": {"publishThrottlingRateInMsg": 1000, "publishThrottlingRateInByte": -1},
        "maxUnackedMessagesPerConsumer": 10,
        "deduplication": True,
    }
    admin.change_settings("namespace", own)
    assert brokers.stored == before


def test_a_policy_of_several_values_keeps_those_that_are_not_named(
    two: tuple[Broker, Broker],
) -> None:
    brokers = PolicyBrokers(*two)
    rate = {"publishThrottlingRateInMsg": 7, "publishThrottlingRateInByte": 9}
    brokers.stored["publishRate"] = dict(rate)
    key = "publishRate.publishThrottlingRateInMsg"
    own = brokers.admin.own_settings("namespace", [key])
    brokers.admin.change_settings("namespace", {key: "1000"})
    assert brokers.stored["publishRate"] == {**rate, "publishThrottlingRateInMsg": 1000}
    brokers.admin.change_settings("namespace", own)
    assert brokers.stored["publishRate"] == rate


def test_a_policy_is_in_force_when_every_broker_that_answers_says_so(
    two: tuple[Broker, Broker],
) -> None:
    brokers = PolicyBrokers(*two)
    key = "maxProducersPerTopic"
    brokers.stored[key] = 3
    brokers.lags = {"broker-2"}
    assert brokers.admin.settings("namespace", [key]) == {key: "3 or the brokers' own"}
    two[1].close()
    assert brokers.admin.settings("namespace", [key]) == {key: "3"}
