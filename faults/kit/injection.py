"""Base classes: a kind of fault, and the injection that it hands to the engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from faults.kit.cluster_view import ClusterView, first_paragraph
from faults.kit.params import Inventory, Params
from harness.contracts.ledger import LedgerEntry
from harness.contracts.plan import FaultStep
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import Cluster, Proof

P = TypeVar("P", bound=Params)


class Injection(ABC):
    """A fault on resolved targets. The engine calls, in this order and each from one thread:

    ``objection`` · ``ledger_entry`` · ``apply`` · ``proof`` (again and again, during ``apply`` and
    after it) · ``heal`` (perhaps more than once) · ``missing`` until it is empty.

    Attributes:
        targets: nodes, or streams for faults on leadership.
        away: the nodes that cannot serve while it is applied; they are claimed from ``apply`` until
            healed.
        held: names of other things that no second fault may change until this one is healed.
        params: the step's keys with every choice made, so that a replay does the same.
        looks_first: its heal, which may take back what the proof sees, waits until a look that
            began when its time was over has ended. Else it remembers, and is healed to the moment.
        looks_last: its proof is asked once more when it was healed: what it did until then counts.
        lasts: it stays until healed; else ``apply`` is all there is.
    """

    lasts: ClassVar[bool] = True
    looks_first: bool = True
    looks_last: ClassVar[bool] = False
    away: Sequence[str] = ()
    held: Sequence[str] = ()

    def __init__(self, view: ClusterView, targets: Sequence[str], params: Params) -> None:
        self.view = view
        self.targets = tuple(targets)
        self.params = params

    def objection(self) -> str:
        """Why it should not be applied now, given what was seen when it was prepared; empty = apply
        it."""
        return ""

    @abstractmethod
    def apply(self) -> None:
        """Do it; return when done.

        Raises:
            BrokerstormError: it could not be done; the engine heals nevertheless.
        """

    @abstractmethod
    def proof(self) -> Proof:
        """Return what the fault has changed so far. It looks once, and does not wait.

        Raises:
            BrokerstormError: the cluster does not answer; it is not proved then.
        """

    @abstractmethod
    def heal(self) -> None:
        """Undo, without asking the cluster's admin anything. Idempotent.

        Raises:
            BrokerstormError: it could not be undone.
        """

    @abstractmethod
    def is_undone(self) -> bool:
        """Nothing of it is left on this machine (the process runs again), whatever the cluster
        says."""

    @abstractmethod
    def missing(self) -> str:
        """Return what the cluster lacks to be whole again; empty if it lacks nothing.

        Raises:
            BrokerstormError: the cluster does not answer; it is not whole then.
        """

    @abstractmethod
    def confirmed_acks(self) -> ConfirmedAcks:
        """Return what can happen to acknowledgements that a broker had confirmed, as far as it is
        known now.

        Pulsar confirms before it writes: a cursor is written at a limited rate and when its topic
        is closed (managedLedgerDefaultMarkDeleteRateLimit,
        managedLedgerCursorPositionFlushSeconds).

        - ``kept``: no broker ends, or it closes its topics first. A message that comes again after
          its confirmed acknowledgement is then the broker's fault.
        - ``at-risk``: a broker ended, or another took over from it, and it had no time to close its
          topics.
        - ``unknown``: that may have happened, and was not seen.

        Called before `apply` and again when it was healed; the later answer counts.
        """

    def ledger_entry(self) -> LedgerEntry:
        """Return the entry that a later process needs to undo the fault."""
        return LedgerEntry()


class Instant(Injection):
    """Something that happens once. Nothing stays applied: what it leaves is as good as what was
    before."""

    lasts = False

    def heal(self) -> None:
        """Nothing to undo."""

    def is_undone(self) -> bool:
        return True


class FaultKind(ABC, Generic[P]):
    """One kind of fault: a stateless class whose docstring's first line is what `list faults`
    shows."""

    kind: ClassVar[str]
    abilities: ClassVar[tuple[type, ...]]
    #: What the cluster must be started with (`harness.clusters.cluster.open_cluster`).
    needs: ClassVar[frozenset[str]] = frozenset()
    #: It takes nodes away, or may do so: the draws of a mix keep two of those apart.
    takes_nodes: ClassVar[bool] = False
    params: ClassVar[type[Params]]
    #: Keys that `target` and `choices` say.
    said: ClassVar[frozenset[str]] = frozenset({"target", "topic", "partitions", "moves", "to"})
    #: Before the time that it lasts, in `sentence`.
    lasts_word: ClassVar[str] = "for"
    #: Values for keys without a default, for steps that are drawn at random. Empty: such a step is
    #: never drawn.
    samples: ClassVar[Sequence[FaultStep]] = ({},)

    @classmethod
    def doc(cls) -> str:
        """The first paragraph of its docstring, as one line."""
        return first_paragraph(cls)

    def drawn_from(self, inventory: Inventory) -> Sequence[FaultStep]:
        """Return the samples for a plan, of which a step that is drawn at random has one; the
        first ones are drawn most often."""
        return self.samples

    def complete(self, params: P, inventory: Inventory) -> P:
        """Check names against the plan and fill in what it decides (the only topic, ...).

        Raises:
            StepProblem: the key and what is wrong with it.
        """
        return params

    def target(self, params: P) -> str:
        """The target as text, for tables and charts: the key ``target``; all where there is no such
        key."""
        said: str = getattr(params, "target", "all")
        return said

    def part(self, params: P, inventory: Inventory) -> str:
        """Return what the target was to the cluster when it was chosen, for the proof; empty if
        nothing is stated.
        """
        return ""

    def choices(self, params: P) -> list[str]:
        """Return the choices of a step besides its target and its time, for `sentence`."""
        return []

    def sentence(self, params: P, for_s: float | None) -> str:
        """A firing for people: ``latency random for 5 s (link clients, delay 100 ms)``. ``for_s``:
        how long it stays applied."""
        lasts = [f"{self.lasts_word} {for_s:g} s"] if for_s else []
        more = params.in_words({*self.said, "for_", "down"})
        rest = [f"({', '.join(more)})"] if more else []
        return " ".join([self.kind, self.target(params), *self.choices(params), *lasts, *rest])

    def lasts_s(self, params: P) -> float | None:
        """Seconds from applied to heal: the key ``for``; None when it ends by itself."""
        for_s: float | None = getattr(params, "for_", None)
        return for_s

    def ends_within_s(self, params: P) -> float | None:
        """Return the longest time from injected to the beginning of its heal; None when unknown.
        Faults that end by themselves say how long they last."""
        return self.lasts_s(params) or 0.0

    @abstractmethod
    def commands(self, params: P, inventory: Inventory) -> list[str]:
        """Return the commands that would be sent, in order, for `plan`. Nothing is asked or
        changed.

        A target that is decided when the fault fires is named by its rule
        (`faults.kit.targets.target_text`).
        """

    def needs_for(self, params: P) -> frozenset[str]:
        """Return what the cluster must be started with for these parameters."""
        return self.needs

    def abilities_for(self, params: P) -> tuple[type, ...]:
        """Return what the cluster must be able to do for these parameters."""
        return self.abilities

    def refusal(self, params: P, cluster: Cluster) -> str:
        """Why a cluster that has the abilities cannot do it nevertheless; empty when it can. It
        begins with the key and a colon where the value of one is the reason."""
        return ""

    @abstractmethod
    def prepare(self, params: P, view: ClusterView, draw: int) -> Injection:
        """Choose targets as the cluster is now, changing nothing.

        Args:
            draw: seed of every choice.

        Raises:
            FiringSkipped: there is no target to hit.
            BrokerstormError: the cluster does not answer.
        """
