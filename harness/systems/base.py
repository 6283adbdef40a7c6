"""The interface of a message system: what everybody may know of it, and the ways to what only some
need."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from harness.errors import UsageError

#: A request, and what shows that all of it came through: how many answers, or what an answer ends
#: with.
Request = tuple[bytes, int | bytes]
#: A setting, and what is wrong with its value; what is allowed.
Problem = tuple[str, str]
Texts = Mapping[str, str]
_NOTHING: Texts = MappingProxyType({})


class System:
    """One system. Stateless; the defaults fit a plain log without partitions.

    The other modules of its folder are imported when a method is called that needs one: no code
    loads client libraries for a question about facts, and no other code names those modules.

    Attributes:
        client: the library of a producer or consumer that names none.
        version: of the broker, when the scenario names none: the one everything here is measured
            with.
        audit: library and version (empty = the installed one) of the reader that audits the log,
            independent of the client under test.
        is_default: the system of a scenario that names none; exactly one.
        partitions: of a topic that says nothing.
        topologies: what ``cluster.topology`` may be, the default first; empty = there is one only.
        harness_libraries: Python distributions that the harness itself talks to the brokers with.
        allowed: by key of a consumer, its values; the first is the default.
        auto_settle: what ``settle: auto`` of a consumer means.
        options_since: by option of a client and value (small letters), the first brokers that can
            do it.
        foreign: by part and key of the scenario, what to write instead of a key that means nothing
            here.
        broker_config: by broker setting that the harness needs as it is, why.
        quick_config: broker settings with which groups of consumers are complete sooner; for many
            short rounds.
        config_form: how the brokers' own file of settings is written: ``properties``, ``nested``
            (blocks), or empty = no such file is read.
        config_left_aside: pattern of settings of such a file that a run leaves aside: who may
            connect and how, and where other servers are.
        copies: one copy of a message and several, in the words of the system.
        stored_overhead_bytes: of a message besides its payload, in one copy on a broker's disk.
        store_role: role of the nodes that keep the messages; empty = who leads and who follows says
            so.
        is_queue: a message that was settled is gone; the audit finds what remained. Else there is a
            log.
        size_setting: the setting of a topic that says how large a message may be, bytes; empty = it
            has none.
        changeable: settings of a topic that may change while clients use it: what was acknowledged
            stays, as far as it did before, or is known to be removed. None = they cannot be
            changed.
        changes_namespace: they are of a run's namespace, so of all its topics; else of one topic.
        change_request: what changes them, for people; ``{topic}`` is the topic.
        keeps_leaders: its brokers keep who led what and since when; else a run watches it.
        term: what a stretch under one leader is called and numbered by; empty = it has no number.
        has_offsets: positions in a log are dense numbers.
        first_position: of the first message of a log. Where nothing was removed, its bounds begin
            at 0 all the same.
        brokers_time_acks: the time to acknowledge a message begins when a broker sends it, and not
            when the application is given it.
        orders_by_connection: brokers keep the order of messages that came by one connection. What
            was on its way when it ended may be stored after messages of the next connection.
        reads_uncommitted: the audit's reader is given what no transaction committed; else the admin
            tells it (`HasTransactions`).
        follows_from_s: in a load that long the audit's readers read the log while it grows, and the
            load pays for it (docs/worker-protocol.md, Audit).
        forgets_read: brokers of ours need not keep what was read along.
        grows_topics: partitions can be added to a topic, and the audit reads those too.
        reads_replicas: each replica of a log can be read from the node that has it
            (`ReadsReplicas`).
        runs_applications: programs of the user that read and write topics can be judged.
        append_time: settings of a topic with which its brokers say when they stored a message; none
            = they always do.
        names_group_members: brokers report the members of a consumer group (`HasGroupMembers`), so
            applications that the user starts can be judged.
        transactional_config: broker settings that transactions need.
        log_stamps: how lines of a broker's log begin (`harness.log_stamp`), any of these; none =
            not stated.
        log_leader: pattern of a line about a new leader, ``{stream}`` where the stream's name is;
            without it the line is about all streams. Empty = no line says so.
        client_requests: requests that clients of a run send, the most frequent ones first -> errors
            that brokers may answer them with, after which a client should try again; random faults
            are drawn from these.
        transactional_requests: the ones among them that only transactions need.
        request_kinds: name of a kind of request of clients or brokers -> its number on the wire,
            where the network proxy can tell where a request begins and of which kind it is.
        answer_errors: name of an error in answers -> its number, where the network proxy can change
            answers.
        answer_kinds: as ``request_kinds``, where the proxy knows requests only to change answers.
        unanswered: kinds of requests that brokers never answer.
        error_kinds: name of an error -> the only kinds of requests whose answers can say it;
            without an entry, every answer can.
        answer_acts: what else the network proxy can make of answers (`AnswerChange.act`), and
            ``before``, where an error can precede its request.
        closings: name of what brokers say when they close something -> its number; empty = there is
            one way only.
        closing_kinds: kinds of requests that name what brokers can close; empty = all.
        answer_permits: of those errors and closings, name -> what a client may do that believes it
            (`harness.contracts.rows.FaultDetails.permits`); those that are left out permit nothing.
        skipped_permits: the same where a broker did not get a request that it has later ones of, by
            its kind: a broker would have refused those, too.
        dropped_answer_permits: the same for an answer that never comes on a connection that stays
            open; empty = clients of the protocol have a time limit of their own.
        file_kinds: by kind of data file (`harness.protocols.files`), patterns of paths below a
            node's data folder; a file is of the first that has it. ``unused``: what is about to be
            removed.
        stream_folders: the files of each stream are in a folder with its name.
        bootstrap_form, admin_form: what a connection file says of where it is; empty = nothing.
        made_form: what is made on a cluster of others, by names.
        copies_default: whose number of copies counts there when its file has none.
        ask_id: what tells the id of a cluster, for people.
        mechanisms: how its clients can prove who they are (`harness.connections.security`).
        has_controller: one of its nodes decides for the others, for example who leads.
        has_cookie: its nodes share a secret, and answer the harness only if it knows the secret.
        plain_ports: names of ports without TLS on a secure cluster.
        subscription, order: how consumers read of which a plan says nothing
            (`harness.contracts.plan`).
    """

    name: ClassVar[str]
    client: ClassVar[str]
    version: ClassVar[str]
    audit: ClassVar[tuple[str, str]]
    is_default: ClassVar[bool] = False
    partitions: ClassVar[int] = 1
    topologies: ClassVar[tuple[str, ...]] = ()
    harness_libraries: ClassVar[tuple[str, ...]] = ()
    allowed: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "receive": ("loop",),
        "settle": ("auto", "ack"),
    }
    auto_settle: ClassVar[Literal["auto", "ack"]] = "ack"
    options_since: ClassVar[Mapping[tuple[str, str], str]] = {}
    foreign: ClassVar[Mapping[tuple[str, str], str]] = {}
    broker_config: ClassVar[Texts] = _NOTHING
    quick_config: ClassVar[Texts] = _NOTHING
    config_form: ClassVar[str] = ""
    config_left_aside: ClassVar[str] = ""
    copies: ClassVar[tuple[str, str]] = ("copy", "copies")
    stored_overhead_bytes: ClassVar[int] = 0
    store_role: ClassVar[str] = ""
    is_queue: ClassVar[bool] = False
    size_setting: ClassVar[str] = ""
    changeable: ClassVar[tuple[str, ...]] = ()
    changes_namespace: ClassVar[bool] = False
    change_request: ClassVar[str] = ""
    keeps_leaders: ClassVar[bool] = False
    term: ClassVar[str] = ""
    has_offsets: ClassVar[bool] = False
    first_position: ClassVar[int] = 0
    orders_by_connection: ClassVar[bool] = False
    brokers_time_acks: ClassVar[bool] = False
    reads_uncommitted: ClassVar[bool] = True
    reads_replicas: ClassVar[bool] = False
    runs_applications: ClassVar[bool] = False
    append_time: ClassVar[Texts] = _NOTHING
    names_group_members: ClassVar[bool] = False
    transactional_config: ClassVar[Texts] = _NOTHING
    follows_from_s: ClassVar[float] = math.inf
    forgets_read: ClassVar[bool] = False
    grows_topics: ClassVar[bool] = False
    log_stamps: ClassVar[tuple[str, ...]] = ()
    log_leader: ClassVar[str] = ""
    client_requests: ClassVar[Mapping[str, Sequence[str]]] = {}
    transactional_requests: ClassVar[tuple[str, ...]] = ()
    request_kinds: ClassVar[Mapping[str, int]] = {}
    answer_errors: ClassVar[Mapping[str, int]] = {}
    answer_kinds: ClassVar[Mapping[str, int]] = {}
    unanswered: ClassVar[tuple[str, ...]] = ()
    error_kinds: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    answer_acts: ClassVar[tuple[str, ...]] = ()
    closings: ClassVar[Mapping[str, int]] = {}
    closing_kinds: ClassVar[tuple[str, ...]] = ()
    answer_permits: ClassVar[Mapping[str, str]] = {}
    skipped_permits: ClassVar[Mapping[str, str]] = {}
    dropped_answer_permits: ClassVar[str] = ""
    file_kinds: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    stream_folders: ClassVar[bool] = False
    bootstrap_form: ClassVar[str] = ""
    admin_form: ClassVar[str] = ""
    made_form: ClassVar[str] = "<prefix>-<run tag>-<topic>"
    copies_default: ClassVar[str] = "the scenario's"
    ask_id: ClassVar[str] = ""
    mechanisms: ClassVar[tuple[str, ...]] = ()
    has_controller: ClassVar[bool] = True
    has_cookie: ClassVar[bool] = False
    plain_ports: ClassVar[tuple[str, ...]] = ()
    subscription: ClassVar[str] = "exclusive"
    order: ClassVar[str] = "stream"

    @property
    def answered(self) -> Mapping[str, int]:
        """The kinds of requests whose answers the network proxy can find, each with its number."""
        return self.answer_kinds or self.request_kinds

    def assembly(self) -> Any:
        """How its clusters are opened: `harness.clusters.assembly.Assembly`."""
        return self._module("assembly").ASSEMBLY

    def external(self) -> Any:
        """How clusters that others started are asked
        (`harness.clusters.external.cluster.ExternalSystem`); None = they cannot be."""
        found = find_spec(self._name_of("external")) and self._module("external")
        return found.EXTERNAL if found else None

    def required_external(self) -> Any:
        """As `external`.

        Raises:
            UsageError: clusters that others started cannot be asked.
        """
        if (found := self.external()) is None:
            raise UsageError(
                f"system: {self.name}: --cluster cannot ask such clusters yet",
                hint=f"`brokerstorm up --system {self.name}` starts one",
            )
        return found

    def worker_facts(self) -> Any:
        """The model of ``[promises]`` in a worker.toml: the settings that decide what its clients
        promise."""
        return self._module("worker_facts").FACTS

    def promise(self) -> Any:
        """Return the functions that read promises from settings: ``read_producer`` and
        ``read_consumer`` of `harness.plan.promise`.
        """
        return self._module("promise")

    def headers(self) -> Any:
        """Return the module that reads messages with their headers (``read``), for the contract of
        workers.
        """
        return self._module("headers")

    def _module(self, part: str) -> Any:
        return import_module(self._name_of(part))

    def _name_of(self, part: str) -> str:
        return f"{__package__}.{self.name}.{part}"

    def cluster_problems(self, topology: str, config: Texts) -> Iterable[Problem]:
        """Yield the problems of native broker settings, by setting."""
        return ()

    def cluster_warnings(self, configs: Sequence[Texts]) -> Iterable[str]:
        """Broker settings that have no effect as they are, as sentences for people.

        ``configs``: the different settings that nodes have.
        """
        return ()

    def topic_problems(self, replication: int, config: Texts) -> Iterable[Problem]:
        """Yield the problems of native topic settings, by setting."""
        return ()

    def version_problems(self, version: str, replication: int, config: Texts) -> Iterable[Problem]:
        """Yield problems that native topic settings have with brokers of a version, by setting."""
        return ()

    def upgrade_problem(self, before: str, to: str) -> str:
        """Return why running brokers cannot change from a version to another; empty = they can, as
        far as is known."""
        return ""

    def change_problems(self, replication: int, config: Texts) -> Iterable[Problem]:
        """Yield the problems of settings that change while clients use a topic, by setting."""
        allowed = ", ".join(self.changeable)
        return [
            (key, f"would change what is promised. Allowed: {allowed}")
            for key in config
            if self.changeable and key not in self.changeable
        ]

    def topic_config(self, config: Texts, replication: int, broker_config: Texts) -> dict[str, str]:
        """The settings that a topic is created with. Default: as written."""
        return dict(config)

    def retention(self, seconds: float) -> dict[str, str]:
        """Settings of a topic that keeps its messages so long, where the audit follows; none = to
        the end."""
        return {}

    def retention_s(self, topic_config: Texts) -> float | None:
        """How long a topic with these settings keeps its messages; None = all of them, or they do
        not say."""
        return None

    def keeps_last_of_key(self, topic_config: Texts) -> bool:
        """Whether a topic with these settings keeps the last message of each key, and may remove
        earlier ones."""
        return False

    def moves_to(self, topic_config: Texts) -> str:
        """Return the stream to which brokers move messages that the topic gives up (dead letters),
        for example "dead-0"; empty = they move none."""
        return ""

    def removes_settled(self, topic_config: Texts) -> bool:
        """Whether a topic with these settings removes a message once its consumers acknowledged it,
        as a queue does: the audit finds what remained."""
        return self.is_queue

    def forgets_unread(self, topic_config: Texts) -> bool:
        """Whether a topic with these settings removes a message at once while no consumer
        exists."""
        return False

    def replication(self, asked: int, topology: str, broker_config: Texts) -> int:
        """Copies of each message.

        Raises:
            ScenarioError: a broker setting that decides it is out of range.
        """
        return 1

    def stored_copies(self, replication: int, topology: str) -> int:
        """Copies of each message on disk; ``replication`` as of `replication`."""
        return replication

    def size_limit(self, topic_config: Texts, broker_config: Texts) -> int:
        """The largest message that a topic takes, bytes; 0 = none is known."""
        return 0

    def name_key(self, topic: str) -> str:
        """Two topics whose names have the same key cannot exist together."""
        return topic

    def namespace(self, run_tag: int, prefix: str = "") -> str:
        """Return the namespace of a run's topics; empty if the system has none. ``prefix`` is the
        one given to `address`.
        """
        return ""

    def address(self, topic: str, run_tag: int, prefix: str = "") -> str:
        """Return the name by which clients address a topic.

        Args:
            prefix: on a cluster that others use too, what the names of ours begin with; empty on
                our own.
        """
        return f"{prefix}-{run_tag:08x}-{topic}" if prefix else topic

    def log_names(self, address: str, partition: int, partitions: int) -> tuple[str, ...]:
        """Return the names of a topic's partition in logs. ``address`` is the topic's name for
        clients."""
        return (address,)

    def request(self, port: str, ballast: int = 0) -> Request | None:
        """A request that whoever listens on a port answers at once; None = there is none.

        Args:
            port: its name in the compose file.
            ballast: bytes to make the request longer by, where that can be done.
        """
        return None
