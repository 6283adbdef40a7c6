"""A fault that is applied right now, as another process needs it to heal it: a file in
``ledger/``."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedProcess:
    """A node or client process that a fault stopped. ``pid`` is None if it is gone, or is not a
    process of this machine.
    """

    node: str
    pid: int | None = None
    started_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """The ledger entry of one fault. A field that a kind leaves out means that it did not do this.

    Attributes:
        outside: the cluster is somebody else's: it continues, whatever happens to the run.
        down: nodes to start again, ``limited``: nodes held to less of something.
        impaired, losing: names of what detours, or packet filters, do.
        alarmed: nodes with an alarm that a fault raised.
        settings: topic -> its own settings before, None = it had none.
        damaged: why it cannot be read.
    """

    id: int = 0
    kind: str = "unreadable"
    targets: tuple[str, ...] = ()
    t_ns: int = 0
    outside: bool = False
    paused: tuple[StoppedProcess, ...] = ()
    down: tuple[str, ...] = ()
    limited: tuple[str, ...] = ()
    impaired: tuple[str, ...] = ()
    losing: tuple[str, ...] = ()
    alarmed: tuple[str, ...] = ()
    settings: dict[str, dict[str, str | None]] = field(default_factory=dict)
    damaged: str = ""
