"""What a worker folder says of itself: its ``worker.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One worker folder.

    Attributes:
        library: the client library; what users write in a scenario.
        system: the message system it talks to: ``kafka``, ``pulsar``, ``qpid``.
        language: how it is built and started; one of the toolchains of this package.
        roles: ``producer``, ``consumer``, ``audit``.
        options: by role, native options the worker sets unless the scenario does.
        tools: commands it needs on PATH beyond brokerstorm itself and its toolchain.
        supports: by key of a producer or consumer, the values this worker can do; a key it leaves out has
            the values every worker can do.
        build: the table named after its language: what the toolchain needs to know.
    """

    library: str
    system: str
    about: str
    language: str
    roles: tuple[str, ...]
    folder: Path
    entry: str
    tools: tuple[str, ...]
    versions: str
    options: Mapping[str, Mapping[str, str]]
    supports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    build: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, raw: Mapping[str, Any]) -> WorkerSpec:
        """A ``worker.toml``, parsed.

        Raises:
            KeyError: a key is missing.
        """
        return cls(
            library=raw["library"],
            system=raw["system"],
            about=raw["about"],
            language=raw["language"],
            roles=tuple(raw["roles"]),
            folder=folder,
            entry=raw["entry"],
            tools=tuple(raw["tools"]),
            versions=raw["versions"],
            options=raw["options"],
            supports={key: tuple(values) for key, values in raw.get("supports", {}).items()},
            build=raw.get(raw["language"], {}),
        )

    @property
    def installed_version(self) -> str:
        """Version that is used when a scenario names none: what lies beside brokerstorm (Python; empty when
        there is none), or what the folder was written for."""
        if self.language != "python":
            return str(self.build["default"])
        try:
            return metadata.version(self.library)
        except metadata.PackageNotFoundError:
            return ""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a client can be used as things are; a remedy when not."""

    ok: bool
    detail: str
    remedy: str = ""
