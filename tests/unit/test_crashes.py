"""Which ends of a process are the client's: real dumps of Go, C, Java, Rust and Node, shortened."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from analysis.findings import Status, Verdict
from harness.run.crashes import crash_of_client
from tests.planted.judged import judge_here
from tests.planted.tiny import History

GO_CLIENT = """\
%3|connected to 127.0.0.1
panic: runtime error: index out of range [5] with length 0

goroutine 20 [running]:
github.com/segmentio/kafka-go.(*Writer).produce(...)
\t/root/go/pkg/mod/github.com/segmentio/kafka-go@v0.4.49/writer.go:793
github.com/segmentio/kafka-go.(*Writer).spawn.func1()
\t/root/go/pkg/mod/github.com/segmentio/kafka-go@v0.4.49/writer.go:760 +0x1d
created by github.com/segmentio/kafka-go.(*Writer).spawn in goroutine 1
\t/root/go/pkg/mod/github.com/segmentio/kafka-go@v0.4.49/writer.go:759 +0x1a
rax 0x0 | rbx 0x1
"""
GO_WORKER = """\
panic: assignment to entry in nil map

goroutine 21 [running]:
main.main.func2()
\t/build/main.go:8 +0x28
created by main.main in goroutine 1
\t/build/main.go:8 +0x9b
"""
GO_SIGNAL = """\
SIGSEGV: segmentation violation
PC=0x40866e m=0 sigcode=0 addr=0x1c69

goroutine 0 gp=0x5853c0 m=0 mp=0x586180 [idle]:
internal/runtime/syscall/linux.Syscall6()
\t/usr/local/go/src/internal/runtime/syscall/linux/asm_linux_amd64.s:36 +0xe

rip    0x48ca41
rflags 0x246
"""
GO_CAUGHT = """\
goroutine 1 [running]:
runtime/debug.Stack()
\t/usr/local/go/src/runtime/debug/stack.go:26 +0x5e
brokerstorm/kit.Main.func1()
\t/build/kit/process.go:87 +0x2b
panic({0x4bbb80?, 0x2ff1dfe8e078?})
\t/usr/local/go/src/runtime/panic.go:860 +0x13a
github.com/rabbitmq/amqp091-go.(*Channel).Publish(...)
\t/root/go/pkg/mod/github.com/rabbitmq/amqp091-go@v1.10.0/channel.go:3
main.main()
\t/build/main.go:7 +0xda
"""
GO_CAUGHT_IN_WORKER = GO_CAUGHT.replace(
    "github.com/rabbitmq/amqp091-go.(*Channel).Publish", "main.publish"
)
ASSERTION = "%4|a warning\n*** rdkafka_queue.c:50:rd_kafka_q_destroy_final: assert: rkq->rkq_refcnt > 0 ***\n"
JVM = """\
#
# A fatal error has been detected by the Java Runtime Environment:
#
#  SIGSEGV (0xb) at pc=0x00007f6ea6043f14 (sent by kill), pid=7379, tid=7379
#
# Problematic frame:
# C  [libc.so.6+0x85f14]
"""
RUST_CRATE = """\
thread 'main' (77) panicked at /root/.cargo/registry/src/index/rdkafka-0.38.0/src/client.rs:9:5:
called `Option::unwrap()` on a `None` value
"""
RUST_WORKER = RUST_CRATE.replace("/root/.cargo/registry/src/index/rdkafka-0.38.0/", "")
NODE_LIBRARY = """\
TypeError: Cannot read properties of null (reading 'y')
    at Timeout._onTimeout (/build/node_modules/kafkajs/src/network/connection.js:1:46)
    at listOnTimeout (node:internal/timers:581:17)
"""
NODE_WORKER = NODE_LIBRARY + "    at async /build/producer.js:6:46\n"


@pytest.mark.parametrize(
    ("exit_code", "log", "name", "text"),
    [
        (2, GO_CLIENT, "panic", "panic: runtime error: index out of range [5] with length 0"),
        (2, GO_SIGNAL, "SIGSEGV", "SIGSEGV: segmentation violation"),
        (70, GO_CAUGHT, "panic", "panic: what the kit caught"),
        (-signal.SIGABRT, ASSERTION, "SIGABRT", ASSERTION.splitlines()[1]),
        (-signal.SIGSEGV, "the last line\n", "SIGSEGV", "ended by SIGSEGV (segmentation fault)"),
        (-signal.SIGABRT, JVM, "SIGABRT", JVM.splitlines()[3].strip(" #")),
        (70, RUST_CRATE, "panic", RUST_CRATE.replace("\n", " ").strip()),
        (70, NODE_LIBRARY, "exception", NODE_LIBRARY.splitlines()[0]),
    ],
)
def test_a_client_that_ends_its_process_is_known_by_the_first_line(
    exit_code: int, log: str, name: str, text: str
) -> None:
    crash = crash_of_client(exit_code, log, "what the kit caught")
    assert crash is not None
    assert (crash.name, crash.text) == (name, text)


@pytest.mark.parametrize(
    ("exit_code", "log"),
    [
        (None, GO_CLIENT),  # it lives, or its exit is not known
        # by somebody else: the harness, an operator, the kernel without memory
        (-signal.SIGKILL, GO_CLIENT),
        (-signal.SIGTERM, ""),
        (-signal.SIGBUS, ""),  # what a full disk does to mapped pages
        (2, "usage: worker SPEC.json\n"),
        (2, GO_WORKER),
        (2, "fatal error: runtime: out of memory\n\ngoroutine 1 [running]:\nx.y.Z()\n\t/z.go:1\n"),
        (-signal.SIGABRT, "terminate called after throwing an instance of 'std::bad_alloc'\n"),
        (-signal.SIGABRT, "memory allocation of 33554432 bytes failed\n"),  # Rust
        # V8
        (-signal.SIGABRT, "FATAL ERROR: Reached heap limit - JavaScript heap out of memory\n"),
        (70, GO_CAUGHT_IN_WORKER),
        (70, RUST_WORKER),
        (70, NODE_WORKER),
        (4, "assertion of a broker failed\n"),
    ],
)
def test_other_ends_are_not_blamed_on_the_client(exit_code: int | None, log: str) -> None:
    assert crash_of_client(exit_code, log) is None


def crashed(*, died: bool = True, **row: bool) -> History:
    """A producer whose last send has no answer: its process ended."""
    h = History().sent(3).send(3, "info").log(0, 1, 2).deliver(0, 1, 2)
    if died:
        h.client_died("p-1", why="crashed")
    h.workers["p-1"] = {"done": False, **row}
    return h


def test_a_crash_is_a_violation_and_its_rows_are_whole(tmp_path: Path) -> None:
    result = judge_here(crashed(crashed=True).write(tmp_path / "run"))
    (finding,) = [f for f in result.findings if f.cls == "client-died"]
    assert (finding.split, finding.status) == ({"crashed": 1}, Status.VIOLATION)
    assert result.verdict is Verdict.FAIL
    (check,) = [each for each in result.coverage if each.name == "capture"]
    assert check.ok
    assert "p-1 crashed, every row kept" in check.text
    assert "phantom" not in result.untested


def test_nothing_excuses_a_crash(tmp_path: Path) -> None:
    history = crashed(crashed=True)
    history.manifest["readiness_restored"] = False
    result = judge_here(history.write(tmp_path / "run"))
    assert [f.status for f in result.findings if f.cls == "client-died"] == [Status.VIOLATION]


def test_who_was_killed_by_the_run_has_not_died_by_itself(tmp_path: Path) -> None:
    result = judge_here(crashed(died=False, stuck=True).write(tmp_path / "run"))
    (check,) = [each for each in result.coverage if each.name == "capture"]
    assert not check.ok
    assert check.text.startswith("p-1 did not end when asked to, and was killed by the run")
