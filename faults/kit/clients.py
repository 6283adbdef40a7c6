"""Base of the faults on client processes: which workers a target means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, Generic, TypeVar

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped, StepProblem
from faults.kit.injection import FaultKind
from faults.kit.params import Inventory, Params

NO_RUN: Final = "no run has clients that a fault could reach"
_ALL, _ONE = "client", "client:"
_WORKERS: Final = ("producer", "consumer", "pipeline", "application")


class ClientParams(Params):
    """Keys of a fault on client processes."""

    #: It signals them itself: they have to be on this machine.
    needs_pid: ClassVar[bool] = True

    target: str = Field(
        "client",
        description="`client` (every producer, consumer, member of a pipeline and instance of an "
        "application), `client:producer`, `client:consumer`, `client:pipeline`, `client:application`, or one "
        "by its name in the scenario, such as `client:shop`; `client:shop-2` is the second of several",
    )


C = TypeVar("C", bound=ClientParams)


class ClientFault(FaultKind[C], Generic[C]):
    """Base of the kinds with client processes as target."""

    abilities: ClassVar[tuple[type, ...]] = ()

    def complete(self, params: C, inventory: Inventory) -> C:
        if params.target != _ALL and not params.target.startswith((_ONE, *_WORKERS)):
            raise StepProblem(
                "target",
                f"must be client, client:producer, client:NAME or the like, got {params.target!r}",
            )
        return params


def refuse_clients(target: str, inventory: Inventory, but: Mapping[str, str]) -> None:
    """Raises: StepProblem: the target is not a client of the load, or one for which ``but`` has a
    reason."""
    chosen = [name for name in inventory.clients if is_target(target, name)]
    if inventory.clients and not chosen:
        known = ", ".join(inventory.clients)
        raise StepProblem("target", f"{target} is not a client of this load; clients: {known}")
    if why := next((why for name in chosen if (why := but.get(name))), ""):
        raise StepProblem("target", why)


def clients_of_run(target: str, view: ClusterView) -> Sequence[str]:
    """Names of the live clients that a target means.

    Raises:
        FiringSkipped: no such client is alive.
    """
    if view.lives is None:
        raise FiringSkipped(NO_RUN)
    found = matching_workers(target, view)
    if not found:
        raise FiringSkipped(f"no {target} runs; there are: {worker_names(view)}")
    return sorted(found)


def matching_workers(target: str, view: ClusterView) -> dict[str, int]:
    """Process ids of the live workers that a target means."""
    return {one: pid for one, pid in dict(view.clients()).items() if is_target(target, one)}


def is_client(target: str) -> bool:
    """Whether a target means clients, where it may mean nodes, too."""
    return target == _ALL or target.startswith(_ONE)


def is_target(target: str, client: str) -> bool:
    """Whether a target means a client of the plan."""
    return target == _ALL or is_named(client, target.removeprefix(_ONE))


def is_named(worker: str, name: str) -> bool:
    """Whether a worker is the named producer, consumer or pipeline, with its role
    (``producer-shop``) or without, one of several with that name (``shop-2``), or any of a role."""
    role, _, own = worker.partition("-")
    if name in (role, worker, own):
        return True
    several, _, number = worker.rpartition("-")
    return number.isdigit() and name in (several, several.partition("-")[2])


def worker_names(view: ClusterView) -> str:
    """Names of the live workers, for an error."""
    return ", ".join(sorted(dict(view.clients()))) or "none"
