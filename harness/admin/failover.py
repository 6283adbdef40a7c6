"""Admin requests to a cluster of which some nodes may be dead or frozen: another node is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import Node
from harness.waiting import wait_until, wait_while

Answer = TypeVar("Answer")
ASK_S = 8.0  # two frozen brokers in turn, then the third
POLL_S = 0.1
LOGS_HINT = "read the brokers' logs; for a cluster that brokerstorm started, they are in its folder"


class NotThere(UsageError):
    """The brokers do not know the object of a request."""


class AlreadyThere(UsageError):
    """Something of that name exists, or another one holds what it needs."""


class NoAnswer(Exception):
    """A node gave no answer that counts; another one may. The text says why."""


def wait_ready(missing: Callable[[], str], watch: Callable[[], None], *, timeout_s: float) -> None:
    """Return when nothing of a cluster is missing.

    Args:
        missing: what is, by name; where no node answers, that is what is missing.
        watch: raises where waiting has no sense any more.

    Raises:
        EnvironmentNotReady: what is still missing.
    """

    def lacking() -> str:
        watch()
        try:
            return missing()
        except EnvironmentNotReady as error:
            return str(error)

    if still := wait_while(lacking, timeout_s, every_s=POLL_S):
        raise EnvironmentNotReady(
            f"the cluster is not ready after {timeout_s:.0f} s: {still}",
            hint=f"{LOGS_HINT}; a busy machine needs more `limits.ready`",
        )


def each(names: Iterable[str], question: Callable[[str], Answer]) -> dict[str, Answer]:
    """Ask nodes at the same time; those that give no answer are left out."""
    asked = list(names)
    found: dict[str, Answer] = {}

    def ask(name: str) -> None:
        try:
            found[name] = question(name)
        except (EnvironmentNotReady, UsageError):
            return

    if len(asked) < 2:
        for name in asked:
            ask(name)
        return found
    with ThreadPoolExecutor(len(asked)) as pool:
        list(pool.map(ask, asked))
    return found


class FailoverAdmin:
    """Asks one node after another until one answers. Thread-safe.

    Args:
        nodes: those with an admin endpoint.
        is_reachable: whether a node can answer, as far as the runtime knows; decides whom to ask
            first.
    """

    def __init__(self, nodes: Sequence[Node], is_reachable: Callable[[str], bool]) -> None:
        self._nodes = tuple(nodes)
        self._is_reachable = is_reachable
        self._last = ""

    def first_answer(
        self,
        ask: Callable[[Node], Answer],
        *,
        only: str = "",
        within_s: float,
        failure: str = "no broker answers at its admin endpoint",
    ) -> Answer:
        """The first answer that a node gives.

        Args:
            ask: raises `NoAnswer` when another node should be asked; what else it raises ends the
                search.
            only: the one node to ask, once.
            failure: what it means when no node answers.

        Raises:
            EnvironmentNotReady: no node answers within ``within_s``.
        """
        deadline = time.monotonic() + within_s
        said: dict[str, str] = {}

        def ask_each() -> list[Answer]:
            for node in self._order(only):
                try:
                    answer = ask(node)
                except NoAnswer as error:
                    said[node.name] = str(error)
                else:
                    self._last = self._last if only else node.name
                    return [answer]
                if time.monotonic() > deadline:
                    break
            return []

        if found := wait_until(ask_each, 0 if only else within_s, every_s=POLL_S):
            return found[0]
        raise EnvironmentNotReady(f"{failure} ({'; '.join(_by_reason(said))})")

    def reachable(self) -> list[str]:
        """Names of the nodes that can answer, as far as the runtime knows."""
        return [node.name for node in self._nodes if self._is_reachable(node.name)]

    def _order(self, only: str) -> list[Node]:
        """Nodes known to be away last. Before that the one that answered last: a node that was
        frozen until now still answers with the metadata of that time.
        """
        if only:
            return [node for node in self._nodes if node.name == only]
        return sorted(
            self._nodes,
            key=lambda node: (not self._is_reachable(node.name), node.name != self._last),
        )


def _by_reason(said: Mapping[str, str]) -> list[str]:
    """Each reason once, after the names of the nodes that gave it."""
    return [
        f"{', '.join(sorted(name for name in said if said[name] == reason))} {reason}"
        for reason in dict.fromkeys(said[name] for name in sorted(said))
    ]
