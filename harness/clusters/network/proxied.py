"""The detours of one cluster, at work: a proxy, hosts files, and what is impaired now.

Both runtimes use it: before the first node the proxy starts and hosts files are written, after the
last comes `down`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from harness.clusters.layout.compose import ClusterLayout, release_key
from harness.clusters.layout.detours import DetourMap, Route, wires_of_routes
from harness.clusters.layout.secret_files import folder_of
from harness.clusters.network import toxiproxy
from harness.clusters.nodes.node_process import NodeFolder
from harness.errors import BrokerstormError, EnvironmentNotReady, HealError, UsageError
from harness.protocols.network import (
    ANSWERS,
    CLIENT_DETOURS,
    CLIENT_ROLES,
    PEER_CUTS,
    PEER_DETOURS,
    REQUESTS,
    AnswerChange,
    Answered,
    Flow,
    How,
    Impairment,
    Stalled,
    Wire,
    is_client_source,
)
from harness.rundir import Document
from harness.systems import system_of

#: What a cluster can be started with.
NEEDS: Final = frozenset({CLIENT_DETOURS, CLIENT_ROLES, PEER_DETOURS, PEER_CUTS, REQUESTS, ANSWERS})
HOSTS_FILE: Final = "hosts"
#: As good as forever; toxiproxy counts milliseconds.
_TEN_DAYS_MS: Final = 864_000_000
#: Ahead of every other toxic of a route, from the first connection on: marks where requests begin.
_MARK_REQUESTS: Final = {"name": "mark-requests", "type": "requests", "stream": "upstream"}
_STREAMS: Final = {"target": "upstream", "source": "downstream"}


class ProtocolFacts:
    """The requests and answers of a system that a proxy knows: a part of `StallsRequests` and of
    `ChangesAnswers`.

    Args:
        system: its name.
    """

    def __init__(self, system: str) -> None:
        self._facts = system_of(system)

    def request_kinds(self) -> Sequence[str]:
        return tuple(self._facts.request_kinds)

    def answer_kinds(self) -> Sequence[str]:
        return tuple(self._facts.answered)

    def answered_kinds(self, error: str = "") -> Sequence[str]:
        kinds = self._facts.error_kinds.get(error, tuple(self._facts.answered))
        return [kind for kind in kinds if kind not in self._facts.unanswered]

    def answer_errors(self) -> Mapping[str, str]:
        return self._permits(self._facts.answer_errors)

    def answer_acts(self) -> Sequence[str]:
        return self._facts.answer_acts

    def closings(self) -> Mapping[str, str]:
        return self._permits(self._facts.closings)

    def closing_kinds(self) -> Sequence[str]:
        return self._facts.closing_kinds or self.answer_kinds()

    def skipped_permits(self) -> Mapping[str, str]:
        return self._facts.skipped_permits

    def dropped_answer_permits(self) -> str:
        return self._facts.dropped_answer_permits

    def _permits(self, names: Iterable[str]) -> Mapping[str, str]:
        return {name: self._facts.answer_permits.get(name, "") for name in names}


class ProxiedDetours(ProtocolFacts):
    """`StallsRequests`, `ChangesAnswers` and `RenamesNodes` over a proxy, wherever it runs.
    Thread-safe.

    Args:
        folder: of the cluster.
        plan: its ways; asked for routes only when the proxy runs.
    """

    def __init__(self, folder: Path, plan: DetourMap, host: toxiproxy.ProxyHost) -> None:
        super().__init__(plan.system)
        self.folder = folder
        self.plan = plan
        self._host = host
        self._proxy = toxiproxy.Proxy(host, plan.api)
        #: Source -> its routes, for clients with wires of their own.
        self._given: dict[str, list[Route]] = {}

    def adopt(self) -> None:
        """Take over the proxy that another harness process started."""
        self._host.adopt()

    def down(self) -> None:
        """End the proxy. Idempotent."""
        self._host.kill()

    def hosts_path(self, service: str) -> Path:
        """The hosts file of a node."""
        return NodeFolder(self.folder / service).conf / HOSTS_FILE

    def write_hosts(self, service: str) -> None:
        """Put the hosts file of a node into its conf folder; nothing without peer detours.

        Raises:
            EnvironmentNotReady: it cannot be written.
        """
        if self.plan.peers:
            self._write(service, {})

    def why_not(self, link: str, how: How) -> str:
        return ""

    def wires(self) -> Sequence[Wire]:
        given = [route for routes in list(self._given.values()) for route in routes]
        return [*self.plan.wires(), *wires_of_routes(given)]

    def give_wires(self, source: str) -> None:
        wanted = self.plan.of_instance(source)
        if not wanted or source in self._given:
            return
        there = self._proxy.listening()
        for route in wanted:
            if route.name not in there:  # a run that is resumed has them
                self._proxy.open(route.name, self._relayed(route))
                if self.plan.requests:
                    self._proxy.add(route.name, _MARK_REQUESTS)
        there = self._proxy.listening()
        self._given[source] = [replace(route, listen=there[route.name]) for route in wanted]

    def connect(self, wire: Wire, port: str, timeout_s: float) -> socket.socket:
        end = wire.endpoints[port]
        return socket.create_connection((end.host, end.port), timeout=timeout_s)

    def impair(self, name: str, flows: Iterable[Flow], impairment: Impairment) -> None:
        flows = list(flows)
        if impairment.answer:
            self._proxy.add_rule(self._rule(name, flows, impairment, impairment.answer))
            return
        for flow in flows:
            toxic = toxic_of(name, flow, impairment, self.plan.system)
            for route in self._of(flow.wire):
                self._proxy.add(route.name, toxic)
        if impairment.how == "reset":  # the toxic waits for a byte, and resets new connections only
            for listener in {route.name for flow in flows for route in self._of(flow.wire)}:
                self._proxy.bounce(listener)

    def answered(self, name: str) -> Answered:
        told = self._proxy.rules().get(name)
        if told is None:
            return Answered()
        return Answered(told["seen"], told["met"], told["unfit"], tuple(told["described"] or ()))

    def _has_rule(self, name: str) -> bool:
        return self.plan.answers and name in self._proxy.rules()

    def _rule(
        self, name: str, flows: Iterable[Flow], impairment: Impairment, answer: AnswerChange
    ) -> Document:
        """An impairment as a rule of the proxy's relays."""
        facts = self._facts
        errors = facts.closings if answer.act == "detach" else facts.answer_errors
        wires = {str(flow.wire): flow.wire for flow in flows}.values()
        return {
            "name": name,
            "relays": [route.name for wire in wires for route in self._of(wire)],
            "kinds": [facts.answered[kind] for kind in impairment.requests],
            "share": impairment.share,
            "number": impairment.number,
            "first_of_each_connection": impairment.first_of_each_connection,
            "after": facts.answered[impairment.after] if impairment.after else -1,
            "act": answer.act,
            "code": errors[answer.error] if answer.error else 0,
            "partitions": answer.partitions,
            "instead": answer.instead,
            "before": answer.before,
            "close": answer.close,
            "gone": answer.gone,
            "delay_ms": round(impairment.delay_s * 1000),
        }

    def _relayed(self, route: Route) -> Route:
        """A route through a relay that can change answers, where the cluster has those."""
        if not self.plan.answers:
            return route
        at = self._proxy.open_relay(
            route.name, route.upstream, self.plan.system, self._tls_of(route.target)
        )
        return replace(route, upstream=at)

    def _tls_of(self, node: str) -> Document | None:
        """The files by which a relay can stand for a node; None where clients use no TLS."""
        return None

    def stalled(self, name: str) -> Stalled:
        found = [toxic for _, _, toxic in self._applied(name)]
        return Stalled(sum(toxic["seen"] for toxic in found), sum(toxic["held"] for toxic in found))

    def _open(self) -> None:
        """Open every route of the proxy, which is being started.

        Raises:
            EnvironmentNotReady: it died, or an address is taken.
        """
        self._proxy.wait_up()
        self._proxy.populate(self._relayed(route) for route in self.plan.routes())
        if self.plan.requests:
            for route in self.plan.routes():
                self._proxy.add(route.name, _MARK_REQUESTS)

    def rename(self, name: str, node: str) -> Sequence[Wire]:
        moved = self.plan.moved(node)
        if not moved:
            raise EnvironmentNotReady(f"no other node knows {node} by a name")
        for route in moved:
            self._proxy.open(f"{name}.{route.name}", route)
        self._write_renamed()
        for route in self._to(node):
            self._proxy.enable(route.name, False)
        return [Wire(r.source, r.target, {r.port: r.listen}) for r in moved]

    def found_by(self, wires: Iterable[Wire]) -> set[str]:
        sources = {
            (end.host, end.port): wire.source for wire in wires for end in wire.endpoints.values()
        }
        return {sources[at] for at in self._host.accepted() & set(sources)}

    def repair(self, name: str) -> None:
        try:
            for route, toxic, _ in self._applied(name):
                self._proxy.remove(route, toxic)
            if self.plan.answers:
                self._proxy.remove_rule(name)
            self._take_back(name)
        except BrokerstormError as error:
            if not self._host.is_running():
                # nothing goes through it any more; that the cluster is cut off is seen elsewhere
                return
            raise HealError(f"{name} stays on the network: {error}", hint=error.hint) from error

    def is_impaired(self, name: str) -> bool:
        try:
            return bool(self._applied(name) or self._renamed(name) or self._has_rule(name))
        except BrokerstormError:
            return self._host.is_running()  # not to know is not to be repaired

    def _take_back(self, name: str) -> None:
        """The old address of a node that was renamed; the new one is closed last, so that a failure
        shows."""
        renamed = self._renamed(name)
        if not renamed:
            return
        for node in {one.split(".")[2] for one in renamed}:
            for route in self._to(node):
                self._proxy.enable(route.name, True)
        self._write_renamed(but=name)
        for one in renamed:
            self._proxy.close(one)

    def _renamed(self, name: str) -> list[str]:
        return [one for one in self._proxy.listening() if one.startswith(f"{name}.")]

    def _write_renamed(self, but: str = "") -> None:
        """The hosts files with every node that has another address now, whoever gave it."""
        usual = {route.name for route in self.plan.routes()}
        moved: dict[str, dict[str, str]] = {source: {} for source in self.plan.sources()}
        for one, listen in self._proxy.listening().items():
            of_client = is_client_source(one.partition(".")[0])
            if one not in usual and not of_client and not one.startswith(f"{but}."):
                _, source, target, _ = one.split(".")
                moved[source][target] = listen.host
        for source, addresses in moved.items():
            self._write(source, addresses)

    def _to(self, node: str) -> list[Route]:
        """The usual ways from the other nodes to one."""
        return [
            route
            for route in self.plan.routes()
            if route.target == node and not is_client_source(route.source)
        ]

    def _write(self, service: str, moved: Mapping[str, str]) -> None:
        path = self.hosts_path(service)
        try:
            self._put(path, self.plan.hosts_file(service, moved))
        except OSError as error:
            raise EnvironmentNotReady(f"cannot write {path}: {error.strerror}") from error

    def _put(self, path: Path, text: str) -> None:
        """A hosts file in one piece: a JVM may read it at any moment."""
        part = path.with_suffix(".part")
        part.write_text(text)
        part.replace(path)

    def _applied(self, name: str) -> list[tuple[str, str, Document]]:
        """Route, name and attributes of each toxic of an impairment."""
        return [
            (route, toxic, attributes)
            for route, toxics in self._proxy.toxics().items()
            for toxic, attributes in toxics.items()
            if toxic.startswith(f"{name}-")
        ]

    def _of(self, wire: Wire) -> list[Route]:
        own = self._given.get(wire.source) or self.plan.routes()
        return [r for r in own if (r.source, r.target) == (wire.source, wire.target)]


class LocalDetours(ProxiedDetours):
    """By a process of this machine; nodes find their hosts files by a flag of the JVM."""

    def __init__(self, run_id: str, folder: Path, plan: DetourMap) -> None:
        self._local = toxiproxy.LocalHost(run_id, folder)
        self._run_id = run_id
        super().__init__(folder, plan, self._local)

    def start(self) -> None:
        """Start the proxy; returns when every route is open. No-op when it runs.

        Raises:
            EnvironmentNotReady: no Go, it does not start, or an address is taken.
        """
        if not self._local.is_running():
            self._local.start(toxiproxy.fetch(), self.plan.api, self.plan.splits())
            self._open()

    def _tls_of(self, node: str) -> Document | None:
        secrets = folder_of(self._run_id)
        certificate, key = secrets / node / "node.crt", secrets / node / "node.key"
        if not key.exists():
            return None
        return {"certificate": str(certificate), "key": str(key), "ca": str(secrets / "ca.pem")}

    def jvm_flags(self, conf: str) -> list[str]:
        """Return the flags that make a JVM read the hosts file. ``conf`` is the node's
        configuration folder as the JVM sees it.
        """
        # Java 9 and later. The file is the only resolver then: it holds localhost and this
        # machine's name.
        return [f"-Djdk.net.hosts.file={conf}/{HOSTS_FILE}"] if self.plan.peers else []


class DetoursByAddress(LocalDetours):
    """Nodes receive addresses, one by one, and read no hosts file: none can get another address."""

    rename = None  # type: ignore[assignment]


def toxic_of(name: str, flow: Flow, impairment: Impairment, system: str) -> Document:
    """An impairment as toxiproxy's toxic on one direction of a route. Times are milliseconds.

    To hold is a delay without end: bytes that wait are passed on in order when it is removed, as
    packets are that TCP sends again. toxiproxy's own ``timeout`` drops them and must close the
    connection afterwards.
    """
    kind, attributes = {
        "hold": ("latency", {"latency": _TEN_DAYS_MS, "jitter": 0}),
        "swallow": ("timeout", {"timeout": 0}),
        "delay": (
            "latency",
            {
                "latency": round(impairment.delay_s * 1000),
                "jitter": round(impairment.jitter_s * 1000),
            },
        ),
        "throttle": ("bandwidth", {"rate": impairment.kilobytes_per_s}),
        "reset": ("reset_peer", {"timeout": 0}),
        "stall": (
            "stall",
            {
                "protocol": system,
                "kinds": [system_of(system).request_kinds[name] for name in impairment.requests],
                "share": impairment.share,
                "hold_ms": round(impairment.delay_s * 1000),
            },
        ),
    }[impairment.how]
    stream = _STREAMS[flow.toward]
    return {"name": f"{name}-{stream}", "type": kind, "stream": stream, "attributes": attributes}


def detours_of(
    run_id: str, folder: Path, spec: ClusterLayout, block: int, needs: frozenset[str]
) -> LocalDetours | None:
    """The detours that a cluster is started with; None when its faults need none.

    Raises:
        UsageError: a version whose brokers cannot tell clients an address of their own.
    """
    if CLIENT_DETOURS in needs and release_key(spec.version) < spec.detours_since:
        since = ".".join(map(str, spec.detours_since))
        raise UsageError(
            f"{spec.system} {spec.version} cannot use different addresses for clients and for brokers",
            hint=f"network faults on clients need {since} or newer",
        )
    by_address = spec.program is not None and not spec.program.reads_hosts_file
    kind = DetoursByAddress if by_address else LocalDetours
    return (
        kind(run_id, folder, DetourMap(spec, block, needs))
        if needs & (NEEDS - {REQUESTS, ANSWERS, CLIENT_ROLES})
        else None
    )
