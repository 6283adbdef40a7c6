"""toxiproxy, the network proxy of a cluster: built once, spoken to by HTTP.

It is Shopify's (https://github.com/Shopify/toxiproxy, MIT), at one version, with two deadlocks
fixed (`_CHANGES`), and two toxics and relays of ours: the Go module in `proxy/` in this folder,
built once and kept in the cache. As a local process it is like a node: a pid file in the cluster's
folder, the run id in its environment, so that `clean` finds it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Protocol

import psutil
import urllib3

from harness.clusters.layout.detours import Route, Split
from harness.clusters.nodes.node_process import NodeFolder, NodeProcess
from harness.errors import BrokerstormError, EnvironmentNotReady, UsageError
from harness.protocols.cluster import Endpoint
from harness.rundir import Document
from harness.toolchains.go_tool import GoTool, SourceChange
from harness.waiting import wait_while

VERSION: Final = "2.12.0"
_MODULE: Final = Path(__file__).parent / "proxy"
#: A name of its own among the nodes of the cluster folder.
FOLDER: Final = "network"
_START_S, _ASK_S, _POLL_S = 20.0, 10.0, 0.02
_TOXIPROXY: Final = "github.com/Shopify/toxiproxy/v2"
#: Two deadlocks of toxiproxy that leave a fault on the network for good: a toxic is added or
#: removed while a connection cannot be written to, and every other request waits for that one.
_CHANGES: Final = (
    # A message that cannot be written on is kept until the next toxic passes it on.
    SourceChange(
        f"{_TOXIPROXY}/toxics/noop.go",
        "package toxics\n",
        'package toxics\n\nimport "github.com/Shopify/toxiproxy/v2/stream"\n',
    ),
    SourceChange(
        f"{_TOXIPROXY}/toxics/noop.go",
        "\tfor {\n",
        """\tif kept, is := stub.State.(*stream.StreamChunk); is {
		stub.State = nil
		if !passOn(stub, kept) {
			return
		}
	}
	for {
""",
    ),
    SourceChange(
        f"{_TOXIPROXY}/toxics/noop.go",
        "\t\t\tstub.Output <- c\n",
        "\t\t\tif !passOn(stub, c) {\n\t\t\t\treturn\n\t\t\t}\n",
    ),
    SourceChange(
        f"{_TOXIPROXY}/toxics/noop.go",
        "func init() {",
        """func passOn(stub *ToxicStub, chunk *stream.StreamChunk) bool {
	select {
	case stub.Output <- chunk:
		return true
	case <-stub.Interrupt:
		stub.State = chunk
		return false
	}
}

func init() {""",
    ),
    # The reader of a closed connection must continue, or the toxics before it never end.
    SourceChange(
        f"{_TOXIPROXY}/link.go",
        """			Msg("Could not write to destination")
""",
        """			Msg("Could not write to destination")
		go func() { _, _ = io.Copy(io.Discard, link.output) }()
""",
    ),
)
SERVER: Final = GoTool(f"toxiproxy {VERSION}", "network proxy", "network faults", _MODULE, _CHANGES)
fetch, readiness = SERVER.fetch, SERVER.readiness


class ProxyHost(Protocol):
    """The place where a proxy runs: a process or a container.

    Attributes:
        log: what it said, or will have said once it ended.
    """

    @property
    def log(self) -> Path:
        """The file that keeps what the proxy prints."""

    def adopt(self) -> None:
        """Take over what another harness process started."""

    def is_running(self) -> bool: ...
    def kill(self) -> None:
        """End it. Idempotent."""

    def why_dead(self) -> EnvironmentNotReady:
        """Return the error for a proxy that has ended, with the last lines of its log."""

    def accepted(self) -> set[tuple[str, int]]:
        """Where it has connections now that others opened: its own (address, port) of each."""


class LocalHost(NodeProcess):
    """`ProxyHost` as a process of this machine.

    Args:
        folder: of the cluster.
    """

    def __init__(self, run_id: str, folder: Path) -> None:
        super().__init__("the network proxy", NodeFolder(folder / FOLDER), run_id)

    @property
    def log(self) -> Path:
        """The file that keeps what the proxy prints."""
        return self.folder.logs / "stdout.log"

    def start(self, program: Path, api: Endpoint, splits: Iterable[Split] = ()) -> None:
        """Start it without any route. ``splits``: listeners that pass connections on by the
        client's role.

        Raises:
            EnvironmentNotReady: it cannot be started.
        """
        self.folder.logs.mkdir(parents=True, exist_ok=True)
        command = [str(program), "-host", api.host, "-port", str(api.port)]
        for split in splits:
            command += ["-split", f"{split.listen},{split.target},{split.port}"]
        self.launch(command, dict(os.environ))

    def accepted(self) -> set[tuple[str, int]]:
        return {
            (one.laddr.ip, one.laddr.port)
            for one in psutil.net_connections(kind="tcp4")
            if one.status == psutil.CONN_ESTABLISHED and one.laddr
        }


class Proxy:
    """The routes of a proxy that runs somewhere. Thread-safe.

    Args:
        api: where it listens for us.
    """

    def __init__(self, host: ProxyHost, api: Endpoint) -> None:
        self.host = host
        self._api = api
        self._pool = urllib3.PoolManager(maxsize=4, retries=False)

    def wait_up(self) -> None:
        """Wait until it answers.

        Raises:
            EnvironmentNotReady: it died, or stays silent.
        """
        if error := wait_while(self._silence, _START_S, every_s=_POLL_S):
            raise error

    def populate(self, routes: Iterable[Route]) -> None:
        """Open these routes; return when it listens.

        Raises:
            EnvironmentNotReady: an address is taken.
        """
        listeners = [
            {"name": r.name, "listen": str(r.listen), "upstream": str(r.upstream), "enabled": True}
            for r in routes
        ]
        self.ask("POST", "/populate", listeners)

    def _silence(self) -> EnvironmentNotReady | None:
        try:
            self.ask("GET", "/version")
        except EnvironmentNotReady as error:
            if not self.host.is_running():
                raise self.host.why_dead() from None
            return error
        return None

    def add(self, route: str, toxic: Document) -> None:
        """Add a toxic to a route."""
        self.ask("POST", f"/proxies/{route}/toxics", toxic)

    def toxics(self) -> dict[str, Document]:
        """Route -> name of each of its toxics -> its attributes, for those that have any."""
        found = self.ask("GET", "/proxies")
        return {
            name: {toxic["name"]: toxic["attributes"] for toxic in row["toxics"]}
            for name, row in found.items()
            if row["toxics"]
        }

    def remove(self, route: str, toxic: str) -> None:
        """Remove a toxic; it is not an error if it does not exist."""
        with contextlib.suppress(UsageError):
            self.ask("DELETE", f"/proxies/{route}/toxics/{toxic}")

    def bounce(self, route: str) -> None:
        """Close every connection of a route."""
        for enabled in (False, True):
            self.enable(route, enabled)

    def enable(self, route: str, enabled: bool) -> None:
        """Open a route again, or close it with every connection."""
        self.ask("PATCH", f"/proxies/{route}", {"enabled": enabled})

    def open(self, name: str, route: Route) -> None:
        """Add a route under a name of its own; `close` removes it."""
        self.ask(
            "POST",
            "/proxies",
            {"name": name, "listen": str(route.listen), "upstream": str(route.upstream)},
        )

    def close(self, name: str) -> None:
        """Remove a route; it is not an error if it does not exist."""
        with contextlib.suppress(UsageError):
            self.ask("DELETE", f"/proxies/{name}")

    def open_relay(
        self, name: str, upstream: Endpoint, protocol: str, tls: Document | None = None
    ) -> Endpoint:
        """Open a relay, which can change answers on their way from ``upstream``; where it listens.

        Args:
            tls: paths of ``certificate``, ``key`` and ``ca``; None = connections without TLS.
        """
        asked = {"name": name, "listen": "127.0.0.1:0", "upstream": str(upstream)}
        made = {**asked, "protocol": protocol, "tls": tls}
        found = self.ask("POST", "/answers/relays", made)
        host, _, port = found["listen"].rpartition(":")
        return Endpoint(host, int(port))

    def add_rule(self, rule: Document) -> None:
        """Change answers of some relays from now on."""
        self.ask("POST", "/answers/rules", rule)

    def rules(self) -> dict[str, Document]:
        """Name of each rule in force -> what it met."""
        return dict(self.ask("GET", "/answers/rules"))

    def remove_rule(self, name: str) -> None:
        """End a rule; it is not an error if it does not exist."""
        with contextlib.suppress(UsageError):
            self.ask("DELETE", f"/answers/rules/{name}")

    def listening(self) -> dict[str, Endpoint]:
        """Name of a route -> where it listens."""
        found = {}
        for name, row in self.ask("GET", "/proxies").items():
            host, _, port = row["listen"].rpartition(":")
            found[name] = Endpoint(host, int(port))
        return found

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One request; the JSON of its answer, None without any.

        Raises:
            UsageError: what is asked for is not there.
            EnvironmentNotReady: it does not answer, or refuses (its words).
        """
        try:
            answer = self._pool.request(
                method,
                f"http://{self._api}{path}",
                body=None if body is None else json.dumps(body),
                headers={"User-Agent": "brokerstorm"},
                timeout=_ASK_S,
            )
        except urllib3.exceptions.HTTPError as error:
            raise EnvironmentNotReady(
                f"the network proxy at {self._api} does not answer: {type(error).__name__}",
                hint=f"its log is {self.host.log}",
            ) from error
        text = answer.data.decode(errors="replace")
        if answer.status == 404:
            raise UsageError(f"the network proxy knows no {path}")
        if answer.status >= 400:
            raise EnvironmentNotReady(
                f"the network proxy refuses {method} {path}: {text.strip()[:300]}"
            )
        try:
            return json.loads(text) if text.startswith(("{", "[")) else None
        except ValueError as error:
            raise BrokerstormError(
                f"the network proxy answered {text[:100]!r} to {path}"
            ) from error
