"""The kubernetes driver: pods that a label selects, by the official client (an optional extra).

It deletes pods; that another takes a pod's place is the work of what owns it, such as a
StatefulSet. So a node is away for as long as that takes, whatever the fault's own duration.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from harness.clusters.drivers.driver import Driver, State
from harness.connections.drivers import NODE, Action, KubernetesDriverPart
from harness.errors import EnvironmentNotReady
from harness.invocation import how_to_install_extra
from harness.waiting import wait_until

_POLL_S: Final = 0.2
_ANSWER_S: Final = 30.0
_HINT: Final = "look at drivers.kubernetes of the connection file, and at `kubectl get pods`"


class KubernetesDriver(Driver):
    """Deletes pods, and waits for what takes their places."""

    name: ClassVar[str] = "kubernetes"
    actions: frozenset[Action] = frozenset({"kill", "stop", "restart"})

    def __init__(self, part: KubernetesDriverPart, folder: Path) -> None:
        self._part = part
        self._folder = folder
        self._found: Any = None

    def act(self, action: Action, node: str, *, grace_s: float = 0.0) -> None:
        if action == "restart":
            self._wait_ready(node)
            return
        pods = [pod for pod in self._pods(node) if not pod.metadata.deletion_timestamp]
        if len(pods) != 1:
            raise EnvironmentNotReady(
                f"the kubernetes driver finds {len(pods)} pods of {node} (selector {self._selector(node)} in"
                f" {self._part.namespace}) where it needs one",
                hint=_HINT,
            )
        grace = 0 if action == "kill" else max(1, round(grace_s))
        with self._asking(f"cannot {action} {node}"):
            self._api().delete_namespaced_pod(
                pods[0].metadata.name,
                self._part.namespace,
                grace_period_seconds=grace,
                _request_timeout=self._limits,
            )

    def state(self, node: str) -> State:
        return "running" if any(map(_is_ready, self._pods(node))) else "down"

    def _wait_ready(self, node: str) -> None:
        if not wait_until(
            lambda: self.state(node) == "running", self._part.timeout, every_s=_POLL_S
        ):
            raise EnvironmentNotReady(
                f"the kubernetes driver waited {self._part.timeout:g} s in vain for a ready pod of {node}:"
                " who owns it starts no other, or that one does not become ready",
                hint=_HINT,
            )

    def _pods(self, node: str) -> list[Any]:
        with self._asking(f"cannot ask for {node}"):
            found = self._api().list_namespaced_pod(
                self._part.namespace,
                label_selector=self._selector(node),
                _request_timeout=self._limits,
            )
            return list(found.items)

    @property
    def _limits(self) -> tuple[float, float]:
        """Return the time limits of connecting and of answering, in seconds. The client does not
        accept one number with a fraction for both.
        """
        limit_s = min(self._part.timeout, _ANSWER_S)
        return limit_s, limit_s

    def _selector(self, node: str) -> str:
        return self._part.label.replace(NODE, node)

    def _api(self) -> Any:
        """The client of the API server; made once."""
        if self._found is None:
            try:
                from kubernetes import client, config
            except ImportError:
                raise EnvironmentNotReady(
                    "the kubernetes driver needs Kubernetes' own client, which is not installed",
                    hint=how_to_install_extra("kubernetes"),
                ) from None
            self._found = client.CoreV1Api(client.ApiClient(self._settings(client, config)))
        return self._found

    def _settings(self, client: Any, config: Any) -> Any:
        """How to reach it: by the file that is named or kubectl's; without one, as the account of
        the pod that this runs in."""
        settings = client.Configuration()
        settings.retries = False  # each would take the whole time limit again
        path = str(self._folder / self._part.kubeconfig) if self._part.kubeconfig else None
        try:
            try:
                config.load_kube_config(
                    path, self._part.context or None, client_configuration=settings
                )
            except config.ConfigException:
                if path or self._part.context:
                    raise
                config.load_incluster_config(settings)
        except (config.ConfigException, OSError) as error:
            raise EnvironmentNotReady(
                f"the kubernetes driver cannot be set up: {error}", hint=_HINT
            ) from None
        return settings

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        from urllib3.exceptions import HTTPError

        self._api()
        from kubernetes.client import ApiException

        try:
            yield
        except ApiException as error:
            why = f"the API server answers {error.status} {error.reason}"
            raise EnvironmentNotReady(f"the kubernetes driver {what}: {why}", hint=_HINT) from None
        except HTTPError as error:
            why = " ".join(str(getattr(error, "reason", None) or error).split())[:200]
            raise EnvironmentNotReady(f"the kubernetes driver {what}: {why}", hint=_HINT) from None

    def close(self) -> None:
        if self._found is not None:
            self._found.api_client.close()
            self._found = None


def _is_ready(pod: Any) -> bool:
    """Whether it serves, and it was not asked to end."""
    conditions = pod.status.conditions or ()
    return not pod.metadata.deletion_timestamp and any(
        one.type == "Ready" and one.status == "True" for one in conditions
    )
