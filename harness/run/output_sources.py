"""Where applications leave their outputs: a topic, lines of files, requests to an endpoint of the
run; `harness.run.sql_outputs` has rows of a database.

A further kind is a class with the methods of `OutputSource`, and an entry in `output_source`.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Protocol

from pyarrow import ArrowException, parquet

from harness.contracts.plan import MOST_INSTANCES, ApplicationPlan
from harness.contracts.rows import Bounds
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Admin, ReadsMessages, StoredMessage
from harness.run.sql_outputs import SqlOutputs, row_as_output
from harness.rundir import RunDir
from harness.scenario.application import PARQUET

#: The longest line or request that is an output; a longer one names no input.
MAX_BYTES: Final = 1 << 20
#: A tenth, added ten times, is not one.
_ROUNDING: Final = 1e-9
Take = Callable[[StoredMessage], None]
#: Name of a column -> its value, as `StoredMessage.headers` has them.
Columns = Sequence[tuple[str, bytes]]
_PARQUET_END: Final = b"PAR1"
#: Rows of Parquet that are in memory at once.
_ROWS: Final = 1000


class OutputSource(Protocol):
    """The outputs of one application."""

    def open(self, *, is_new: bool) -> str:
        """Make it possible that there are outputs, before any instance starts.

        Args:
            is_new: False: the run is resumed, and has outputs already.

        Returns:
            What the program still has to do so that its outputs can be read; empty = nothing.

        Raises:
            EnvironmentNotReady: there can be none.
        """

    def places(self) -> dict[str, str]:
        """Return what instances need to write outputs: place of ``run`` and ``env`` -> value."""

    def close(self) -> None:
        """Take no more outputs. Idempotent."""

    def size(self) -> object:
        """Something that changes when there are more outputs.

        Raises:
            BrokerstormError: it is not known now.
        """

    def stream(self, partition: int) -> str:
        """The name of the stream that ``StoredMessage.partition`` means."""

    def read(self, take: Take, *, timeout_s: float) -> list[Bounds]:
        """Hand every output to ``take``; how far each stream of the plan was read (none = not such
        a stream).

        Raises:
            BrokerstormError: they cannot be read.
        """


class TopicOutputs:
    """A topic of the cluster, as readers of committed data see it."""

    def __init__(self, topic: str, admin: Admin) -> None:
        self._topic = topic
        self._admin = admin

    def open(self, *, is_new: bool) -> str:
        return ""

    def places(self) -> dict[str, str]:
        return {}

    def close(self) -> None:
        """Nothing to do."""

    def size(self) -> object:
        return self._admin.end_offsets([self._topic])

    def stream(self, partition: int) -> str:
        return f"{self._topic}-{partition}"

    def read(self, take: Take, *, timeout_s: float) -> list[Bounds]:
        if not isinstance(self._admin, ReadsMessages):
            raise EnvironmentNotReady(f"{self._topic} cannot be read on this system")
        return self._admin.read_messages(self._topic, take, timeout_s=timeout_s)


class FileOutputs:
    """Lines, or rows of Parquet, of the files that match a pattern below the folders of the
    instances; each is one output."""

    def __init__(self, pattern: str, folders: Sequence[Path], column: str = "") -> None:
        """``column``: that files of Parquet must have; empty = any will do."""
        self._column = column
        self._pattern = pattern
        self._folders = folders
        self._names: list[str] = []

    def open(self, *, is_new: bool) -> str:
        return ""

    def places(self) -> dict[str, str]:
        return {}

    def close(self) -> None:
        """Nothing to do."""

    def _files(self) -> Iterator[tuple[str, Path]]:
        """Name and path of each file, in the order of their names; links that lead elsewhere are
        left out."""
        for folder in self._folders:
            base = folder.resolve()
            for path in sorted(folder.glob(self._pattern)):
                if path.is_file() and path.resolve().is_relative_to(base):
                    yield f"{folder.parent.name}/{path.relative_to(folder)}", path

    def size(self) -> object:
        return {name: path.stat().st_size for name, path in self._files()}

    def stream(self, partition: int) -> str:
        return self._names[partition]

    def read(self, take: Take, *, timeout_s: float) -> list[Bounds]:
        end = time.monotonic() + timeout_s
        for name, path in self._files():
            self._names.append(name)
            try:
                for number, (value, columns) in enumerate(self._outputs_of(path)):
                    take(StoredMessage(len(self._names) - 1, number, 0, b"", value, columns))
                    if time.monotonic() > end:
                        raise EnvironmentNotReady(
                            f"{path} was not read to its end in {timeout_s:.0f} s"
                        )
            except (OSError, ArrowException) as error:
                why = getattr(error, "strerror", None) or str(error).partition("\n")[0]
                raise EnvironmentNotReady(f"{path}: {why}") from error
        return []

    def _outputs_of(self, path: Path) -> Iterator[tuple[bytes, Columns]]:
        """Value and columns of each output in a file; lines have no columns."""
        if path.suffix == PARQUET:
            yield from self._rows(path)
            return
        with path.open("rb") as file:
            for line in _lines(file.readline):
                yield line, ()

    def _rows(self, path: Path) -> Iterator[tuple[bytes, Columns]]:
        """Rows of a file of Parquet. One without its end was being written when the instance was
        killed: no reader of Parquet sees its rows, so they do not count as outputs."""
        if not _is_whole_parquet(path):
            return
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if self._column and self._column not in names:
                raise EnvironmentNotReady(
                    f"{path}: it has no column {self._column}, only {', '.join(names)}"
                )
            for batch in file.iter_batches(_ROWS):
                for row in batch.to_pylist():
                    yield row_as_output(row)


def _is_whole_parquet(path: Path) -> bool:
    """Whether a file ends as files of Parquet do; one that is empty or was cut off does not."""
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) < 2 * len(_PARQUET_END):
            return False
        file.seek(-len(_PARQUET_END), os.SEEK_END)
        return file.read() == _PARQUET_END


def _lines(readline: Callable[[int], bytes]) -> Iterator[bytes]:
    """Lines without their ends; only the beginning of one that is too long."""
    while line := readline(MAX_BYTES):
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = readline(MAX_BYTES)
        if line.strip():
            yield line.rstrip(b"\r\n")


class _Endpoint(ThreadingHTTPServer):
    """A server whose senders may be killed at any time: what becomes of their connections is no
    error."""

    #: Connections that wait to be accepted. Beyond that, the kernel resets them.
    request_queue_size = 1024

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a connection that the application closed; report every other error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class HttpOutputs:
    """Requests that an application sends to an endpoint on loopback; each POST or PUT is one
    output.

    Every accepted request is on the disk before it is answered. The path of the endpoint is random:
    requests of other programs on this machine, or of a page in a browser, get 404.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._count = 0
        self._server: ThreadingHTTPServer | None = None
        self._route = f"/{secrets.token_urlsafe(16)}"
        self._how, self._share, self._delay_s = "", 0.0, 0.0
        #: The part of the share that has not become a whole request yet.
        self._due = 0.0
        self._is_restored = threading.Event()
        self.disturbed = 0

    def open(self, *, is_new: bool = True) -> str:
        """Begin to accept requests.

        Returns:
            An empty text.

        Raises:
            EnvironmentNotReady: there is no free port, or a file cannot be opened.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.touch()
            self._server = _Endpoint(("127.0.0.1", 0), self._handler())
        except OSError as error:
            raise EnvironmentNotReady(f"no endpoint for outputs: {error}") from error
        threading.Thread(
            target=self._server.serve_forever, name="outputs-http", daemon=True
        ).start()
        return ""

    @property
    def url(self) -> str:
        """The address of the endpoint; empty before `open`."""
        if self._server is None:
            return ""
        return f"http://127.0.0.1:{self._server.server_address[1]}{self._route}/"

    def places(self) -> dict[str, str]:
        return {"endpoint": self.url}

    def close(self) -> None:
        """Accept nothing more. Idempotent."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def size(self) -> object:
        return self._count

    def stream(self, partition: int) -> str:
        return "requests"

    def read(self, take: Take, *, timeout_s: float) -> list[Bounds]:
        end = time.monotonic() + timeout_s
        with self._path.open("rb") as file:
            for number, line in enumerate(file):
                row = json.loads(line)
                headers = [(name, text.encode()) for name, text in row["headers"]]
                take(
                    StoredMessage(
                        0, number, row["t_ms"], b"", base64.b64decode(row["body"]), headers
                    )
                )
                if time.monotonic() > end:
                    raise EnvironmentNotReady(
                        f"{self._path} was not read to its end in {timeout_s:.0f} s"
                    )
        return []

    def disturb(self, how: str, *, share: float, delay_s: float) -> None:
        """See `harness.protocols.faulting.OutputEndpoint`."""
        with self._lock:
            self._is_restored = threading.Event()
            self._how, self._share, self._delay_s = how, share, delay_s
            self._due, self.disturbed = 0.0, 0

    def restore(self) -> None:
        """See `harness.protocols.faulting.OutputEndpoint`."""
        with self._lock:
            self._how = ""
        self._is_restored.set()

    def _next_disturbance(self) -> str:
        """Decide what happens to the next request; empty = nothing."""
        with self._lock:
            if not self._how:
                return ""
            self._due += self._share
            if self._due < 1.0 - _ROUNDING:
                return ""
            self._due -= 1.0
            self.disturbed += 1
            return self._how

    def accept(self, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        """Write a request down.

        Raises:
            OSError: the disk is full.
        """
        row = {
            "t_ms": time.time_ns() // 1_000_000,
            "headers": headers,
            "body": base64.b64encode(body).decode(),
        }
        with self._lock, self._path.open("ab") as file:
            file.write(json.dumps(row).encode() + b"\n")
            self._count += 1

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outputs, route = self, self._route

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def do_POST(self) -> None:
                length = self.headers.get("Content-Length", "")
                is_number = length.isascii() and length.isdecimal()
                refusal = 0
                if self.path != route and not self.path.startswith(f"{route}/"):
                    refusal = 404
                elif not is_number:
                    refusal = 411
                elif int(length) > MAX_BYTES:
                    refusal = 413
                if refusal:
                    self.close_connection = True
                    self._answer(refusal)
                    return
                body = self.rfile.read(int(length))
                if len(body) < int(length):
                    self.close_connection = True  # its sender is gone: it was not accepted
                    return
                disturbance = outputs._next_disturbance()
                if disturbance == "refuse":
                    self._answer(503)
                    return
                try:
                    outputs.accept(list(self.headers.items()), body)
                except OSError:
                    self._answer(507)
                    return
                if disturbance == "drop":
                    self.close_connection = True
                    return
                if disturbance == "delay":
                    outputs._is_restored.wait(outputs._delay_s)
                self._answer(200)

            do_PUT = do_POST

            def _answer(self, status: int) -> None:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Print nothing."""

        return Handler


def output_source(
    application: ApplicationPlan, run: RunDir, admin: Admin, group: str
) -> OutputSource:
    """The outputs of an application, by what the scenario says of them.

    Args:
        group: the name of its consumer group at the brokers.
    """
    if application.to:
        return TopicOutputs(application.to, admin)
    if application.to_file:
        every = [application.instance_name(number + 1) for number in range(MOST_INSTANCES)]
        folders = [run.applications / name / "folder" for name in every]
        column = str(application.identity.get("column", ""))
        return FileOutputs(application.to_file, folders, column)
    if application.to_sql:
        shared = shared_folder(application, run)
        return SqlOutputs(application, shared=shared, group=group)
    return HttpOutputs(run.applications / f"{application.name}.requests")


def shared_folder(application: ApplicationPlan, run: RunDir) -> Path:
    """The folder that all instances of an application share; absolute, because they run in the
    scenario's folder."""
    return run.applications.absolute() / f"{application.name}.shared"
