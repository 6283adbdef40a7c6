"""Makes one of our own clusters secure: once, before its nodes start, and until they are gone.

Everything secret lies in one folder of the state (0700), never in the run's: passwords, private
keys, and the files of brokers that need them. The connection file lies in the cluster's folder and
only names them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from harness.clusters.layout.node_layout import Layout
from harness.clusters.layout.secret_files import folder_of, fresh_secret, write_secret_file
from harness.clusters.security.certificates import Authority, Issued
from harness.connections.secret import Secret
from harness.connections.security import Access, Auth, Tls
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Node
from harness.rundir import Document

#: The harness itself; may do everything.
ADMIN: Final = "admin"
#: The clients under test, and whoever uses the connection file.
CLIENT: Final = "brokerstorm"
#: Somebody whom the brokers know, and who may do nothing.
GUEST: Final = "guest"
CONNECTION_FILE: Final = "connection.yaml"


class ClusterSecurity:
    """Certificates, users and their passwords of one cluster.

    Attributes:
        folder: of what is secret.
        secrets: user -> password or token, and what else the brokers share, by name.
    """

    def __init__(self, run_id: str, secrets: Mapping[str, Secret]) -> None:
        self.folder = folder_of(run_id)
        self.secrets = dict(secrets)

    @classmethod
    def made_for(cls, run_id: str, names: Iterable[str]) -> ClusterSecurity:
        """That which another process has made.

        Raises:
            EnvironmentNotReady: it is gone.
        """
        found = cls(run_id, {})
        try:
            found.secrets = {name: Secret(found.file(name).read_text()) for name in names}
        except OSError as error:
            raise EnvironmentNotReady(
                f"the secrets of {run_id} are gone: {error.filename}: {error.strerror}",
                hint=f"`brokerstorm clean {run_id}` removes the cluster",
            ) from None
        return found

    @property
    def ca(self) -> Path:
        """The authority's certificate, PEM."""
        return self.folder / "ca.pem"

    def file(self, name: str) -> Path:
        """Return the path of the file with a secret."""
        return self.folder / f"{name}.secret"

    def tls(self, user: str = "") -> Tls:
        """How a client knows the brokers; with a user's own certificate, where one is named."""
        if not user:
            return Tls(self.ca)
        return Tls(self.ca, self.folder / f"{user}.crt", self.folder / f"{user}.key")

    def values(self, node: str) -> dict[str, str]:
        """Return the values for the templates of a node's settings: paths and names of users,
        nothing secret.
        """
        return {
            "folder": str(self.folder / node),
            "ca": str(self.ca),
            "store": str(self.folder / node / "node.pem"),
            "certificate": str(self.folder / node / "node.crt"),
            "key": str(self.folder / node / "node.key"),
            "admin": ADMIN,
            "client": CLIENT,
            "guest": GUEST,
        }

    def make(self, layout: Layout) -> Authority:
        """Issue certificates for nodes and admin, write what is secret; returns the authority that
        did.

        Raises:
            EnvironmentNotReady: it cannot be written.
        """
        authority = Authority()
        try:
            self._make(layout, authority)
        except OSError as error:
            raise EnvironmentNotReady(f"cannot write {self.folder}: {error.strerror}") from error
        return authority

    def connection(
        self, system: str, cluster_id: str, where: Mapping[str, Any], access: Access
    ) -> str:
        """The text of a connection file: it names what is secret."""
        clients, admin = access.clients, access.admin
        assert clients.tls
        assert clients.auth
        document = {
            "system": system,
            "yours": True,
            **({"cluster_id": cluster_id} if cluster_id else {}),
            "tls": {"ca": str(clients.tls.ca)},
            "auth": self._proof(clients.auth, CLIENT),
            **({"admin_auth": self._proof(admin.auth, ADMIN)} if admin.auth else {}),
            **where,
        }
        head = "# A cluster that brokerstorm made. Its secrets are there as long as it runs.\n"
        return head + yaml.safe_dump(document, sort_keys=False)

    def _proof(self, auth: Auth, user: str) -> Document:
        source = {"file": str(self.file(auth.user or user))}
        proof = (
            {"token": source}
            if auth.mechanism == "token"
            else {"user": auth.user, "password": source}
        )
        return {"mechanism": auth.mechanism, **proof}

    def _make(self, layout: Layout, authority: Authority) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        write_secret_file(self.ca, authority.certificate)
        known = {name: secret.reveal() for name, secret in self.secrets.items()}
        for name, text in known.items():
            write_secret_file(self.file(name), text.encode())
        self._write_issued(self.folder / ADMIN, authority.issue(ADMIN))
        for node in layout.all_nodes.values():
            folder = self.folder / node.name
            # The host as the name: Qpid's old client looks for it there and nowhere else.
            issued = authority.issue(node.client.host, hosts_of(layout, node))
            self._write_issued(folder / "node", issued)
            for target, text in layout.private_texts(node, {"secrets": known}).items():
                write_secret_file(folder / target, text.encode())

    def _write_issued(self, path: Path, issued: Issued) -> None:
        """Write a key and its certificate as two files, and as one file with the key first."""
        for suffix, content in (
            (".crt", issued.certificate),
            (".key", issued.key),
            (".pem", issued.key + issued.certificate),
        ):
            write_secret_file(path.with_name(path.name + suffix), content)


def fresh_passwords() -> dict[str, Secret]:
    """A new password for each user."""
    return {user: fresh_secret() for user in (ADMIN, CLIENT, GUEST)}


def hosts_of(layout: Layout, node: Node) -> Iterable[str]:
    """Every name and address by which a node can be reached."""
    told = [address.rpartition(":")[0] for address in layout.advertised(node).values()]
    reached = [layout.wiring.reached_at(node, by) for by in layout.nodes]
    own = (node.client.host, node.peer.host, node.admin.host, layout.wiring.host(node))
    return {*told, *reached, *own}


def forget(run_id: str) -> None:
    """Remove the secrets of a run's cluster. Idempotent."""
    shutil.rmtree(folder_of(run_id), ignore_errors=True)
