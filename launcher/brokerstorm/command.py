"""Runs the command line in a separate process and reads its JSON document."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Document = dict[str, Any]
_MAIN = Path(__file__).with_name("__main__.py")
#: Exit codes of a command that has a verdict: pass, fail, unknown (docs/reference/cli.md).
ANSWERS = (0, 1, 3)


class BrokerstormError(RuntimeError):
    """A command failed without a verdict.

    Attributes:
        kind: Type of the error, for example ``ScenarioError`` or ``EnvironmentNotReady``.
        hint: Suggested next step. May be empty.
        exit_code: Exit code of the command: 2 usage, 4 environment, 5 faults not undone, 70
            internal error.
    """

    def __init__(self, message: str, *, kind: str, hint: str, exit_code: int) -> None:
        super().__init__(f"{message}\n  {hint}" if hint else message)
        self.kind = kind
        self.hint = hint
        self.exit_code = exit_code


def call(words: Sequence[str], *, run_dir: Path, timeout_s: float | None, quiet: bool) -> Document:
    """Run ``brokerstorm WORDS`` and return its JSON document. Its progress goes to stderr of this
    process.

    If the wait ends early, by the time limit or by Ctrl-C, the command gets SIGTERM and is waited
    for: it undoes its faults and removes what it started.

    Raises:
        BrokerstormError: The command failed.
        TimeoutError: The command did not end within ``timeout_s``.
    """
    options = ["--json", "--run-dir", str(run_dir), *(["--quiet"] if quiet else [])]
    with subprocess.Popen(
        [sys.executable, str(_MAIN), *words, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,  # Ctrl-C reaches only this process, which passes it on once, below
    ) as process:
        try:
            answer, _ = process.communicate(timeout=timeout_s)
        except BaseException as error:
            process.send_signal(signal.SIGTERM)
            process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise TimeoutError(
                    f"brokerstorm {words[0]} was not done after {timeout_s:g} s"
                ) from None
            raise
    return _document(answer, words[0], process.returncode)


def _document(answer: str, command: str, code: int) -> Document:
    try:
        document = json.loads(answer)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        text = f"brokerstorm {command} ended with exit code {code} and without a document"
        raise BrokerstormError(text, kind="NoDocument", hint="its stderr says why", exit_code=code)
    if "error" in document or code not in ANSWERS:
        error = document.get("error", {})
        raise BrokerstormError(
            str(error.get("message", f"exit code {code}")),
            kind=str(error.get("type", "")),
            hint=str(error.get("hint", "")),
            exit_code=code,
        )
    return document
