"""The command line: parse, call one function, turn the outcome into an exit code."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from contextlib import ExitStack

import click

from commands import (
    bisect,
    bundles,
    clusters,
    contract,
    histories,
    hunt,
    reading,
    rounds,
    shrink,
    starting,
    suites,
    tracing,
    upkeep,
)
from commands.console import CommandGroup, report_problem, show_help
from commands.streams import output_problem, prepare_streams
from harness import __version__
from harness.errors import BrokerstormError, Exit
from harness.invocation import NAME, called, how_to_install
from harness.run.interrupts import Interrupts

#: What a shell's completion sets (docs/howto/install.md).
COMPLETE = "_BROKERSTORM_COMPLETE"
#: Shown of a file name that is too long: every such name comes from the command line.
_NAME_SHOWN = 60
#: A module of these that is missing is a bug; any other is a library that is not installed.
_OURS = ("analysis", "cli", "commands", "experiments", "faults", "harness")


@click.group(
    cls=CommandGroup,
    is_part=False,
    name="brokerstorm",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    example="brokerstorm run kafka-quick\nbrokerstorm show --html",
)
@click.version_option(__version__, message="brokerstorm %(version)s")
def cli() -> None:
    """Chaos load tests for message brokers, with an exact verdict on every message.

    Starts a cluster and sends load while brokers are killed, frozen and lose leadership.
    Reports every message that was lost, stored twice or reordered.
    """


for _command in (
    *(
        upkeep.doctor,
        starting.list_,
        starting.new,
        starting.plan,
        upkeep.fetch,
        rounds.run,
        rounds.repro,
    ),
    bisect.bisect,
    shrink.shrink,
    hunt.hunt,
    *(suites.suite, histories.history),
    *(clusters.up, clusters.down, clusters.inject, contract.check_worker),
    *(reading.analyze, reading.show, tracing.trace, reading.compare, reading.explain),
    *(bundles.bundle, bundles.open_, bundles.upload_),
    upkeep.clean,
):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the console script; returns the exit code (docs/reference/cli.md)."""
    if arguments is None:
        prepare_streams()
    code = _run(arguments)
    problem = output_problem()
    is_verdict = code in (Exit.PASS, Exit.FAIL, Exit.UNKNOWN)
    return _report_output(problem) if problem is not None and is_verdict else code


def _run(arguments: Sequence[str] | None) -> int:
    """Run the command; its exit code, whatever happens."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given
    with ExitStack() as stack:
        interrupts = Interrupts()
        if threading.current_thread() is threading.main_thread():
            stack.enter_context(interrupts)
        try:
            outcome = cli.main(
                given,
                prog_name=NAME if COMPLETE in os.environ else called(),
                complete_var=COMPLETE,
                standalone_mode=False,
                obj=interrupts,
            )
            return int(outcome or 0)
        except click.exceptions.NoArgsIsHelpError as error:
            return show_help(error)
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else called()
            hint = f"`{path} --help` shows what there is"
            return _report(
                error, error.format_message(), hint=hint, code=Exit.USAGE, as_json=as_json
            )
        except click.ClickException as error:
            return _report(error, error.format_message(), code=Exit.USAGE, as_json=as_json)
        except (click.Abort, KeyboardInterrupt) as error:
            return _report(error, "stopped", code=Exit.INTERRUPTED, as_json=as_json)
        except SystemExit:
            return Exit.PASS  # click's answer to a reader that left while it printed help
        except BrokerstormError as error:
            if error.exit_code == Exit.BUG:
                return _report_bug(error, as_json=as_json)
            return _report(
                error,
                str(error),
                hint=error.hint,
                code=error.exit_code,
                as_json=as_json,
                further=error.further,
            )
        except Exception as error:  # noqa: BLE001 - the outermost wall: no code above can say it better
            return _report_other(error, as_json=as_json)


def _report(
    error: BaseException,
    text: str,
    *,
    code: Exit,
    as_json: bool,
    hint: str = "",
    further: Sequence[str] = (),
) -> int:
    return report_problem(
        type(error).__name__, text, hint=hint, exit_code=code, as_json=as_json, further=further
    )


def _report_output(problem: OSError) -> int:
    """The result could not be written: no exit code of a verdict, which is in the folder of the
    run."""
    text = f"the output could not be written: {problem.strerror or problem}"
    hint = "`brokerstorm show` shows the verdict of the latest run again"
    return _report(problem, text, hint=hint, code=Exit.OUTPUT, as_json=False)


def _report_other(error: Exception, *, as_json: bool) -> int:
    """A bug, but for a library that only some commands load, a file name that no file system takes,
    and a file that this user may not use, and output that cannot be written."""
    if isinstance(error, OSError) and (problem := output_problem()) is not None:
        return _report_output(problem)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] not in _OURS:
        text = f"{sys.executable} has no module {error.name}"
        return _report(error, text, hint=how_to_install(), code=Exit.ENVIRONMENT, as_json=as_json)
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        longest = max(str(error.filename).split(os.sep), key=len)
        text = f"{error.strerror}: {longest[:_NAME_SHOWN]}..."
        return _report(error, text, code=Exit.USAGE, as_json=as_json)
    if isinstance(error, PermissionError) and error.filename:
        hint = "its owner and mode, or those of a folder above it, keep this user out"
        text = f"{error.strerror}: {error.filename}"
        return _report(error, text, hint=hint, code=Exit.USAGE, as_json=as_json)
    return _report_bug(error, as_json=as_json)


def _report_bug(error: Exception, *, as_json: bool) -> int:
    """One line for people; the traceback goes to a file that a bug report can carry."""
    first = (str(error).splitlines() or [""])[0]
    kept = _keep_traceback(error)
    hint = f"please report it{f' with {kept}' if kept else ''}; `brokerstorm clean` removes what may be left"
    text = f"internal error: {type(error).__name__}: {first}"
    return _report(error, text, code=Exit.BUG, hint=hint, as_json=as_json)


def _keep_traceback(error: Exception) -> str:
    """A file for the report; empty where none can be written, which may be what went wrong."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="brokerstorm-", suffix=".traceback.txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(f"brokerstorm {__version__}, Python {sys.version}\n")
            traceback.print_exception(error, file=file)
    except OSError:
        return ""
    return file.name


if __name__ == "__main__":
    sys.exit(main())
