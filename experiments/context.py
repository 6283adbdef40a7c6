"""The things that a command lends the experiment that it starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.progress.view import BaseProgress
    from harness.run.interrupts import Interrupts


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where runs are kept, the signals of the user, and how the view on stderr looks."""

    run_dir: Path
    interrupts: Interrupts
    quiet: bool = False
    color: bool = True

    def progress(self) -> BaseProgress:
        """The view of a long command, on stderr."""
        from harness.progress.choose import open_progress

        return open_progress("quiet" if self.quiet else "auto", color=self.color)
