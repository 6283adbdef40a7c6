"""An S3 server of the package index, in an environment of its own."""

from __future__ import annotations

import subprocess
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.fs as pafs
from filelock import FileLock

from harness.toolchains.cache import cache_folder

MOTO = "moto[s3,server]==5.2.5"
#: What clients find in their environment: it takes any.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
#: A port of its own choice, which it says.
_SERVER = """
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
server.start()
print("at %s:%d" % server.get_host_and_port(), flush=True)
server._thread.join()
"""


@contextmanager
def s3_bucket(log: Path) -> Iterator[str]:
    """URL of a folder in a bucket of the server, which has its address in it."""
    home = cache_folder() / "tools" / "moto-5.2.5"
    home.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{home}.lock"):
        if not (home / "complete").exists():
            venv.create(home, with_pip=True, clear=True)
            pip = [str(home / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", MOTO]
            subprocess.run(pip, check=True, timeout=300)
            (home / "complete").touch()
    command = [home / "bin" / "python", "-c", _SERVER]
    with (
        log.open("w") as out,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=out, text=True) as server,
    ):
        try:
            assert server.stdout is not None
            endpoint = next(
                (line.split()[1] for line in server.stdout if line.startswith("at ")), ""
            )
            assert endpoint, log.read_text()
            options = f"endpoint_override={endpoint}&scheme=http&allow_bucket_creation=true"
            filesystem, _ = pafs.FileSystem.from_uri(f"s3://x:y@night?{options}")
            filesystem.create_dir("night")
            yield f"s3://night/runs?{options}"
        finally:
            server.terminate()
