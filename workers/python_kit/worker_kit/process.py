"""The main function of every Python worker: spec in, role run, exit code out."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from .failure import WorkerFailure
from .golden import write_golden
from .names import Names
from .protocol import Control, Reporter, listen
from .spec import Spec, read_spec

EXIT_ENVIRONMENT, EXIT_USAGE, EXIT_BUG = 4, 2, 70


class OptionsTaken(Exception):
    """The client takes its options, and nothing else was asked."""


@dataclass(slots=True)
class Session:
    """Everything a role is run with: spec, commands, reporter, names."""

    spec: Spec
    control: Control
    report: Reporter
    names: Names
    versions: Mapping[str, str] = field(default_factory=dict)
    only_options: bool = False

    def half(self, role: str) -> Session:
        """Return the session of one half of a pipeline: its producer or its consumer."""
        return replace(self, spec=self.spec.halves[role])

    def check_options(self, construct: Callable[[], object]) -> None:
        """Under ``--check-options``: construct the client, which refuses what it does not take, and
        end.

        Called first by a role; what it constructs needs no broker.
        """
        if self.only_options:
            construct()
            raise OptionsTaken

    @property
    def is_ready(self) -> bool:
        """The process said so."""
        return self.report.is_ready

    def ready(self) -> None:
        self.report.ready(client=self.spec.library, **self.versions)


Role = Callable[[Session], None]


def main(
    roles: Mapping[str, Role],
    versions: Mapping[str, str],
    client_errors: tuple[type[Exception], ...],
) -> int:
    """Run one worker process.

    Args:
        roles: function of each role; it returns when everything is captured.
        versions: ``client_version`` and whatever else the `ready` line shall say.
        client_errors: exceptions of the client that end a role with the client's own message.

    Returns:
        0 after `done`, 2 wrong arguments, 4 the environment or an option, 70 an internal error.
    """
    if sys.argv[1:2] == ["--self-test"] and len(sys.argv) == 3:
        print("\n".join(write_golden(Path(sys.argv[2]))))
        return 0
    only_options = sys.argv[1:2] == ["--check-options"]
    arguments = sys.argv[2:] if only_options else sys.argv[1:]
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(
            "usage: worker [--check-options] SPEC.json | worker --self-test FOLDER", file=sys.stderr
        )
        return EXIT_USAGE
    report = Reporter()
    try:
        spec = read_spec(Path(arguments[0]), Path(sys.argv[0]).with_name("worker.toml"))
        if spec.role not in roles:
            raise WorkerFailure(
                f"role {spec.role!r}: {spec.library} has {', '.join(sorted(roles))}"
            )
        control = Control()
        listen(control)
        report.start()
        names = Names(spec.folder, spec.streams)
        roles[spec.role](Session(spec, control, report, names, versions, only_options))
    except OptionsTaken:
        report.close()
        return 0
    except WorkerFailure as error:
        report.close()
        report.fatal("worker", str(error), error.hint)
        return EXIT_ENVIRONMENT
    except client_errors as error:
        report.close()
        report.fatal(
            type(error).__name__, str(error), "check the options and the client's log (stderr.log)"
        )
        return EXIT_ENVIRONMENT
    except Exception as error:  # noqa: BLE001 - the last handler of this process: a crash must reach the harness
        traceback.print_exc()
        report.close()
        report.fatal(
            type(error).__name__, str(error) or repr(error), "a bug in the worker; see stderr.log"
        )
        return EXIT_BUG
    report.done()
    return 0
