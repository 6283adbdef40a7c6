"""Base of the faults on answers: a broker does what it is asked, and the client hears something
else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from pydantic import Field, model_validator

from faults.kit.cluster_view import ClusterView, ability_of
from faults.kit.errors import StepProblem
from faults.kit.network import Impaired, NetworkFault, is_of_clients
from faults.kit.params import Inventory
from faults.kit.requests import RequestParams, drawn_requests, requests_refusal
from faults.kit.targets import parse
from harness.contracts.plan import FaultStep
from harness.errors import did_you_mean
from harness.protocols.cluster import Cluster, HasPlacement, Proof
from harness.protocols.network import (
    ANSWERS,
    AUDIT,
    CLIENT_DETOURS,
    CLIENT_ROLES,
    AnswerChange,
    Answered,
    ChangesAnswers,
    Flow,
    Impairment,
)
from harness.protocols.nodes import Killable


class AnswerParams(RequestParams):
    """Keys of a fault on answers: which requests are met."""

    nth: int = Field(
        0,
        ge=0,
        le=1_000_000_000,
        description="only the request of this number is met, counted from the begin of the fault; "
        "0: `share` says which",
    )
    first_of_each_connection: bool = Field(
        False, description="only the first of these requests on each connection is met"
    )

    after: str = Field(
        "",
        description="only the first of these requests on a connection after a request of this kind "
        "is met, of the same client: `InitProducerId`",
    )

    @model_validator(mode="after")
    def _one_choice(self) -> AnswerParams:
        chosen = [
            name
            for name, is_set in (
                ("share", self.share < 1),
                ("nth", self.nth),
                ("first_of_each_connection", self.first_of_each_connection),
                ("after", self.after),
            )
            if is_set
        ]
        if len(chosen) > 1:
            raise ValueError(f"{' and '.join(chosen)} exclude each other: keep one of them")
        return self

    @property
    def which(self) -> str:
        """Which requests are met, in words."""
        kinds = "/".join(self.requests)
        if self.nth:
            return f"{kinds} request number {self.nth}"
        if self.first_of_each_connection:
            return f"the first {kinds} request of each connection"
        if self.after:
            return f"the first {kinds} request after each {self.after} request of a client"
        return f"{self.share:.0%} of {kinds} requests"


P = TypeVar("P", bound=AnswerParams)


class ChangedAnswers(Impaired):
    """Connections on which some answers are not the broker's. The proxy counts these; a request of
    the harness does not show them."""

    params: AnswerParams
    silences = False
    _found = Answered()

    def shows_effect(self, name: str, took_s: float | None) -> bool:
        return False

    def proof(self) -> Proof:
        """Effective when an answer was changed."""
        found = self.view.ability(ChangesAnswers).answered(self.name)
        if found.seen:  # nothing is counted any more once it is healed
            self._found = found
        found, kinds = self._found, ", ".join(self.params.requests)
        said = f"{found.met} of {found.seen} {kinds} requests met" if found.seen else ""
        if found.unfit:
            said += f"; {found.unfit} answers stayed as they are"
        if found.described:
            said += f"; the first at {found.described[0]}"
        change = self.impairment.answer
        is_false = bool(change and change.act == "error" and found.met)
        details = {
            "answers": found.met,
            "held": found.met if change and change.before else 0,
            "seen": found.seen,
            "met": list(found.described),
            "false_errors": is_false,
            "permits": self._permits(change) if change and found.met else "",
        }
        where = ", ".join(self.targets)
        return Proof(bool(found.met), f"{where}: {said or f'no {kinds} request was seen'}", details)

    def _permits(self, change: AnswerChange) -> str:
        if change.act == "flip":  # a client that was told to check nothing passes it on
            return "damage" if "Fetch" in self.params.requests else ""
        found = self.view.ability(ChangesAnswers)
        if change.act == "drop" and not change.close:
            permitted = found.dropped_answer_permits()
        else:
            permitted = {**found.closings(), **found.answer_errors()}.get(change.error, "")
        if not permitted and (change.instead or change.before) and not change.close:
            skipped = found.skipped_permits()
            permitted = next(
                (skipped[kind] for kind in self.params.requests if kind in skipped), ""
            )
        return permitted


class AnswerFault(NetworkFault[P], Generic[P]):
    """Base of the kinds that change answers on their way to clients."""

    silences: ClassVar[bool] = False
    how = "answer"
    abilities = (ChangesAnswers, Killable, HasPlacement)
    needs = frozenset({ANSWERS, CLIENT_DETOURS, CLIENT_ROLES})

    def needs_for(self, params: P) -> frozenset[str]:
        """With roles, the readers of the log have wires of their own."""
        return super().needs_for(params) | {ANSWERS, CLIENT_ROLES}

    def drawn_from(self, inventory: Inventory) -> Sequence[FaultStep]:
        return drawn_requests(self, inventory)

    def complete(self, params: P, inventory: Inventory) -> P:
        if not is_of_clients(params.link):
            raise StepProblem("link", f"must be about clients, is {params.link}")
        self._check_role(params, inventory)
        parse(params.target, inventory)
        return params

    def refusal(self, params: P, cluster: Cluster) -> str:
        found = ability_of(cluster, ChangesAnswers)
        if not found.answer_errors():
            return f"fault: answers of {cluster.system} cannot be changed"
        change = self.change(params)
        if change.act not in found.answer_acts():
            return f"fault: {self.kind} means nothing for answers of {cluster.system}"
        if change.before and "before" not in found.answer_acts():
            return f"answered: before means nothing for answers of {cluster.system}"
        if reason := requests_refusal(params, found.answer_kinds(), cluster, ends_tls=True):
            return reason
        if reason := self._unanswered(params, change, found):
            return reason
        if params.after and params.after not in found.answer_kinds():
            close = did_you_mean(params.after, found.answer_kinds(), label="allowed")
            return f"after: no request {params.after!r} of {cluster.system}; {close}"
        return super().refusal(params, cluster)

    def _unanswered(self, params: P, change: AnswerChange, found: ChangesAnswers) -> str:
        """Why no answer to these requests can be changed so; empty when some can."""
        closes = change.act == "error" and change.instead and change.error in found.closings()
        kinds = found.answered_kinds(change.error)
        lacking = [name for name in params.requests if name not in kinds]
        if not lacking or closes or change.act == "detach":  # says it without being asked
            return ""
        if lacking[0] not in found.answered_kinds():
            return f"requests: {lacking[0]} has no answer; allowed: {', '.join(kinds)}"
        allowed = f"allowed in the answer to {', '.join(kinds)}"
        return f"error: the answer to {lacking[0]} cannot say {change.error!r}; {allowed}"

    def impaired(
        self, view: ClusterView, targets: tuple[str, ...], params: P, flows: Sequence[Flow]
    ) -> ChangedAnswers:
        # Answers to readers of the log are the evidence of a run.
        flows = [flow for flow in flows if flow.wire.source != AUDIT]
        impairment = Impairment(
            self.how,
            delay_s=self.delay_s(params),
            requests=params.requests,
            share=params.share,
            number=params.nth,
            first_of_each_connection=params.first_of_each_connection,
            after=params.after,
            answer=self.change(params),
        )
        return ChangedAnswers(view, targets, params, flows, impairment)

    def change(self, params: P) -> AnswerChange:
        """What becomes of an answer."""
        raise NotImplementedError

    def delay_s(self, params: P) -> float:
        """How long it is delayed. Default: not at all."""
        return 0.0
