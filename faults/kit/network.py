"""Base of the network faults: the connections they are about, the proof of effect and of its
end."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar, Final, Generic, Literal, TypeVar, get_args

from pydantic import Field, field_validator

from faults.kit.clients import is_named
from faults.kit.cluster_view import ClusterView, find_ability
from faults.kit.errors import FiringSkipped, StepProblem
from faults.kit.node_loss import NodeFault, NodeLoss, changes_text
from faults.kit.params import Inventory, NodeParams
from faults.kit.round_trips import ANSWER_S, measure
from faults.kit.targets import parse, target_text
from harness.contracts.ledger import LedgerEntry
from harness.durations import Seconds
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import Cluster, HasPlacement, Proof
from harness.protocols.network import (
    CLIENT_DETOURS,
    CLIENT_ROLES,
    CONSUMERS,
    INSTANCE,
    PEER_DETOURS,
    PRODUCERS,
    Flow,
    HasDetours,
    How,
    Impairment,
    Wire,
    is_client_source,
)
from harness.protocols.nodes import Killable

#: The links of all instances of applications, of those of one application or of one instance.
_APPLICATIONS, _APPLICATION = "applications", "application:"
_OF_APPLICATION: Final = r"^application:[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
_Named = Literal["clients", "producers", "consumers", "applications", "peers", "all"]
_LINKS: Final = get_args(_Named)
Link = _Named | Annotated[str, Field(pattern=_OF_APPLICATION)]
Way = Literal["both", "in", "out"]
_NEEDS: Final[dict[str, frozenset[str]]] = {
    "clients": frozenset({CLIENT_DETOURS}),
    PRODUCERS: frozenset({CLIENT_DETOURS, CLIENT_ROLES}),
    CONSUMERS: frozenset({CLIENT_DETOURS, CLIENT_ROLES}),
    _APPLICATIONS: frozenset({CLIENT_DETOURS, CLIENT_ROLES}),
    "peers": frozenset({PEER_DETOURS}),
    "all": frozenset({CLIENT_DETOURS, PEER_DETOURS}),
}
#: Link -> what a process says that it is (`harness.owners.ROLE`) whose connections it is about.
_ROLE_OF: Final = {PRODUCERS: "producer", CONSUMERS: "consumer", _APPLICATIONS: "application"}
_WORDS: Final[dict[str, str]] = {"both": "to and from", "in": "to", "out": "from"}


class NetworkParams(NodeParams):
    """Keys of a fault on the connections of nodes."""

    link: Link = Field(
        "clients",
        description=(
            "which connections of the node are affected: of `clients`, of `producers`, `consumers` "
            "or `applications` only, of one application (`application:billing`) or instance "
            "(`application:billing-2`), of `peers` (other nodes), or `all`"
        ),
    )
    for_: Seconds = Field(5.0, alias="for", gt=0, description="the fault is undone after this time")

    @field_validator("link", mode="before")
    @classmethod
    def _is_link(cls, link: object) -> object:
        if isinstance(link, str) and link not in _LINKS and not re.search(_OF_APPLICATION, link):
            raise ValueError(f"must be {', '.join(_LINKS)} or {_APPLICATION}NAME")
        return link


N = TypeVar("N", bound=NetworkParams)


def flows_of(wires: Iterable[Wire], nodes: Sequence[str], link: str, way: str) -> list[Flow]:
    """Every flow between one of the nodes and the link's, in one direction or both, as the node
    sees them: ``in`` are bytes towards the node, whoever opened the connection."""
    found: list[Flow] = []
    for wire in wires:
        if not _is_of(wire.source, link) or not {wire.source, wire.target} & set(nodes):
            continue
        for flow in (Flow(wire, "target"), Flow(wire, "source")):
            if (way in ("both", "in") and flow.receiver in nodes) or (
                way in ("both", "out") and flow.sender in nodes
            ):
                found.append(flow)
    return found


def _is_of(source: str, link: str) -> bool:
    """Whether the wires of a source belong to a link."""
    if link.startswith(_APPLICATION):
        return source.startswith(INSTANCE) and is_named(source, _instances_of(link))
    if link == _APPLICATIONS:
        return source.startswith(INSTANCE)
    side = "clients" if is_client_source(source) else "peers"
    return link in (side, source, "all")


def _instances_of(link: str) -> str:
    """The application or instance that a link names, as the names of instances have it."""
    return link.removeprefix(_APPLICATION).replace(".", "_")


def is_of_clients(link: str) -> bool:
    """Whether a link is about connections of clients only."""
    return link not in ("peers", "all")


def _is_of_some(link: str) -> bool:
    """Whether a link is about some clients only, by what their processes are."""
    return link in _ROLE_OF or link.startswith(_APPLICATION)


def wires_of(flows: Iterable[Flow]) -> list[Wire]:
    """The wires of flows, each once."""
    return list({str(flow.wire): flow.wire for flow in flows}.values())


class Impaired(NodeLoss):
    """Flows with an impairment. Proved by requests of our own on their wires, before and while it
    lasts; what the cluster shows of it is reported as well.

    Sub-classes say when a measure shows the effect, and when that it is gone.

    Attributes:
        silences: whether no client gets an answer while it lasts: slow is not gone.
    """

    params: NetworkParams
    silences: ClassVar[bool] = True

    def __init__(
        self,
        view: ClusterView,
        targets: Sequence[str],
        params: NetworkParams,
        flows: Sequence[Flow],
        impairment: Impairment,
    ) -> None:
        super().__init__(view, targets, params)
        if not flows:
            raise FiringSkipped(f"{', '.join(targets)} has no connections of {params.link}")
        # Clients that cannot reach a node take no copy of anything away.
        among_nodes = any(not is_client_source(flow.wire.source) for flow in flows)
        self.away = self.targets if self.silences and among_nodes else ()
        self.looks_first = not self.away
        self.flows, self.impairment = tuple(flows), impairment
        self.name = f"fault-{uuid.uuid4().hex[:8]}"
        self.wires = wires_of(flows)
        self.baseline = self.look()
        self._worst = ""
        self._applied = False
        #: Whether a client of the role that the link names had a connection; True where it names
        #: none.
        self._role_was_there = not _is_of_some(params.link)

    @property
    def ballast(self) -> int:
        """Bytes to make the requests longer by."""
        return 0

    @property
    def timeout_s(self) -> float:
        """How long to wait for an answer."""
        return ANSWER_S

    def look(self) -> dict[str, float | None]:
        """A request on each wire, now."""
        ask, connect = self.view.cluster.request, self.view.ability(HasDetours).connect
        return measure(
            ask, self.wires, timeout_s=self.timeout_s, ballast=self.ballast, connect=connect
        )

    def objection(self) -> str:
        """Return the objection against a node that goes away, where copies are cut off."""
        if silent := sorted(name for name, took in self.baseline.items() if took is None):
            return f"no answer from {silent[0]} before the fault was applied"
        return super().objection() if self.away else ""

    def apply(self) -> None:
        self.view.ability(HasDetours).impair(self.name, self.flows, self.impairment)
        self._applied = True

    def shows_effect(self, name: str, took_s: float | None) -> bool:
        """Whether a measure on a wire shows the impairment. Default: no answer."""
        return took_s is None

    def sentence(self, affected: dict[str, float | None]) -> str:
        """Return what was measured, as text. By default: requests without an answer."""
        return f"no answer on {len(affected)} of {len(self.wires)} wires ({next(iter(affected))})"

    def proof(self) -> Proof:
        """Effective when a request on a wire that worked before shows it, or, where nothing can be
        measured, when the cluster does."""
        if not self._was_role_there():
            return Proof(
                False,
                f"{', '.join(self.targets)}: no connection of {self.params.link} was seen",
                {},
            )
        if self._applied and not self._worst:
            now = self.look()
            affected = {name: took for name, took in now.items() if self.shows_effect(name, took)}
            # Else it was healed meanwhile, or the machine stood still.
            if affected and self.view.ability(HasDetours).is_impaired(self.name):
                self._worst = self.sentence(affected)
        if self.away:
            self._note_change(self.view.snapshot())
        changed = changes_text(self._changed) if self._changed else ""
        texts = (self._worst, changed, self._instances() if self._worst else "")
        evidence = "; ".join(text for text in texts if text)
        who = ", ".join(self.targets)
        measured = bool(self._worst) or (not self.baseline and bool(changed))
        return Proof(
            measured, f"{who}: {evidence or 'no effect was observed'}", dict(self._changed)
        )

    def _instances(self) -> str:
        """The instances of applications whose connections it hits, and those that started while it
        lasts, whose connections it does not hit; empty where the link is not about applications."""
        hit = {wire.source for wire in self.wires if wire.source.startswith(INSTANCE)}
        if not hit or not _is_of_some(self.params.link):
            return ""
        now = {
            wire.source
            for wire in self.view.ability(HasDetours).wires()
            if _is_of(wire.source, self.params.link)
        }
        later = ", ".join(sorted(now - hit))
        return f"hits {', '.join(sorted(hit))}" + (f"; not {later}, started later" if later else "")

    def _was_role_there(self) -> bool:
        """Whether the impairment met a connection of producers, or of consumers, where it is about
        these."""
        if self._applied and not self._role_was_there:
            self._role_was_there = bool(self.view.ability(HasDetours).found_by(self.wires))
        return self._role_was_there

    def process_evidence(self) -> str:
        return self._worst

    def heal(self) -> None:
        self.view.ability(HasDetours).repair(self.name)

    def is_undone(self) -> bool:
        return not self.view.ability(HasDetours).is_impaired(self.name)

    def missing(self) -> str:
        """Toxics gone, requests as before, and what a node lacks that was away."""
        if not self.is_undone():
            return f"{self.name} is still applied to the network"
        still = [
            name
            for name, took in self.look().items()
            if took is None or self.shows_effect(name, took)
        ]
        if still:
            return f"{still[0]}: requests are not back to normal"
        return super().missing()

    def confirmed_acks(self) -> ConfirmedAcks:
        """Brokers that reach each other, their bookies and the metadata store continue as before,
        whatever their clients see. One that does not may be replaced, and a slow one too."""
        only_clients = all(is_client_source(flow.wire.source) for flow in self.flows)
        return "kept" if only_clients else super().confirmed_acks()

    def ledger_entry(self) -> LedgerEntry:
        return LedgerEntry(impaired=(self.name,))


class NetworkFault(NodeFault[N], Generic[N]):
    """Base of the kinds with connections of nodes as target.

    Attributes:
        how: what its impairments do.
    """

    how: ClassVar[How]
    needs = _NEEDS["all"]
    abilities = (HasDetours, Killable, HasPlacement)

    def needs_for(self, params: N) -> frozenset[str]:
        link = params.link
        return _NEEDS[_APPLICATIONS if link.startswith(_APPLICATION) else link]

    def complete(self, params: N, inventory: Inventory) -> N:
        self._check_role(params, inventory)
        if is_of_clients(params.link):
            parse(params.target, inventory)
            return params
        return super().complete(params, inventory)

    def _check_role(self, params: N, inventory: Inventory) -> None:
        """Refuse a link whose clients the scenario does not have."""
        clients, link = inventory.client_roles, params.link
        role = _ROLE_OF.get(link)
        if role and clients and role not in clients.values():
            only = "an application" if role == "application" else f"only a {role}"
            raise StepProblem("link", f"must not be {link}: no process of this scenario is {only}")
        if not clients or not link.startswith(_APPLICATION):
            return
        instances = [name for name, role in clients.items() if role == "application"]
        if not any(is_named(name, _instances_of(link)) for name in instances):
            known = ", ".join(name.removeprefix(INSTANCE) for name in instances) or "none"
            raise StepProblem("link", f"{link} is not an application here; instances: {known}")

    def refusal(self, params: N, cluster: Cluster) -> str:
        """Why this cluster cannot be cut there; empty when it can."""
        found = find_ability(cluster, HasDetours)
        if found is None:
            return ""  # that an ability is missing is reported elsewhere
        if reason := found.why_not(params.link, self.how):
            return reason
        sources = {wire.source for wire in found.wires()}
        have = {"clients" if is_client_source(source) else "peers" for source in sources} | sources
        needed = ["clients", "peers"] if params.link == "all" else [params.link]
        if params.link == _APPLICATIONS or params.link.startswith(_APPLICATION):
            needed = [PRODUCERS]  # instances get theirs when they start, where roles are told apart
        lacking = [side for side in needed if side not in have]
        return f"it was not started with detours for {' and '.join(lacking)}" if lacking else ""

    def commands(self, params: N, inventory: Inventory) -> list[str]:
        way = _WORDS[getattr(params, "way", "both")]
        words = {"peers": "the other nodes", "all": "clients and the other nodes"}
        who = words.get(params.link, params.link)
        where = f"{way} {target_text(params.target, inventory)}, of connections with {who}"
        return [
            f"{self.tool(params)}: {self.action(params)} {where}",
            f"after {params.for_:g} s: remove it",
        ]

    def tool(self, params: N) -> str:
        """The tool that does it, for `plan`."""
        return "toxiproxy"

    def action(self, params: N) -> str:
        """The action on bytes, for `plan`."""
        raise NotImplementedError

    def injection(self, view: ClusterView, targets: tuple[str, ...], params: N) -> NodeLoss:
        # a node that has not joined, or has left, does not answer
        wires = [
            wire
            for wire in view.ability(HasDetours).wires()
            if wire.target in view.nodes
            and (wire.source in view.nodes or is_client_source(wire.source))
        ]
        flows = flows_of(wires, targets, params.link, getattr(params, "way", "both"))
        return self.impaired(view, targets, params, flows)

    def impaired(
        self, view: ClusterView, targets: tuple[str, ...], params: N, flows: Sequence[Flow]
    ) -> Impaired:
        """The injection on these flows. Default: the same on each, until it is healed."""
        return Impaired(view, targets, params, flows, Impairment(self.how))
