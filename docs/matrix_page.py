"""docs/reference/matrix.md: which fault works where and what each client can do, asked of the
code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_type_hints

import faults
from docs.markdown import MADE
from faults.kinds import KINDS
from faults.kit.injection import FaultKind
from harness.clusters import describe_cluster, spec_of
from harness.clusters.drivers.driven import KillableNodes, PausableNodes, StoppableNodes
from harness.errors import EnvironmentNotReady, ScenarioError, UsageError
from harness.protocols.cluster import TopicSettings
from harness.scenario.checks import SUPPORTED
from harness.systems import SYSTEMS
from harness.workers import is_ours, known_workers
from harness.workers.spec import WorkerSpec

_RUNTIMES = ("process", "docker")
#: Keys of a producer or consumer, with values of their own by client.
_KEYS = ("calls", "results", "receive", "settle", "threads")
_DRIVEN = (KillableNodes, StoppableNodes, PausableNodes)

_HEAD = f"""# What works where

{MADE}

## Faults by system and cluster

*yes* means that the fault works on every topology, as processes and in containers; otherwise the cell
says where it works. *Own* says how it works on a [cluster of your own](../howto/your-own-cluster.md):
by its admin protocol, by a [driver](../howto/your-own-cluster.md#faults-on-a-cluster-of-your-own), or
not at all. *Started with* names what `up --needs` must state for a cluster that stays up; a run
prepares this by itself. Some faults need something of the machine (root, iptables, control groups, a
Docker engine): see [network](../howto/cut-the-network.md#requirements),
[resources](../explanation/resource-faults.md#what-it-needs) and
[power](../explanation/power-loss.md#what-it-needs). Faults on producers and consumers work on every
cluster. [Faults](faults.md) lists the keys of each kind.
"""
_CLIENTS = """
## Clients

Names are for `client:` in a scenario, values for its keys ([scenario
files](scenario.md#loadproducersname)); *proof* is how it can log in to a secure cluster. *Lacks*: sizes,
fillings, headers, keys, rates, turns or transactions that others support and it does not. *Dies*: the roles
in which it reports a fatal error. `brokerstorm list workers` describes each client.
"""


def matrix_page() -> str:
    """The whole page."""
    return (
        "\n".join([*_HEAD.splitlines(), "", *_faults(), *_CLIENTS.splitlines(), "", *_clients()])
        + "\n"
    )


# ----- faults -------------------------------------------------------------------------------------


def _faults() -> Iterator[str]:
    yield f"| fault | {' | '.join(SYSTEMS)} | own | with `--secure` | started with |"
    yield "|---|" + "---|" * (len(SYSTEMS) + 3)
    for kind in KINDS.values():
        cells = [_cell(_where(name, kind)) for name in SYSTEMS]
        places = [(name, each) for name in SYSTEMS for each in _topologies(name)]
        secure = any(_can(name, each, "process", kind, secure=True) for name, each in places)
        needs = ", ".join(f"`{need}`" for need in sorted(kind.needs))
        cells += [_own(kind), "yes" if secure else "no", needs]
        yield f"| `{kind.kind}` | {' | '.join(cells)} |"


def _where(system: str, kind: FaultKind[Any]) -> dict[str, set[str]]:
    """Topology -> runtimes on which a kind works."""
    return {
        each: {one for one in _RUNTIMES if _can(system, each, one, kind)}
        for each in _topologies(system)
    }


def _topologies(system: str) -> tuple[str, ...]:
    return SYSTEMS[system].topologies or ("",)


def _can(
    system: str, topology: str, runtime: str, kind: FaultKind[Any], *, secure: bool = False
) -> bool:
    """Whether `plan` takes a step of the kind there, started with what it needs."""
    nodes = {node.name: tuple(node.roles) for node in spec_of(system, "", topology).nodes}
    # A replica can move elsewhere, and partitions can be added.
    topics = [TopicSettings("orders", SYSTEMS[system].partitions, 2, grows_to=99)]
    needs = frozenset(kind.needs)
    clients = {"producer-shop": "producer", "consumer-shop": "consumer"}
    applications = ["billing"] if SYSTEMS[system].runs_applications else []
    try:
        cluster = describe_cluster(
            system, topology=topology, runtime=runtime, needs=needs, secure=secure
        )
        step = {"fault": kind.kind, "at": 1, **_required(system, kind)}
        inventory = faults.inventory_of(
            topics=topics,
            nodes=nodes,
            client_roles={
                **clients,
                **{f"application-{name}-1": "application" for name in applications},
            },
            applications={name: [f"application-{name}-1"] for name in applications},
            output_endpoints=applications,
            system=system,
        )
        timeline = faults.compile([step], inventory, seed=1, load_s=60)
        faults.refuse_unsupported(timeline, cluster)
    except EnvironmentNotReady:
        return True  # this machine lacks something, not the cluster
    except (ScenarioError, UsageError):
        return False
    return True


def _required(system: str, kind: FaultKind[Any]) -> dict[str, Any]:
    """Keys without a default that `plan` would ask for."""
    about = SYSTEMS[system]
    error = next(iter(about.answer_errors), "none")
    requests = list(about.error_kinds.get(error, about.answered))[:1]
    known: dict[str, Any] = {
        "requests": requests,
        "error": error,
        "group": "billing",
        "config": {key: "2" for key in about.changeable[:1] or ["none"]},
        "to": about.version,
        "how": "drop",
    }
    fields = kind.params.model_fields
    if "says" in fields:
        says = next(iter(about.closings), "")
        return {"requests": list(about.closing_kinds)[:1] or requests, "says": says}
    required = {key: each for key, each in fields.items() if each.is_required()}
    return {
        key: 2 if required[key].annotation is int else value
        for key, value in known.items()
        if key in required
    }


def _cell(where: Mapping[str, set[str]]) -> str:
    if not any(where.values()):
        return "no"
    everywhere = set.intersection(*(found for found in where.values() if found))
    runtimes = "yes" if everywhere == set(_RUNTIMES) else ", ".join(sorted(everywhere))
    some = [topology for topology, found in where.items() if found]
    return runtimes if len(some) == len(where) else ", ".join(f"`{each}`" for each in some)


def _own(kind: FaultKind[Any]) -> str:
    """How it reaches a cluster that somebody else started."""
    if kind.needs:
        return "no"
    by_admin = by_driver = False
    for ability in kind.abilities:
        if any(_has(admin, ability) for name in SYSTEMS for admin in _external_admins(name)):
            by_admin = True
        elif any(_has(driven, ability) for driven in _DRIVEN):
            by_driver = True
        else:
            return "no"
    return "driver" if by_driver else "admin" if by_admin else "yes"


def _external_admins(system: str) -> list[type]:
    """The class of the admin there, and what it becomes with newer brokers."""
    external = SYSTEMS[system].external()
    if external is None:
        return []
    admin = get_type_hints(type(external).admin)["return"]
    return [admin, *admin.__subclasses__()]


def _has(cls: type, ability: type) -> bool:
    """Whether instances have all methods of a protocol."""
    return all(hasattr(cls, name) for name in vars(ability) if not name.startswith("_"))


# ----- clients ------------------------------------------------------------------------------------


def _anchor(heading: str) -> str:
    """Return the anchor of a heading: lower case, without dots."""
    return re.sub(r"[^a-z0-9_-]", "", heading.lower())


def _clients() -> Iterator[str]:
    yield f"| client | system | versions | roles | {' | '.join(_KEYS)} | proof | lacks | dies |"
    yield "|---" * (len(_KEYS) + 7) + "|"
    workers = {name: each for name, each in sorted(known_workers().items()) if is_ours(each)}
    ours = list(workers.values())
    for library, worker in workers.items():
        yield f"| [{library}](options.md#{_anchor(library)}) | {' | '.join(_client(worker, ours))} |"


def _client(worker: WorkerSpec, ours: Sequence[WorkerSpec]) -> Iterator[str]:
    yield ", ".join(worker.systems)
    yield re.sub(r", .*", "", worker.versions)
    yield ", ".join(worker.roles)
    for key in _KEYS:
        yield ", ".join(_able(worker, key))
    yield ", ".join([*(["TLS"] if worker.security.tls else []), *worker.security.auth])
    lacks = [
        f"{key}: {value}"
        for key in (
            "payload",
            "filling",
            "headers",
            "header_values",
            "key",
            "rate",
            "turns",
            "transactions",
        )
        for value in dict.fromkeys(value for other in ours for value in _able(other, key))
        if value not in _able(worker, key)
    ]
    yield ", ".join([*lacks, *(f"{key} before {first}" for key, first in worker.since.items())])
    yield ", ".join(worker.says_died)


def _able(worker: WorkerSpec, key: str) -> Sequence[str]:
    return {**SUPPORTED, **worker.supports}[key]
