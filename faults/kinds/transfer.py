"""transfer: a bundle goes to a broker of one's choice; an unload alone often ends where it began."""

from __future__ import annotations

import random
from typing import Any

from pydantic import Field

from faults.kit.bundles import NAMESPACE_URL, ServiceUnit, bundle_rule, choose_bundle, parse_unit
from faults.kit.errors import NotNow, StepProblem
from faults.kit.injection import FaultKind
from faults.kit.params import Params, Shape, names
from faults.kit.reload import Reload
from faults.kit.site import Site
from harness.protocols.cluster import HasTransfers, Proof


class TransferParams(Params):
    target: str = Field("random", description="`bundle-of:TOPIC`, `bundle:RANGE` or `random`")
    to: str = Field("other", description="a broker, or `other`: any but the owner")


class Transferred(Reload):
    """One bundle, unloaded with a wanted owner."""

    def __init__(self, site: Site, bundle: str, to: str) -> None:
        params = {"target": f"bundle:{bundle}", "to": to}
        super().__init__(site, [params["target"]], ServiceUnit("bundle", bundle).streams(site), params)
        self.bundle, self.to = bundle, to

    def apply(self) -> None:
        self.site.transfers.transfer_bundle(self.bundle, self.to)
        self.done = 1

    def proof(self) -> Proof:
        """Effective when a lookup finds another owner than before: brokers say "done" also when they did
        something else."""
        proof = super().proof()
        moved = self.moved()
        return Proof(
            bool(moved), proof.evidence, {**proof.details, "to": self.to, "arrived": self._arrived()}
        )

    def _arrived(self) -> bool:
        return bool(self.moved()) and all(after == self.to for _, after in self.moved().values())

    def sentence(self, moved: int) -> str:
        old, new = next(iter(self.moved().values()), [next(iter(self.owners_before.values()), None), None])
        if new is None:
            return f"asked for {self.to} as owner; {old} still owns it"
        return f"owner {old} -> {new}" + ("" if new == self.to else f", not {self.to} as asked")


class Transfer(FaultKind[TransferParams]):
    """Move a bundle, and the topics in it, to another broker."""

    kind = "transfer"
    abilities = (HasTransfers,)
    params = TransferParams

    def complete(self, params: TransferParams, shape: Shape) -> TransferParams:
        bundle_target(params.target, shape)
        brokers = [node for node in shape.nodes if "broker" in shape.roles.get(node, ("broker",))]
        if params.to != "other" and params.to not in brokers:
            raise StepProblem("to", f"no broker {params.to!r}. Allowed: {names(['other', *brokers])}")
        return params

    def target(self, params: TransferParams) -> str:
        return params.target

    def choices(self, params: TransferParams) -> list[str]:
        return [f"to {params.to}"]

    def commands(self, params: TransferParams, shape: Shape) -> list[str]:
        to = params.to if params.to != "other" else "{a broker that does not own it, chosen then}"
        return [f"PUT {NAMESPACE_URL}/{bundle_rule(params.target)}/unload?destinationBroker={to}"]

    def prepare(self, params: TransferParams, site: Site, draw: int) -> Transferred:
        rng = random.Random(draw)
        bundle = choose_bundle(params.target, site, rng)
        if not ServiceUnit("bundle", bundle).streams(site):
            raise NotNow(f"bundle {bundle} holds no topic of the run")
        owner = site.bundles.bundle_owners().get(bundle)
        others = [node for node in site.brokers if node != owner and node not in site.faulted()]
        if params.to == "other" and not others:
            raise NotNow("there is no other broker")
        to = rng.choice(others) if params.to == "other" else params.to
        if to == owner:
            raise NotNow(f"{to} owns bundle {bundle} already")
        return Transferred(site, bundle, to)


def bundle_target(text: str, shape: Shape) -> Any:
    """Check a target that must be a bundle.

    Raises:
        StepProblem: it is none.
    """
    unit = parse_unit(text, shape, extra=("random",))
    if unit is not None and unit.form != "bundle":
        raise StepProblem("target", f"must be random, bundle-of:TOPIC or bundle:RANGE, got {text!r}")
