"""The things that a command lends the experiment that it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.progress.view import BaseProgress
    from harness.run.interrupts import Interrupts


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandContext:
    """Where runs are kept, the signals of the user, and how the view on stderr looks.

    Attributes:
        repeat: name of a command and values of its parameters -> the command line that does the
            same again.
    """

    run_dir: Path
    interrupts: Interrupts
    repeat: Callable[[str, Mapping[str, Any]], str]
    quiet: bool = False
    color: bool = True

    def progress(self) -> BaseProgress:
        """The view of a long command, on stderr."""
        from harness.progress.choose import open_progress

        return open_progress("quiet" if self.quiet else "auto", color=self.color)

    def repeat_command(self, name: str, request: Any, **pinned: Any) -> str:
        """The command line that does again what a request asks.

        Args:
            request: a dataclass whose fields are named as the parameters of the command.
            pinned: values instead of the request's: a seed that was drawn, a file by its whole
                path.
        """
        asked = {each.name: getattr(request, each.name) for each in fields(request)}
        return self.repeat(name, asked | pinned)
