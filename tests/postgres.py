"""A PostgreSQL server of the system's packages, for one test or one session of tests."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.waiting import wait_until

USER: Final = "billing"
PASSWORD: Final = "pa:ss@wörd'7"
_READY_S: Final = 30.0


@dataclass(frozen=True)
class Postgres:
    """A server that is up. ``url``: of a database, without a password."""

    url: str
    port: int


def postgres_programs() -> Path | None:
    """The folder of ``initdb`` and ``postgres``; None = there is none, or no user to run them."""
    if os.geteuid() == 0 and _unprivileged() is None:
        return None
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((each for each in folders if (each / "initdb").exists()), None)


def _unprivileged() -> pwd.struct_passwd | None:
    """A user that the server can run as; it refuses to run as root."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


@contextmanager
def postgres(programs: Path) -> Iterator[Postgres]:
    """Start a server with one user, who needs a password."""
    user = _unprivileged() if os.geteuid() == 0 else None
    as_user = {"user": user.pw_uid, "group": user.pw_gid} if user else {}
    # pytest's folders are closed to other users
    folder = Path(tempfile.mkdtemp(prefix="brokerstorm-postgres-"))
    server: subprocess.Popen[bytes] | None = None
    try:
        (folder / "password").write_text(PASSWORD)
        for path in (folder, folder / "password"):
            if user:
                os.chown(path, user.pw_uid, user.pw_gid)
        data = folder / "data"
        how = ["-A", "scram-sha-256", f"--pwfile={folder}/password", "-U", USER, "-E", "UTF8"]
        argv = [str(programs / "initdb"), "-D", str(data), "--no-sync", *how]
        subprocess.run(argv, cwd=folder, check=True, capture_output=True, **as_user)  # type: ignore[call-overload]
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            port = free.getsockname()[1]
        argv = [str(programs / "postgres"), "-D", str(data), "-p", str(port), "-k", str(folder)]
        argv += ["-h", "127.0.0.1", "-F"]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(argv, cwd=folder, stdout=log, stderr=log, **as_user)  # type: ignore[call-overload]
        asked = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        is_up = wait_until(lambda: subprocess.run(asked).returncode == 0, _READY_S)
        assert is_up, (folder / "log").read_text()
        yield Postgres(f"postgresql+psycopg://{USER}@127.0.0.1:{port}/postgres", port)
    finally:
        if server is not None:
            server.terminate()
            server.wait(30)
        shutil.rmtree(folder, ignore_errors=True)
