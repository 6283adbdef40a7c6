"""transfer: a bundle goes to a broker of one's choice; an unload alone often ends where it
began."""

from __future__ import annotations

import random
from typing import Any

from pydantic import Field

from faults.kit.bundles import NAMESPACE_URL, ServiceUnit, bundle_rule, choose_bundle, parse_unit
from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped, StepProblem
from faults.kit.injection import FaultKind
from faults.kit.params import Inventory, Params, names
from faults.kit.reload import Reload
from harness.protocols.cluster import HasTransfers, Proof


class TransferParams(Params):
    target: str = Field("random", description="`bundle-of:TOPIC`, `bundle:RANGE` or `random`")
    to: str = Field("other", description="a broker, or `other` for any broker except the owner")


class Transferred(Reload):
    """One bundle, unloaded with a wanted owner."""

    def __init__(self, view: ClusterView, bundle: str, to: str) -> None:
        params = TransferParams(target=f"bundle:{bundle}", to=to)
        super().__init__(view, [params.target], ServiceUnit("bundle", bundle).streams(view), params)
        self.bundle, self.to = bundle, to

    def apply(self) -> None:
        self.view.ability(HasTransfers).transfer_bundle(self.bundle, self.to)
        self.done = 1

    def proof(self) -> Proof:
        """Effective when a lookup finds another owner than before: brokers say "done" also when
        they did something else."""
        proof = super().proof()
        moved = self.moved()
        return Proof(
            bool(moved),
            proof.evidence,
            {**proof.details, "to": self.to, "arrived": self._arrived()},
        )

    def _arrived(self) -> bool:
        return bool(self.moved()) and all(after == self.to for _, after in self.moved().values())

    def sentence(self, moved: int) -> str:
        old, new = next(
            iter(self.moved().values()), [next(iter(self.owners_before.values()), None), None]
        )
        if new is None:
            return f"asked for {self.to} as owner; {old} still owns it"
        return f"owner {old} -> {new}" + ("" if new == self.to else f", not {self.to} as asked")


class Transfer(FaultKind[TransferParams]):
    """Move a bundle, and the topics in it, to another broker."""

    kind = "transfer"
    abilities = (HasTransfers,)
    params = TransferParams

    def complete(self, params: TransferParams, inventory: Inventory) -> TransferParams:
        bundle_target(params.target, inventory)
        brokers = [
            node for node in inventory.nodes if "broker" in inventory.roles.get(node, ("broker",))
        ]
        if params.to != "other" and params.to not in brokers:
            raise StepProblem(
                "to", f"no broker {params.to!r}. Allowed: {names(['other', *brokers])}"
            )
        return params

    def choices(self, params: TransferParams) -> list[str]:
        return [f"to {params.to}"]

    def commands(self, params: TransferParams, inventory: Inventory) -> list[str]:
        to = params.to if params.to != "other" else "{a broker that does not own it, chosen then}"
        return [f"PUT {NAMESPACE_URL}/{bundle_rule(params.target)}/unload?destinationBroker={to}"]

    def prepare(self, params: TransferParams, view: ClusterView, draw: int) -> Transferred:
        rng = random.Random(draw)
        bundle = choose_bundle(params.target, view, rng)
        if not ServiceUnit("bundle", bundle).streams(view):
            raise FiringSkipped(f"bundle {bundle} holds no topic of the run")
        owner = view.bundles.bundle_owners().get(bundle)
        others = [node for node in view.brokers if node != owner and node not in view.faulted()]
        if params.to == "other" and not others:
            raise FiringSkipped("the cluster has no other broker")
        to = rng.choice(others) if params.to == "other" else params.to
        if to == owner:
            raise FiringSkipped(f"{to} owns bundle {bundle} already")
        return Transferred(view, bundle, to)


def bundle_target(text: str, inventory: Inventory) -> Any:
    """Check a target that must be a bundle.

    Raises:
        StepProblem: it is none.
    """
    unit = parse_unit(text, inventory, extra=("random",))
    if unit is not None and unit.form != "bundle":
        raise StepProblem(
            "target", f"must be random, bundle-of:TOPIC or bundle:RANGE, got {text!r}"
        )
