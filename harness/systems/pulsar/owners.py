"""Who owns a bundle, read in ZooKeeper, where brokers write it: no broker notices.

Brokers of our own are not asked what they own: that may hang one for good while bundles are
unloaded (docs/bugs/other-defects.md), so who asks changes what is observed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from harness.connections.security import Auth
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Node

_ANSWER_S: Final = 3.0
_RETRY_S: Final = 0.5
_ENDED: Final = (KeeperState.AUTH_FAILED, KeeperState.CLOSED)
#: The one bundle of the namespace that a broker has for its own heartbeat.
_WHOLE: Final = "0x00000000_0xffffffff"


class Owners:
    """Questions to one ZooKeeper, each answered within seconds. Thread-safe.

    The session that holds a bundle's entry belongs to the broker whose heartbeat namespace it
    holds, too.

    Args:
        ids: broker -> ``host:port`` as the brokers name it among themselves.
        cluster: the brokers' name of it.
        auth: user and password of the harness.
    """

    def __init__(self, zookeeper: Node, ids: Mapping[str, str], cluster: str, auth: Auth) -> None:
        self._node = zookeeper
        self._auth = auth
        self._heartbeats = {
            f"/namespace/pulsar/{cluster}/{id_}/{_WHOLE}": name for name, id_ in ids.items()
        }
        self._lock = threading.Lock()
        self._client: KazooClient | None = None
        self._live: Any = None  # set while there is a connection

    def owners_of(self, namespace: str) -> dict[str, str]:
        """Bundle of a namespace -> the broker that owns it; bundles without an owner are left out.

        Raises:
            EnvironmentNotReady: ZooKeeper does not answer.
        """
        root = f"/namespace/{namespace}"
        try:
            client = self._connected()
            listed = client.get_children_async(root)
            brokers = self._sessions(client, self._heartbeats)
            bundles = listed.get(timeout=_ANSWER_S)
            owners = self._sessions(client, [f"{root}/{bundle}" for bundle in bundles])
        except NoNodeError:  # no bundle was ever taken
            return {}
        except (KazooException, KazooTimeoutError) as error:
            why = f"{self._node.name} does not tell who owns what ({type(error).__name__})"
            raise EnvironmentNotReady(why) from error
        by_session = {session: self._heartbeats[path] for path, session in brokers.items()}
        held = {path.rpartition("/")[2]: session for path, session in owners.items()}
        return {
            bundle: by_session[session] for bundle, session in held.items() if session in by_session
        }

    def forget_bookie(self, id_: str) -> None:
        """Remove a bookie's cookie: one that comes without its data is refused as long as there is
        one (BookKeeper, "Decommission bookies").

        Raises:
            EnvironmentNotReady: ZooKeeper does not answer.
        """
        try:
            self._connected().delete_async(f"/ledgers/cookies/{id_}").get(timeout=_ANSWER_S)
        except NoNodeError:
            return
        except (KazooException, KazooTimeoutError) as error:
            why = f"{self._node.name} does not forget {id_} ({type(error).__name__})"
            raise EnvironmentNotReady(why) from error

    @staticmethod
    def _sessions(client: Any, paths: Iterable[str]) -> dict[str, int]:
        """Path -> the session that holds it; what is not there is left out."""
        asked = {path: client.exists_async(path) for path in paths}
        found = {path: answer.get(timeout=_ANSWER_S) for path, answer in asked.items()}
        return {path: stat.ephemeralOwner for path, stat in found.items() if stat is not None}

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                quiet = logging.getLogger(f"{__name__}.client")
                quiet.setLevel(logging.CRITICAL)  # whoever asks reports lost connections
                again = KazooRetry(max_tries=-1, delay=_RETRY_S, max_delay=_RETRY_S)
                shown = {
                    "mechanism": "DIGEST-MD5",
                    "username": self._auth.user,
                    "password": self._auth.secret.reveal(),
                }
                self._client = KazooClient(
                    str(self._node.client),
                    timeout=_ANSWER_S,
                    connection_retry=again,
                    logger=quiet,
                    sasl_options=shown,
                )
                self._live = self._client.start_async()
            client, live = self._client, self._live
        if not live.wait(_ANSWER_S):
            self._drop_if_ended(client)
            raise KazooTimeoutError("no connection")
        return client

    def _drop_if_ended(self, client: KazooClient) -> None:
        """Let the next question begin another session: kazoo ends one for good where its connection
        breaks while it shows the password."""
        with self._lock:
            if client.client_state not in _ENDED or client is not self._client:
                return
            self._client = None
        _end(client)

    def close(self) -> None:
        """End the session. Idempotent; a later question begins another one."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            _end(client)


def _end(client: Any) -> None:
    client.stop()
    client.close()
