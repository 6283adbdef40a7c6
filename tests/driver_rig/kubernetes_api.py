"""A stand-in of Kubernetes' API server, and of the StatefulSet that owns its pods.

It speaks what the driver asks: list the pods of a namespace by label, delete one. Behind each pod
is a process of `Nodes`; a pod that was deleted is replaced, not ready until its process answers.
There is no kubelet and no network.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.driver_rig.nodes import Nodes

TOKEN = "a-token-of-the-tests"
PODS = "/api/v1/namespaces/staging/pods"


class KubernetesApi(ThreadingHTTPServer):
    """Serves until closed; `deletions` holds (pod, grace in seconds) in order.

    Attributes:
        replaces: whether a pod that was deleted is replaced.
        kills: whether deleting a pod ends its process; a server that lies does not.
        hangs: whether requests stay without answer.
    """

    daemon_threads = True

    def __init__(self, nodes: Nodes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.nodes = nodes
        self.pods = dict.fromkeys(nodes.endpoints, 1)
        self.deletions: list[tuple[str, int]] = []
        self.replaces = self.kills = True
        self.hangs = threading.Event()
        self.over = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def kubeconfig(self, folder: Path, token: str = TOKEN) -> Path:
        """Written as `kubectl` reads it (JSON is YAML, too)."""
        path = folder / "kubeconfig"
        server = f"http://127.0.0.1:{self.server_address[1]}"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": {"server": server}}],
                    "users": [{"name": "u", "user": {"token": token}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )
        return path

    def delete(self, pod: str, grace_s: int) -> None:
        self.deletions.append((pod, grace_s))
        del self.pods[pod]
        if self.kills:
            self.nodes.kill(pod)
        if self.replaces:
            self.pods[pod] = 1 + len(self.deletions)
            threading.Timer(0.5, self.nodes.start, [pod]).start()

    def close(self) -> None:
        self.over.set()
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: KubernetesApi

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        (selector,) = parse_qs(url.query)["labelSelector"]
        pods = [pod for pod in self.server.pods if selector == f"app=kafka,pod-name={pod}"]
        self._answer(
            {"apiVersion": "v1", "kind": "PodList", "items": [self._pod(pod) for pod in pods]}
        )

    def do_DELETE(self) -> None:
        url = urlsplit(self.path)
        name = url.path.removeprefix(f"{PODS}/")
        grace = int(parse_qs(url.query)["gracePeriodSeconds"][0])
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self._is_allowed():
            self.server.delete(name, grace)
        self._answer({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}})

    def _is_allowed(self) -> bool:
        return self.headers["Authorization"] == f"Bearer {TOKEN}"

    def _pod(self, name: str) -> dict[str, Any]:
        ready = "True" if self.server.nodes.answers(name) else "False"
        return {
            "metadata": {"name": name, "uid": f"{name}-{self.server.pods[name]}"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
        }

    def _answer(self, document: dict[str, Any]) -> None:
        if self.server.hangs.is_set():
            self.server.over.wait(60)
            return
        allowed = self._is_allowed() and urlsplit(self.path).path.startswith(PODS)
        body = json.dumps(
            document if allowed else {"kind": "Status", "reason": "Unauthorized"}
        ).encode()
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""
