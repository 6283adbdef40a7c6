"""Pulsar's admin side: namespaces, topics, owners, bundles, asked in a way that survives dead
brokers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from harness.admin.failover import NotThere, wait_ready
from harness.connections.security import ANYBODY, Auth, Security
from harness.contracts.rows import Leadership, ReplicaRow, StreamTransactions
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import Node, PartitionState, SeenLeaders, TopicSettings
from harness.rundir import Document
from harness.systems.pulsar import replicas, transactions
from harness.systems.pulsar.ledgers import ledgers_of
from harness.systems.pulsar.names import (
    bundle_of,
    bundles_between,
    full_name,
    local_name,
    streams_of,
)
from harness.systems.pulsar.owners import Owners
from harness.systems.pulsar.policies import as_policies, read_settings
from harness.systems.pulsar.probe import answers, probe_topics, what_to_probe
from harness.systems.pulsar.rest import PulsarRest

CLUSTER = "brokerstorm"  # the cluster's name in compose/pulsar
RUN_NAMESPACES = "public/bs-"
READY_NAMESPACE = "public/ready"
#: The topic whose partitions are the transaction coordinators (PIP-31).
_SYSTEM, _COORDINATORS = "pulsar/system", "transaction_coordinator_assign"
_DEFAULT = "public/default"
_USE, _LOOK_UP = ["produce", "consume"], ["consume"]
_READY_BUNDLES = 3
_THREADS = 8
_ONE_LOOK_S = 3.0
_ANSWER_S = 1.0
_UNLOAD_S = 10.0  # one topic; old brokers have topics whose unload never ends
_NOT_SET = "is not configured for cluster"
_BROKERS_OWN = "the brokers' own"
FOREVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
T = TypeVar("T")
R = TypeVar("R")


#: Policies of a namespace, by their names in the admin API; each has a value of its own shape.
Policies = Mapping[str, Any]


class NoNamespace(UsageError):
    """No run has topics here, or several have."""


class PulsarAdmin:
    """Admin, HasNamespaces, HasPlacement, HasBundles, TellsHidden, HasCoordinators and
    ChangesTopics. Thread-safe; every question ends within seconds. Topic names are relative to the
    current namespace.

    Args:
        nodes: of every role.
        ids: broker -> ``host:port`` as the brokers name it among themselves; default: its admin
            endpoint.
        bookies: the same of bookies; default: the client endpoint.
        is_reachable: whether a node can answer, as far as the runtime knows; decides whom to ask
            first.
        watch: called while waiting for readiness; raises to end the wait early (a node died at
            start).
        security: of the harness.
        probes: security of probes; default: the harness's.
        open_to: role of clients that may use topics in the namespaces that it makes.
        metadata: user and password of the harness to the ZooKeeper of a cluster of ours; None:
            clusters of others, whose ZooKeeper is not asked.
        cluster: its name.

    Attributes:
        policies: of namespaces that it makes.
    """

    policies: Policies = MappingProxyType({"retention_policies": FOREVER})

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        cluster: str = CLUSTER,
        ids: Mapping[str, str] | None = None,
        bookies: Mapping[str, str] = MappingProxyType({}),
        is_reachable: Callable[[str], bool] = lambda name: True,
        watch: Callable[[], None] = lambda: None,
        security: Security = ANYBODY.admin,
        probes: Security | None = None,
        open_to: str = "",
        metadata: Auth | None = None,
    ) -> None:
        self._brokers = [node for node in nodes if "broker" in node.roles]
        self._storage = [node for node in nodes if "broker" not in node.roles]
        stores = (node for node in self._storage if "bookie" in node.roles)
        self._bookies = {bookies.get(node.name, str(node.client)): node for node in stores}
        self._is_reachable = is_reachable
        self._cluster = cluster
        self.watch = watch
        self._ids = dict(ids or {node.name: str(node.admin) for node in self._brokers})
        self._security = probes or security
        if open_to:
            rights = {"namespace_auth": {open_to: _USE}}
            self.policies = MappingProxyType({**self.policies, "auth_policies": rights})
        self._rest = PulsarRest(self._brokers, is_reachable, self._ids, security)
        zookeeper = next((node for node in self._storage if "zookeeper" in node.roles), None)
        self._owners: Owners | None = None
        if zookeeper is not None and metadata is not None:
            self._owners = Owners(zookeeper, self._ids, cluster, metadata)
        self._current = ""
        self._partitions: dict[str, int] = {}

    # -- namespaces --------------------------------------------------------------------------------

    def enter_namespace(self, name: str, *, bundles: int = 12) -> None:
        """Create a namespace whose topics keep their whole log, and use it from now on.

        Raises:
            UsageError: it exists, or the brokers refuse it (their words).
            EnvironmentNotReady: no broker answers.
        """
        body = {
            "bundles": {"numBundles": bundles},
            "replication_clusters": [self._cluster],
            **self.policies,
        }
        self._rest.put(f"/namespaces/{name}", body)
        self._current, self._partitions = name, {}

    def drop_namespace(self, name: str) -> None:
        """Delete it with all its topics; it is not an error if it does not exist."""
        self._rest.delete(f"/namespaces/{name}?force=true")
        if self._current == name:
            self._current, self._partitions = "", {}

    def namespaces(self) -> list[str]:
        """Return the namespaces of the tenant ``public``, sorted."""
        return sorted(self._rest.get("/namespaces/public"))

    @property
    def namespace(self) -> str:
        """The current one: entered here, or the only one of a run that is there.

        Raises:
            UsageError: there is none, or there are several.
        """
        if not self._current:
            self._current = self._only_namespace()
        return self._current

    def _only_namespace(self) -> str:
        found = [name for name in self.namespaces() if name.startswith(RUN_NAMESPACES)]
        if len(found) != 1:
            raise NoNamespace(
                f"no run uses this cluster: namespaces of runs are {', '.join(found) or 'none'}",
                hint="`brokerstorm run SCENARIO --keep-up` leaves its topics in place",
            )
        return found[0]

    def admit(self, user: str) -> None:
        """Let a user do everything in the namespaces of runs."""
        self._rest.post(
            "/tenants/public", {"adminRoles": [user], "allowedClusters": [self._cluster]}
        )

    def open_shared(self, role: str) -> None:
        """Let a role use the namespaces that are there from the start: the default one, and the one
        of the transaction coordinators, which clients look up."""
        for namespace, rights in ((_DEFAULT, _USE), (_SYSTEM, _LOOK_UP)):
            self._rest.post(f"/namespaces/{namespace}/permissions/{role}", rights)

    def cluster_id(self) -> str:
        """Its name at the address that it has on record: Pulsar knows no other id of a cluster."""
        url = str(self._rest.get(f"/clusters/{self._cluster}")["serviceUrl"])
        return f"{self._cluster}@{url.rpartition('/')[2]}"

    def settings(self, topic: str, keys: Sequence[str]) -> dict[str, str]:
        """Return the settings in force, by every broker that answers; each reads them from
        ZooKeeper. See `ChangesTopics.settings`. A key that was never set has the brokers' value.
        """
        told = []
        for name in self._rest.reachable():
            with suppress(EnvironmentNotReady):
                told.append(read_settings(partial(self._policy, only=name), keys))
        if not told:
            raise EnvironmentNotReady(f"no broker tells the policies of {self.namespace}")
        said = {key: dict.fromkeys(one[key] or _BROKERS_OWN for one in told) for key in keys}
        return {key: " or ".join(values) for key, values in said.items()}

    def own_settings(self, topic: str, keys: Sequence[str]) -> dict[str, str | None]:
        """Return the namespace's own settings; see `ChangesTopics.own_settings`."""
        return read_settings(self._policy, keys)

    def change_settings(self, topic: str, to: Mapping[str, str | None]) -> None:
        """Change settings of the namespace; see `ChangesTopics.change_settings`."""
        for name, value in as_policies(self._policy, to).items():
            path = f"/namespaces/{self.namespace}/{name}"
            if value is None:
                self._rest.delete(path)
            else:
                self._rest.post(path, value)

    def _policy(self, name: str, only: str = "") -> Any:
        """A policy of the namespace, None = it was not set; brokers of 2.8 answer 404 to some
        then."""
        try:
            return self._rest.get(f"/namespaces/{self.namespace}/{name}", only=only)
        except NotThere as error:
            if _NOT_SET in str(error):
                return None
            raise

    # -- topics ------------------------------------------------------------------------------------

    def create_topics(self, topics: Sequence[TopicSettings]) -> None:
        """Create topics in the current namespace.

        Raises:
            UsageError: a topic exists, or the brokers refuse it (their words).
            EnvironmentNotReady: no broker answers.
        """

        def create(topic: TopicSettings) -> None:
            path = f"/persistent/{self.namespace}/{topic.name}"
            if topic.partitions > 1:
                self._rest.put(f"{path}/partitions", topic.partitions)
            else:
                self._rest.put(path)
            self._partitions[topic.name] = topic.partitions

        self._each(create, topics)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics; it is not an error if one does not exist."""

        def delete(name: str) -> None:
            partitioned = "/partitions" if self._count(name) > 1 else ""
            self._rest.delete(f"/persistent/{self.namespace}/{name}{partitioned}?force=true")
            self._partitions.pop(name, None)

        self._each(delete, names)

    def topics(self) -> list[str]:
        """Names of the topics of the current namespace; none while no run has one."""
        try:
            self.namespace  # noqa: B018 - looks for it
        except NoNamespace:
            return []
        whole = [
            name.rpartition("/")[2] for name in self._rest.get(f"/persistent/{self.namespace}")
        ]
        split = self._rest.get(f"/persistent/{self.namespace}/partitioned")
        single = [name for name in whole if "-partition-" not in name]
        return sorted({*single, *(name.rpartition("/")[2] for name in split)})

    def end_offsets(self, topics: Sequence[str]) -> dict[str, int]:
        """Stream ("orders-0") -> entries stored; a batch is one entry.

        Raises:
            EnvironmentNotReady: a topic has no owner that answers.
        """
        stats = self._of_streams(topics, "internalStats")
        return {stream: int(row["numberOfEntries"]) for stream, row in stats.items()}

    def backlogs(self, topics: Sequence[str]) -> dict[str, dict[str, int]]:
        """Stream -> subscription -> entries that it has not acknowledged yet.

        For a subscription that is not durable these are the entries that were not sent to its
        consumer yet. What it acknowledged on a lost connection is forgotten and need not come
        again: its backlog may stay.
        """
        stats = self._of_streams(topics, "stats")
        found = {
            stream: {name: int(sub["msgBacklog"]) for name, sub in row["subscriptions"].items()}
            for stream, row in stats.items()
        }
        for stream, row in stats.items():
            passing = [
                name for name, sub in row["subscriptions"].items() if not sub.get("isDurable", True)
            ]
            inside: Document = (
                self._rest.get(f"{self._path(stream)}/internalStats") if passing else {}
            )
            for name in passing:
                if name in inside["cursors"]:  # it may have gone meanwhile
                    found[stream][name] = _not_read(inside, inside["cursors"][name])
        return found

    def stats(self, stream: str) -> Document:
        """Return the statistics of a stream from its owner. This loads the topic."""
        answer: Document = self._rest.get(f"{self._path(stream)}/stats")
        return answer

    def incarnation(self, stream: str) -> int:
        """A number that changes when the stream is loaded anew, also by the same owner: the ledger
        that it writes to, of which each load opens a new one. Loads it."""
        rows = self._rest.get(f"{self._path(stream)}/internalStats")["ledgers"]
        return max((int(row["ledgerId"]) for row in rows), default=-1)

    def address(self, stream: str) -> str:
        """Pulsar's full name of a stream."""
        return full_name(self.namespace, self._local(stream))

    def leaderships(self, topics: Sequence[str], seen: SeenLeaders) -> list[Leadership]:
        """Every ledger of the topics with its owner, as far as one was seen while it was
        written."""
        told = self._of_streams(topics, "internal-info")
        return [
            one
            for stream, info in told.items()
            for one in ledgers_of(stream, info, seen.get(stream, ()))
        ]

    def read_replicas(self, topics: Sequence[str], *, timeout_s: float) -> list[ReplicaRow]:
        """Read the entries of every replica from bookies; see `ReadsReplicas.read_replicas`."""
        told = self._of_streams(topics, "internalStats?metadata=true")
        parts = [part for stream, row in told.items() for part in replicas.parts_of(stream, row)]
        return replicas.read_parts(parts, self._bookies, within_s=timeout_s)

    # -- transactions ------------------------------------------------------------------------------

    def hidden(
        self, given: Mapping[str, Collection[tuple[int, int]]], *, timeout_s: float
    ) -> list[StreamTransactions]:
        """Return what consumers are not given; see `TellsHidden`. It waits until open transactions
        end, because markers follow acknowledged commits.
        """
        deadline = time.monotonic() + timeout_s
        streams = list(given)
        topics = list(dict.fromkeys(stream.rpartition("-")[0] for stream in streams))
        transactions.wait_settled(
            lambda: self._each(self._ongoing, streams), within_s=timeout_s / 2
        )
        internal = self._of_streams(topics, "internalStats")
        owners = {stream: state.leader for stream, state in self.partition_states(topics).items()}

        def get(stream: str, ledger: int, entry: int) -> tuple[Mapping[str, str], bytes]:
            path = f"{self._path(stream)}/ledger/{ledger}/entry/{entry}"
            return self._rest.raw(path, first=owners.get(stream))

        with ThreadPoolExecutor(_THREADS, thread_name_prefix="pulsar-log") as pool:
            return [
                transactions.scan(get, one, internal[one], given[one], pool=pool, deadline=deadline)
                for one in streams
            ]

    def _ongoing(self, stream: str) -> int:
        """Open transactions of a stream, as its owner says; -1 = it does not."""
        path = (
            f"/admin/v3/transactions/transactionBufferStats/{self.namespace}/{self._local(stream)}"
        )
        return int(self._rest.get(path).get("ongoingTxnSize", -1))

    def coordinator(self, kind: str, name: str) -> str | None:
        """The broker that has most of the transaction coordinators: a client uses all of them in
        turn, whatever its ``name``. Nobody coordinates a group."""
        owners = self._coordinators() if kind == "transactions" else []
        counts = Counter(filter(None, owners))
        return min(counts, key=lambda owner: (-counts[owner], owner), default=None)

    def _coordinators(self) -> list[str | None]:
        """Return the owner of each transaction coordinator."""
        bundles = bundles_between(self._rest.get(f"/namespaces/{_SYSTEM}/bundles")["boundaries"])
        owners = self._bundle_owners(_SYSTEM, bundles)
        return [owners[bundle_of(topic, bundles)] for topic in self._coordinator_topics()]

    def _coordinator_topics(self) -> list[str]:
        count = int(
            self._rest.get(f"/persistent/{_SYSTEM}/{_COORDINATORS}/partitions")["partitions"]
        )
        return [
            full_name(_SYSTEM, f"{_COORDINATORS}-partition-{number}") for number in range(count)
        ]

    def _path(self, stream: str) -> str:
        return f"/persistent/{self.namespace}/{self._local(stream)}"

    def _local(self, stream: str) -> str:
        return local_name(stream, self._count(stream.rpartition("-")[0]))

    def _count(self, topic: str) -> int:
        """Partitions of a topic, 1 for one that is not partitioned."""
        if topic not in self._partitions:
            answer = self._rest.get(f"/persistent/{self.namespace}/{topic}/partitions")
            self._partitions[topic] = max(1, int(answer["partitions"]))
        return self._partitions[topic]

    def _of_streams(self, topics: Sequence[str], what: str) -> dict[str, Document]:
        streams = self._streams(topics)
        rows = self._each(lambda stream: self._rest.get(f"{self._path(stream)}/{what}"), streams)
        return dict(zip(streams, rows, strict=True))

    def _streams(self, topics: Sequence[str]) -> list[str]:
        return [stream for topic in topics for stream in streams_of(topic, self._count(topic))]

    # -- owners and bundles ------------------------------------------------------------------------

    def partition_states(self, topics: Sequence[str]) -> dict[str, PartitionState]:
        """Stream -> its owner: who has its bundle; topics that do not exist are left out."""
        if not topics:
            return {}
        owners = self.bundle_owners()
        states = {}
        for topic in topics:
            try:
                streams = self._streams([topic])
            except NotThere:
                continue
            for stream in streams:
                owner = owners[bundle_of(self.address(stream), list(owners))]
                states[stream] = PartitionState(owner, (), ())
        return states

    def leaders(self, topic: str) -> dict[int, str | None]:
        """Partition -> the broker that owns it."""
        states = self.partition_states([topic])
        return {int(stream.rpartition("-")[2]): state.leader for stream, state in states.items()}

    def controller(self) -> str | None:
        """The leader broker, which assigns bundles; None while none is known.

        Each is asked in turn: a follower of 2.8 that started during the election never learns who
        won.
        """
        for name in self._rest.reachable():
            try:
                answer = self._rest.get("/brokers/leaderBroker", only=name, within_s=_ANSWER_S)
            except (EnvironmentNotReady, UsageError):
                continue
            if found := self._rest.name_of(str((answer or {}).get("serviceUrl", ""))):
                return found
        return None

    def bundles(self) -> list[str]:
        """Bundles of the current namespace, in the order of their ranges."""
        return bundles_between(
            self._rest.get(f"/namespaces/{self.namespace}/bundles")["boundaries"]
        )

    def bundles_of(self, streams: Sequence[str]) -> dict[str, str]:
        """Stream -> the bundle it is in, now."""
        bundles = self.bundles()
        return {stream: bundle_of(self.address(stream), bundles) for stream in streams}

    def bundle_owners(self) -> dict[str, str | None]:
        """Bundles of the current namespace -> who owns each; None when no broker in reach does.

        No broker is asked: one that is asked where a topic is would decide it, and one that is
        asked what it owns may hang (`ask_owned`). A broker that died owns nothing, though its
        session lasts on.
        """
        return self._bundle_owners(self.namespace, self.bundles())

    def _bundle_owners(self, namespace: str, bundles: Sequence[str]) -> dict[str, str | None]:
        assert self._owners is not None, "a cluster of ours has a ZooKeeper"
        owners = self._owners.owners_of(namespace)
        here = {bundle: name for bundle, name in owners.items() if self._is_reachable(name)}
        return {bundle: here.get(bundle) for bundle in bundles}

    def ask_owned(self) -> dict[str, float | None]:
        """Ask every broker in reach for its bundles (`pulsar-admin brokers namespaces`), as
        operators and their tools do: broker -> seconds until it answered, None when it did not
        within three.

        Nothing here needs the answer; it is a fault of its own, `admin-question`.
        """
        here = [node for node in self._brokers if self._is_reachable(node.name)]
        return dict(
            zip((node.name for node in here), self._each(self._asked_owned, here), strict=True)
        )

    def _asked_owned(self, node: Node) -> float | None:
        path = f"/brokers/{self._cluster}/{self._ids[node.name]}/ownedNamespaces"
        begun = time.monotonic()
        try:
            self._rest.get(path, only=node.name, within_s=_ONE_LOOK_S)
        except EnvironmentNotReady:
            return None
        return time.monotonic() - begun

    def unload_stream(self, stream: str) -> None:
        """Close it at its owner and disconnect its clients; returns when done."""
        self._rest.put(f"{self._path(stream)}/unload", within_s=_UNLOAD_S)

    def unload_bundle(self, bundle: str) -> None:
        self._rest.put(f"/namespaces/{self.namespace}/{bundle}/unload")

    def unload_namespace(self) -> None:
        self._rest.put(f"/namespaces/{self.namespace}/unload")

    def split_bundle(self, bundle: str) -> None:
        """Halve it; returns when asked, not when the number of bundles has changed."""
        self._rest.put(f"/namespaces/{self.namespace}/{bundle}/split?unload=true")

    # -- readiness ---------------------------------------------------------------------------------

    def registered(self) -> set[str]:
        """Brokers that have a session, bookies and ZooKeeper that answer."""
        found = self._rest.get(f"/brokers/{self._cluster}")
        brokers = {name for address in found if (name := self._rest.name_of(address))}
        reachable = [node for node in self._storage if self._is_reachable(node.name)]
        return brokers | {node.name for node in reachable if answers(node)}

    def forget(self, node: str) -> None:
        for id_, bookie in self._bookies.items():
            if bookie.name == node and self._owners:
                self._owners.forget_bookie(id_)

    def answers(self, node: str) -> bool:
        """Whether a node answers a request of ours within a second."""
        if found := next((one for one in self._storage if one.name == node), None):
            return answers(found)
        try:
            self._rest.get("/brokers/ready", only=node, within_s=_ANSWER_S)
        except EnvironmentNotReady:
            return False
        except NotThere:
            return True  # a version without this question
        return True

    def wait_ready(self, topics: Sequence[str], *, timeout_s: float, run_tag: int) -> None:
        """Return when every node is registered, and probe messages went through every bundle and
        back and into each stream of ``topics`` (without topics: through a namespace of our own,
        dropped afterwards).

        Raises:
            EnvironmentNotReady: what is still missing, by name.
        """
        deadline = time.monotonic() + timeout_s
        self._wait_registered(timeout_s)
        if topics:
            self._probe(self._streams(topics), deadline, run_tag)
            return
        before = self._current
        try:
            self.drop_namespace(READY_NAMESPACE)
            self.enter_namespace(READY_NAMESPACE, bundles=_READY_BUNDLES)
            self._probe([], deadline, run_tag)
            self.drop_namespace(READY_NAMESPACE)
        finally:
            self._current = before

    def _wait_registered(self, timeout_s: float) -> None:
        names = {node.name for node in (*self._brokers, *self._storage)}

        def missing() -> str:
            absent = sorted(names - self.registered())
            # A killed broker's session lasts on while it starts again.
            absent = absent or [n.name for n in self._brokers if not self.answers(n.name)]
            if not absent and self.controller() is None:
                absent = ["a leader broker"]
            return f"not registered or not answering: {', '.join(absent)}" if absent else ""

        wait_ready(missing, self.watch, timeout_s=timeout_s)

    def _probe(self, streams: Sequence[str], deadline: float, run_tag: int) -> None:
        addresses, through = what_to_probe(
            [self.address(stream) for stream in streams], self.namespace, self.bundles()
        )
        probe_topics(
            ",".join(str(node.client) for node in self._brokers),
            self._security,
            addresses,
            read=through,
            run_tag=run_tag,
            deadline=max(deadline, time.monotonic() + 5.0),
        )

    def close(self) -> None:
        """Drop all connections. Idempotent; a later call opens them again."""
        self._rest.close()
        if self._owners is not None:
            self._owners.close()

    def _each(self, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """``call`` for each item, several at a time; the first error is raised."""
        if len(items) < 2:
            return [call(item) for item in items]
        with ThreadPoolExecutor(
            min(_THREADS, len(items)), thread_name_prefix="pulsar-admin"
        ) as pool:
            return list(pool.map(call, items))


def _not_read(inside: Document, cursor: Document) -> int:
    """Entries of a stream after the read position of a cursor. ``inside``: its internal stats."""
    if cursor["waitingReadOp"]:
        return 0  # it waits for an entry that is not there yet
    ledger, entry = (int(number) for number in cursor["readPosition"].split(":"))
    entries = {int(row["ledgerId"]): int(row["entries"]) for row in inside["ledgers"]}
    if entries:
        # of the open one nothing is listed
        entries[max(entries)] = int(inside["currentLedgerEntries"])
    return sum(
        max(0, count - (entry if number == ledger else 0))
        for number, count in entries.items()
        if number >= ledger
    )
