"""A node of the tests of drivers: a process that listens and answers every request, as a broker
does."""

from __future__ import annotations

import socketserver
import sys


class Answer(socketserver.BaseRequestHandler):
    """Four bytes for four bytes."""

    def handle(self) -> None:
        self.request.recv(4)
        self.request.sendall(b"pong")


if __name__ == "__main__":
    socketserver.ThreadingTCPServer.allow_reuse_address = True
    socketserver.ThreadingTCPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
