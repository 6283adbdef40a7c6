"""Pulsar's admin on a cluster that others use too: a run has a namespace to itself, which was
written down before it was made, bears the run's id, and is all that is ever unloaded, split or
deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from harness.admin.failover import NotThere
from harness.admin.health import first_bytes
from harness.admin.http_clock import clock_apart
from harness.admin.made_ledger import MadeLedger
from harness.admin.tls import context_of
from harness.connections.security import Access
from harness.errors import BrokerstormError, EnvironmentNotReady, UsageError
from harness.protocols.cluster import Node, TopicSettings
from harness.systems.pulsar import REQUESTS
from harness.systems.pulsar.admin import FOREVER, NoNamespace, Policies, PulsarAdmin
from harness.systems.pulsar.names import bundle_of
from harness.systems.pulsar.transfers import TransferringPulsarAdmin
from harness.waiting import wait_while

_HELD: Final = {"limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"}
#: Whatever the brokers do by default: nothing is dropped, expires or is deleted by itself, and
#: clients may make topics and subscriptions.
KEEPS: Final[Policies] = {
    "retention_policies": FOREVER,
    "message_ttl_in_seconds": 0,
    "subscription_expiration_time_minutes": 0,
    "backlog_quota_map": {"destination_storage": _HELD, "message_age": _HELD},
    "inactive_topic_policies": {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 60,
        "deleteWhileInactive": False,
    },
    "deduplicationEnabled": False,
    "autoTopicCreationOverride": {"allowAutoTopicCreation": True, "topicType": "non-partitioned"},
    "autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": True},
}
#: Property of a namespace: the run that made it.
MARK: Final = "brokerstorm.run"
_KIND: Final = "namespace"
_EMPTY_S: Final = 20.0
_ANSWER_S: Final = 1.0
_LOOK_S: Final = 3.0


class ExternalPulsarAdmin(PulsarAdmin):
    """A `PulsarAdmin` that makes, changes and deletes nothing but namespaces of one run.

    Args:
        brokers: whose peer endpoint is what brokers call them among themselves.
        cluster: its name.
        access: of clients, which probes act as, and of who administrates.
        copies: bookies of an entry, unless a namespace says otherwise; None = not known.
    """

    def __init__(
        self,
        brokers: Sequence[Node],
        *,
        cluster: str,
        copies: int | None,
        access: Access,
        made: MadeLedger,
    ) -> None:
        ids = {node.name: str(node.peer) for node in brokers}
        super().__init__(brokers, cluster=cluster, ids=ids, security=access.admin)
        self._security = access.clients  # of probes: they show that clients are let in
        self.policies = MappingProxyType({**KEEPS, "properties": {MARK: made.run_id}})
        self._made = made
        self._copies = copies
        self._clients = {node.name: node.client for node in brokers}
        self._current = next(reversed(self._made.names.get(_KIND, ())), "")

    def enter_namespace(self, name: str, *, bundles: int = 12) -> None:
        """Create the run's namespace; see `PulsarAdmin.enter_namespace`.

        Raises:
            UsageError: it is there, whoever made it; or topics in it would drop messages.
        """
        if name in self._rest.get(f"/namespaces/{name.partition('/')[0]}"):
            raise UsageError(
                f"{name} is there already, and not ours", hint="choose another topics.prefix"
            )
        self._made.add(_KIND, [name])
        super().enter_namespace(name, bundles=bundles)
        self._refuse_dropping(name)

    def _refuse_dropping(self, name: str) -> None:
        """Refuse a namespace in which the brokers drop messages: a dropped message would look like
        a loss."""
        found = self.policies_of(name)
        for key, wanted in self.policies.items():
            if not _holds(found.get(key), wanted):
                raise UsageError(
                    f"namespace {name} was made with {key}={found.get(key)}: it may drop messages",
                    hint=f"the cluster must permit {key}={wanted} for namespaces of runs",
                )

    def policies_of(self, name: str) -> Policies:
        """All policies of a namespace.

        Raises:
            NotThere: there is none.
        """
        found: Policies = self._rest.get(f"/namespaces/{name}")
        return found

    def create_topics(self, topics: Sequence[TopicSettings]) -> None:
        """Create topics on as many bookies as were asked for; see `PulsarAdmin.create_topics`."""
        copies = max((topic.replication for topic in topics), default=0)
        if copies and copies != self._copies:
            kept = {
                f"bookkeeper{which}": copies for which in ("Ensemble", "WriteQuorum", "AckQuorum")
            }
            self._rest.post(
                f"/namespaces/{self.namespace}/persistence",
                {**kept, "managedLedgerMaxMarkDeleteRate": 1.0},
            )
        super().create_topics(topics)

    def bundle_owners(self) -> dict[str, str | None]:
        """Return the owners of bundles; see `PulsarAdmin.bundle_owners`. None for a bundle without
        a topic.

        Asked as clients ask, for one topic of each: a bundle without an owner gets one, as it does
        when clients reconnect. Brokers of others must not be asked for what they own
        (`ownedNamespaces`): while bundles are unloaded one may hang for good
        (docs/bugs/other-defects.md).
        """
        bundles = self.bundles()
        topics = {
            bundle_of(full, bundles): full
            for full in self._rest.get(f"/persistent/{self.namespace}")
        }
        told = dict(zip(topics, self._each(self._owner, list(topics.values())), strict=True))
        known = sorted(set(filter(None, told.values())))
        # one that died is listed for as long as its session lasts
        here = {
            node
            for node, is_here in zip(known, self._each(self.answers, known), strict=True)
            if is_here
        }
        return {
            bundle: owner if (owner := told.get(bundle)) in here else None for bundle in bundles
        }

    def _coordinators(self) -> list[str | None]:
        return self._each(self._owner, self._coordinator_topics())

    def _owner(self, topic: str) -> str | None:
        try:
            return self._rest.owner_of(topic, within_s=_LOOK_S)
        except (EnvironmentNotReady, NotThere):
            return None

    def _only_namespace(self) -> str:
        raise NoNamespace("no topic of this run is on the cluster")

    def delete_made(self, made: Mapping[str, Sequence[str]]) -> None:
        """Delete what a run made, and strike it out."""
        for name in made.get(_KIND, ()):
            self.drop_namespace(name)

    def drop_namespace(self, name: str) -> None:
        """Delete it with all its topics, if it is one that the run made; else nothing is done.

        Topic by topic: brokers refuse to delete a namespace with all that is in it, unless they are
        set to.
        """
        if name not in self._made.names.get(_KIND, ()):
            return
        still = self._is_ours(name) and wait_while(
            lambda: self._deletion(name), _EMPTY_S, every_s=0.5
        )
        if still:
            raise EnvironmentNotReady(f"namespace {name} cannot be deleted: {still}")
        self._made.remove(_KIND, [name])
        if self._current == name:
            self._current, self._partitions = "", {}

    def _is_ours(self, name: str) -> bool:
        try:
            return (self.policies_of(name).get("properties") or {}).get(MARK) == self._made.run_id
        except NotThere:
            return False

    def _deletion(self, name: str) -> str:
        """Why it is still there; a client that is ending may make a topic again."""
        topics = f"/persistent/{name}"
        try:
            split = [str(one) for one in self._rest.get(f"{topics}/partitioned")]
            self._delete(topics, split, "/partitions")
            self._delete(topics, [str(one) for one in self._rest.get(topics)], "")
            self._rest.delete(f"/namespaces/{name}")
        except NotThere:
            return ""
        except BrokerstormError as error:
            return str(error)
        return ""

    def _delete(self, topics: str, names: Sequence[str], what: str) -> None:
        local = [name.rpartition("/")[2] for name in names]
        self._each(lambda one: self._rest.delete(f"{topics}/{one}{what}?force=true"), local)

    def wait_ready(self, topics: Sequence[str], *, timeout_s: float, run_tag: int) -> None:
        """Wait until topics are ready; see `PulsarAdmin.wait_ready`. Without topics, every broker
        must answer and nothing is created.
        """
        if topics:
            super().wait_ready(topics, timeout_s=timeout_s, run_tag=run_tag)
        else:
            self._wait_registered(timeout_s)

    def answers(self, node: str) -> bool:
        """Whether a broker answers a client within a second."""
        at, tls = self._clients[node], context_of(self._security.tls)
        return len(first_bytes(at, REQUESTS["client"], 4, _ANSWER_S, tls)) == 4

    def clock(self, node: str) -> tuple[float, float] | None:
        """How far a broker's clock is ahead of ours, and within what, seconds; None when it does
        not tell.

        Raises:
            EnvironmentNotReady: it does not answer.
        """
        return clock_apart(lambda: self._rest.date(node))


class TransferringExternalPulsarAdmin(ExternalPulsarAdmin, TransferringPulsarAdmin):
    """The administration of a cluster whose brokers can transfer bundles (HasTransfers)."""


def _holds(found: Any, wanted: Any) -> bool:
    """Whether all that is wanted is found; more may be."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            _holds(found.get(key), one) for key, one in wanted.items()
        )
    return bool(found == wanted)
