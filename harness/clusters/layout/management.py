"""The account of the harness in the management of our brokers, and of some nodes among themselves.

Without `--secure` clients prove nothing, or show what everybody knows. Management can do more than
a client should: Qpid's writes files with the rights of the broker, Pulsar's reads them. So it is
for the harness alone, with a random password, or with a token that is signed with it.

With and without `--secure`, nodes show the password to each other where whoever connects could do
anything: the servers of NATS on the port of their routes; brokers and bookies of Pulsar to
ZooKeeper, which the harness asks, too.

Processes read password and token from files (0600) in the state folder, as later commands do. The
user of a container cannot read those and gets variables.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from harness.clusters.layout.node_layout import Layout
from harness.clusters.layout.secret_files import folder_of, write_secret_file
from harness.clusters.layout.tokens import signed_token
from harness.connections.secret import Secret
from harness.connections.security import Auth
from harness.errors import EnvironmentNotReady

USER: Final = "management"
#: The variable that hands the password to a container; compose files pass it on by this name.
VARIABLE: Final = "BROKERSTORM_MANAGEMENT_PASSWORD"
TOKEN_VARIABLE: Final = "BROKERSTORM_MANAGEMENT_TOKEN"
_RANDOM_BYTES: Final = 24


class Management:
    """User and password for the management of one cluster's brokers. The password is new until
    `restore`."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        # A letter and hexadecimal digits: no configuration language takes it for a number or an
        # expression.
        self._password = Secret("m" + secrets.token_hex(_RANDOM_BYTES))

    @property
    def auth(self) -> Auth:
        """How the harness proves who it is."""
        return Auth("user", self._password, USER)

    @property
    def token_auth(self) -> Auth:
        """Return the credentials for brokers that take tokens: a token that is signed with the
        password."""
        return Auth("token", signed_token(self._password, USER))

    @property
    def token_file(self) -> Path:
        """The file with the token alone."""
        return folder_of(self._run_id) / "management.token"

    @property
    def secret_file(self) -> Path:
        """The file with the password alone, for later commands and for connection files."""
        return folder_of(self._run_id) / "management.secret"

    @property
    def _passwd_file(self) -> Path:
        """The file that brokers read: one line, ``user:password``."""
        return folder_of(self._run_id) / "management.passwd"

    def values(self) -> dict[str, str]:
        """Return the values for the templates of processes; none is secret. ``folder`` has a
        sub-folder for each node, with the files that `keep` writes.
        """
        return {
            "user": USER,
            "file": str(self._passwd_file),
            "secret": str(self.secret_file),
            "token": str(self.token_file),
            "folder": str(folder_of(self._run_id)),
        }

    def environment(self) -> dict[str, str]:
        """Variables for the containers of the cluster."""
        return {VARIABLE: self._password.reveal(), TOKEN_VARIABLE: self.token_auth.secret.reveal()}

    def keep(self, layout: Layout) -> None:
        """Write the password, for the brokers and for later commands on the same cluster.

        Args:
            layout: the nodes, whose settings may include files with the password.

        Raises:
            EnvironmentNotReady: it cannot be written.
        """
        password = self._password.reveal()
        try:
            write_secret_file(self.secret_file, password.encode())
            write_secret_file(self.token_file, self.token_auth.secret.reveal().encode())
            write_secret_file(self._passwd_file, f"{USER}:{password}\n".encode())
            for node in layout.all_nodes.values():
                for target, text in layout.management_texts(node, password).items():
                    write_secret_file(folder_of(self._run_id) / node.name / target, text.encode())
        except OSError as error:
            raise EnvironmentNotReady(f"cannot write {error.filename}: {error.strerror}") from error

    def restore(self) -> None:
        """Read the password that the process which started the cluster wrote.

        Raises:
            EnvironmentNotReady: it is gone.
        """
        try:
            self._password = Secret(self.secret_file.read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise EnvironmentNotReady(
                f"cannot read the management password of {self._run_id}: {error}",
                hint=f"`brokerstorm clean {self._run_id}` removes the cluster",
            ) from None
