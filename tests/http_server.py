"""An HTTP server that answers with one function."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

HOST = "127.0.0.1"


class Request(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


#: Status, what is sent as JSON, and headers beside the usual ones.
Answer = tuple[int, object, Mapping[str, str]]


@contextmanager
def answering(answer: Callable[[Request], Answer]) -> Iterator[int]:
    """The port of `HOST` where it listens until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, document, headers = answer(
                Request(self.command, self.path, dict(self.headers), body)
            )
            data = json.dumps(document).encode()
            self.send_response(status)
            usual = {"Content-Type": "application/json", "Content-Length": str(len(data))}
            for key, value in {**usual, **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _do

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join(15)
