"""Reads the options of `run` that say which machines make the load."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from harness.errors import UsageError
from harness.filesystems import below
from harness.rundir import is_url

#: A name, or an address of IPv4 or IPv6.
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*|[0-9A-Fa-f:.]+")


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Where the load comes from.

    Attributes:
        master: of the Spark cluster whose executors send and consume.
        tasks: machines; 0 = as many as there are executors.
        store: a URL, or a folder on a mount that every executor has, below which the run is kept;
            empty = the folder of runs is on such a mount.
        port: at which this machine listens for the tasks; 0 = any free one.
        reached_at: host and port that the tasks connect to, where that is the end of a tunnel; None
            = this machine. Port 0 = ``port``.
    """

    master: str
    tasks: int = 0
    store: str = ""
    port: int = 0
    reached_at: tuple[str, int] | None = None

    def place_of(self, path: str) -> str:
        """Where a run is kept, by its path below the folder of runs; empty = there."""
        if not self.store:
            return ""
        return (
            below(self.store, path)
            if is_url(self.store)
            else str(Path(self.store).resolve() / path)
        )


def load_request(
    master: str | None,
    tasks: int | None,
    store: str,
    judge_master: str | None,
    *,
    port: int | None = None,
    address: str = "",
) -> LoadRequest | None:
    """Combine the options; None = the load comes from this machine.

    Raises:
        UsageError: they do not fit.
    """
    if master is None:
        others = {
            "--load-tasks": tasks,
            "--load-store": store,
            "--load-port": port,
            "--load-address": address,
        }
        for name, given in others.items():
            if given:
                raise UsageError(f"{name} requires --load-master", hint="add --load-master URL")
        return None
    if master.startswith("local"):
        raise UsageError(
            f"--load-master {master}: its executors are threads of this machine",
            hint="remove --load-master",
        )
    if judge_master and judge_master != master:
        raise UsageError(
            f"--master {judge_master} and --load-master {master} differ: a process has one Spark master",
            hint="remove --master; `analyze --master` judges elsewhere later",
        )
    reached_at = _host_and_port(address) if address else None
    return LoadRequest(master, tasks or 0, store, port or 0, reached_at)


def _host_and_port(address: str) -> tuple[str, int]:
    """Split ``HOST[:PORT]``; no port = 0.

    Raises:
        UsageError: it is neither.
    """
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    is_plain = host is not None and _HOST.fullmatch(host) and not address.endswith(":")
    if not is_plain or port == 0 or parts.netloc != address or parts.username is not None:
        raise UsageError(
            f"--load-address: not HOST or HOST:PORT: {address!r}",
            hint="--load-address 127.0.0.1:7700 is the end of `ssh -R 7700:127.0.0.1:7700`",
        )
    assert host is not None
    return host, port or 0
