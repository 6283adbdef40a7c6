"""Base of the kinds that hit several nodes at one moment: named, or a target and others of its
kind."""

from __future__ import annotations

import random
from abc import abstractmethod
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.injection import Injection
from faults.kit.node_loss import NodeFault
from faults.kit.params import Inventory, NodeParams
from faults.kit.targets import parse, resolve, target_text


class SeveralNodesParams(NodeParams):
    """Keys of a fault on some nodes at once."""

    nodes: Annotated[int, Field(ge=1)] | Literal["all"] = Field(
        1,
        description=(
            "number of nodes that are affected at the same moment: the target and others of its "
            "role, or `all` of them"
        ),
    )


S = TypeVar("S", bound=SeveralNodesParams)


class SeveralNodesFault(NodeFault[S], Generic[S]):
    """Base of those kinds."""

    def who(self, params: S, inventory: Inventory) -> str:
        """The nodes, for `commands`."""
        text = target_text(params.target, inventory)
        if params.nodes == "all":
            return f"all nodes of the kind of {text}"
        return text if params.nodes == 1 else f"{text}, {params.nodes} in all"

    def prepare(self, params: S, view: ClusterView, draw: int) -> Injection:
        targets = resolve(parse(params.target, view.inventory), view, draw)
        targets = _with_others(targets, params.nodes, view, random.Random(draw))
        chosen = {"target": ", ".join(targets), "nodes": len(targets)}
        return self.seeded(view, targets, params.model_copy(update=chosen), draw)

    @abstractmethod
    def seeded(
        self, view: ClusterView, targets: tuple[str, ...], params: S, seed: int
    ) -> Injection:
        """Make the injection; see `injection`. ``seed`` decides what else is drawn."""

    def injection(self, view: ClusterView, targets: tuple[str, ...], params: S) -> Injection:
        return self.seeded(view, targets, params, 0)


def _with_others(
    targets: tuple[str, ...], count: int | str, view: ClusterView, rng: random.Random
) -> tuple[str, ...]:
    """The targets, and others of the kind of the first until there are so many."""
    others = [node for node in view.alike(targets[0]) if node not in targets]
    wanted = len(others) if count == "all" else min(len(others), int(count) - len(targets))
    return (*targets, *sorted(rng.sample(others, max(0, wanted))))
