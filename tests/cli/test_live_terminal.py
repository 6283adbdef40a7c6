"""The live view on a real terminal: a child process draws it on a pty, and pyte says what a user
sees."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pyte
import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Draws at each line of its stdin and says so in the terminal's title; its clock goes a second at a
#: time.
CHILD = r"""
import sys, time
now = [1000.0]
time.monotonic, time.monotonic_ns = lambda: now[0], lambda: int(now[0] * 1e9)
from harness.contracts.rows import FaultEvent
from harness.progress import choose, live
live.REFRESH_PER_S = 0.001  # only when it is told
progress = choose.open_progress(color=True)
progress.begin("kafka-quick · unsafe · seed 503340", rate_per_s=50_000, warm_up_s=5, load_s=30)
progress.plan_faults([(4.0, "pause leader-of:orders for 5 s"), (14.0, "leader-move orders all partitions"),
                      (20.0, "kill leader-of:orders for 4 s")])
progress.phase("load")
ok = 250_000
def at(second):
    global ok
    now[0] = 1000.0 + second
    if not 4 < second <= 9:
        ok += 50_000
    progress.update(elapsed_s=float(second), ok=ok, info=37, fail=0, open=1_812, delivered=ok - 2_759,
                    late_max_ns=3_000_000)
for second in range(1, 8):
    at(second)
    if second == 4:
        progress.fault(FaultEvent(id=1, event="inject", t_ns=time.monotonic_ns(), kind="pause",
                                  target="leader-of:orders", targets=("kafka-1",)))
number = 0
for line in sys.stdin:
    if line == "close\n":
        progress.close()
    elif line == "healed\n":
        for event in ("heal", "healed"):
            progress.fault(FaultEvent(id=1, event=event, t_ns=time.monotonic_ns(), ok=True))
        for second in range(8, 13):
            at(second)
        progress._live.refresh()
    else:
        progress._live.refresh()
    number += 1
    sys.stderr.write(f"\x1b]2;{number}\x07")
    sys.stderr.flush()
"""


class Terminal:
    """A terminal of some size with the live view on it."""

    def __init__(self, columns: int, lines: int) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self._parent, child = pty.openpty()
        self._resize(columns, lines)
        environment = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            environment.pop(name, None)
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=child,
            stderr=child,
            env=environment,
        )
        os.close(child)
        self._told = 0

    def tell(self, what: str = "draw") -> list[str]:
        """Have it drawn; the lines that are not empty."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n".encode())
        self._process.stdin.flush()
        self._told += 1
        while self.screen.title != str(self._told):
            self._stream.feed(os.read(self._parent, 65536))
        return [line.rstrip() for line in self.screen.display if line.strip()]

    def resize(self, columns: int, lines: int) -> None:
        self.screen.resize(lines, columns)
        self._resize(columns, lines)

    def _resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._parent, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def colour_of(self, row: int, text: str) -> str:
        """Foreground of the first cell of a text."""
        at = self.screen.display[row].index(text)
        return str(self.screen.buffer[row][at].fg)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)
        os.close(self._parent)


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    made = Terminal(*request.param)
    yield made
    made.close()


@pytest.mark.parametrize("terminal", [(80, 24), (200, 50)], indirect=True, ids=str)
def test_what_a_user_sees_while_a_fault_is_applied(terminal: Terminal) -> None:
    fault, head, *figures = terminal.tell()
    assert fault.endswith(" fault #1: pause kafka-1")
    assert head.startswith("kafka-quick · unsafe · seed 503340 load 00:07 of 00:30 ━━━━━")
    assert figures == [
        "rate     0/s of 50,000   delay 3 ms",
        "minute   ███▁▁▁",
        "sends    ok 450,000   info 37   fail 0   open 1,812",
        "consume  0/s   delivered 447,241   behind 2,759",
        "errors   37 info, 0 fail, the first at 00:01",
        "faults   ▁▁▁▁▁█████   ● #1 pause kafka-1 for 3 s",
        "next     in 7 s leader-move orders all partitions   in 13 s kill leader-of:orde"
        + ("…" if terminal.screen.columns == 80 else "rs for 4 s"),
        "Ctrl-C stops the load, undoes faults, drains and still gives a verdict",
    ]
    row = 3
    assert (terminal.colour_of(row, "███"), terminal.colour_of(row, "▁▁▁")) == ("default", "red")


@pytest.mark.parametrize("terminal", [(80, 24)], indirect=True, ids=str)
def test_it_goes_on_in_place_and_follows_the_size_of_the_terminal(terminal: Terminal) -> None:
    before = terminal.tell()
    terminal.resize(60, 20)
    assert [len(line) <= 60 for line in terminal.tell("healed")] == [True] * (len(before) + 1)
    terminal.resize(200, 50)
    wide = terminal.tell()
    assert [line.split()[0] for line in wide[2:]] == [
        *("kafka-quick", "rate", "minute", "sends", "consume", "errors", "faults", "next", "Ctrl-C")
    ]
    assert wide[4] == "minute   ███▁▁▁▁▁███"


@pytest.mark.parametrize("terminal", [(80, 24)], indirect=True, ids=str)
def test_it_leaves_what_happened_and_the_cursor(terminal: Terminal) -> None:
    terminal.tell()
    (fault,) = terminal.tell("close")
    assert fault.endswith(" fault #1: pause kafka-1")
    assert not terminal.screen.cursor.hidden
