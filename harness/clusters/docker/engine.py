"""The Docker engine: reaching it, finding what runs of ours have there, and removing exactly that.

Everything a run makes carries the label `LABEL` with the run id and `OWNER_LABEL` with the user and
the state folder, and is found by both, never by a name: an engine may serve several users. Docker's
library is imported when an engine is asked for: a third of a second that other runs need not wait.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from harness.errors import BrokerstormError, EnvironmentNotReady, HealError
from harness.owners import owner_mark
from harness.run_ids import is_run_id
from harness.waiting import wait_while

LABEL = "brokerstorm.run"
#: User and state folder that something belongs to (`harness.owners.owner_mark`).
OWNER_LABEL = "brokerstorm.owner"
SERVICE_LABEL = "com.docker.compose.service"
#: Of an image that we made.
STANDIN_LABEL = "brokerstorm.standin"
START_HINT = "start it (`systemctl start docker`, or `dockerd`), or use --runtime process"
_DEFAULT_SOCKET = "/var/run/docker.sock"
_TIMEOUT_S = 30
_PING_S = 3
_REMOVE_S = 20.0
_THREADS = 8
#: Paths in a node's folder that `keep_logs` writes.
_WRITTEN_LOGS = (".", "logs", "logs/stdout.log", "logs/stderr.log")


def socket_path() -> Path | None:
    """The engine's socket on this machine; None when DOCKER_HOST names an engine by address."""
    host = os.environ.get("DOCKER_HOST", "")
    if not host:
        return Path(_DEFAULT_SOCKET)
    return Path(host.removeprefix("unix://")) if host.startswith("unix://") else None


def connect() -> Any:
    """A client of the engine (`docker.DockerClient`) that answered just now. Thread-safe.

    Raises:
        EnvironmentNotReady: no engine, no permission, or it does not answer.
    """
    path = socket_path()
    if path is not None:
        _look_at(path)
    import docker
    from docker.errors import DockerException

    where = os.environ.get("DOCKER_HOST") or str(path)
    try:
        client = docker.from_env(timeout=_PING_S)  # asks for the version at once
    except DockerException as error:
        raise EnvironmentNotReady(
            f"no Docker engine answers at {where}: {_reason(error)}", hint=START_HINT
        ) from error
    client.api.timeout = _TIMEOUT_S
    return client


def _look_at(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except PermissionError:
        mode = stat.S_IFSOCK
    except OSError:
        raise EnvironmentNotReady(
            f"no Docker engine: there is no {path}", hint=START_HINT
        ) from None
    if not stat.S_ISSOCK(mode):
        raise EnvironmentNotReady(f"no Docker engine: {path} is not a socket", hint=START_HINT)
    if not os.access(path, os.W_OK):
        raise EnvironmentNotReady(
            f"no permission on the socket of the Docker engine, {path}",
            hint="join its group (`sudo usermod -aG docker $USER`, then log in again), or use"
            " --runtime process",
        )


@contextmanager
def asking(
    what: str,
    error_type: type[BrokerstormError] = EnvironmentNotReady,
    hint: str = "check the Docker daemon: `docker info`",
) -> Iterator[None]:
    """Turn what Docker's library raises into an error that says what could not be done."""
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        yield
    except (DockerException, RequestException) as error:
        said, cause = _reason(error), _cause(error)
        if isinstance(cause, OSError) and cause.strerror:
            said = f"the Docker engine does not answer ({cause.strerror})"
        raise error_type(f"{what}: {said}", hint=hint) from error


def _reason(error: BaseException) -> str:
    """The engine's own words where it said some, else the innermost cause in one line."""
    explanation = getattr(error, "explanation", None)
    if explanation:
        return " ".join(str(explanation).split())[:300]
    inner = _cause(error)
    return " ".join(str(inner).split())[:300] or type(inner).__name__


def _cause(error: BaseException) -> BaseException:
    """The innermost cause. An error of ours in the chain is what was being handled when the engine
    was asked, and no cause of anything."""
    inner = error
    while (cause := inner.__cause__ or inner.__context__) and not isinstance(
        cause, BrokerstormError
    ):
        inner = cause
    return inner


def runs(client: Any) -> set[str]:
    """Run ids of all containers, networks and volumes of any owner, running or not."""
    with asking("cannot list what runs left in the Docker engine"):
        found = client.containers.list(all=True, sparse=True, filters=_filter())
        labels = [each.attrs.get("Labels") for each in found]
        labels += [each.attrs.get("Labels") for each in client.networks.list(filters=_filter())]
        labels += [each.attrs.get("Labels") for each in client.volumes.list(filters=_filter())]
    return {each[LABEL] for each in labels if each and is_run_id(each.get(LABEL))}


def containers(client: Any, run_id: str) -> list[Any]:
    """The containers of a run, in any state, as the engine's list shows them (no inspection)."""
    with asking(f"cannot list the containers of {run_id}"):
        return list(client.containers.list(all=True, sparse=True, filters=_filter(run_id)))


def service_of(container: Any) -> str:
    """The service that a container of `containers` is; empty when compose did not make it."""
    return str((container.attrs.get("Labels") or {}).get(SERVICE_LABEL, ""))


def leftovers(client: Any, run_id: str) -> dict[str, list[str]]:
    """ "containers", "networks" and "volumes" of a run -> their names."""
    found = {
        "containers": [each.attrs["Names"][0].lstrip("/") for each in containers(client, run_id)]
    }
    with asking(f"cannot list the networks and volumes of {run_id}"):
        found["networks"] = [each.name for each in client.networks.list(filters=_filter(run_id))]
        found["volumes"] = [each.name for each in client.volumes.list(filters=_filter(run_id))]
    return {kind: names for kind, names in found.items() if names}


def labels_of(run_id: str) -> dict[str, str]:
    """The labels of what a run makes."""
    return {LABEL: run_id, OWNER_LABEL: owner_mark()}


def others(client: Any, run_id: str) -> dict[str, dict[str, list[str]]]:
    """Owner label -> as `leftovers`, of what bears the run id and is not ours; "" = it has no such
    label."""
    found: dict[str, dict[str, list[str]]] = {}
    by_run = {"label": f"{LABEL}={run_id}"}
    with asking(f"cannot list what {run_id} has in the Docker engine"):
        listed = [
            ("containers", each, each.attrs["Names"][0].lstrip("/"))
            for each in client.containers.list(all=True, sparse=True, filters=by_run)
        ]
        listed += [("networks", each, each.name) for each in client.networks.list(filters=by_run)]
        listed += [("volumes", each, each.name) for each in client.volumes.list(filters=by_run)]
    for kind, each, name in listed:
        owner = str((each.attrs.get("Labels") or {}).get(OWNER_LABEL, ""))
        if owner != owner_mark():
            found.setdefault(owner, {}).setdefault(kind, []).append(name)
    return found


def keep_log(container: Any, logs: Path) -> None:
    """Write what a container said so far into ``stdout.log`` and ``stderr.log`` of a folder.

    Raises:
        EnvironmentNotReady: the engine does not give it, or the folder cannot be written.
    """
    try:
        logs.mkdir(parents=True, exist_ok=True)
        for name, other in (("stdout", "stderr"), ("stderr", "stdout")):
            with (
                asking(f"cannot read the log of {container.id[:12]}"),
                (logs / f"{name}.log").open("wb") as file,
            ):
                for chunk in container.logs(stream=True, follow=False, **{other: False}):
                    file.write(chunk)
    except OSError as error:
        raise EnvironmentNotReady(f"cannot write {logs}: {error.strerror}") from error


def read_file(container: Any, path: str) -> bytes | None:
    """A file of a container, running or not; None when it is not there.

    Raises:
        EnvironmentNotReady: the engine does not give it.
    """
    from docker.errors import NotFound

    with asking(f"cannot read {path} of {container.id[:12]}"):
        try:
            chunks, _ = container.get_archive(path)
        except NotFound:
            return None
        archive = io.BytesIO(b"".join(chunks))
    with tarfile.open(fileobj=archive) as listed:
        found = listed.next()
        opened = listed.extractfile(found) if found else None
        return opened.read() if opened else None


def keep_logs(client: Any, run_id: str, folder: Path) -> None:
    """`keep_log` of every container of a run, as far as that goes: below ``folder``, by service."""
    if not folder.is_dir():
        return
    with suppress(EnvironmentNotReady):
        for container in containers(client, run_id):
            service = service_of(container)
            # A label is a text of anybody's with the right to start containers; a link leads
            # elsewhere.
            if is_run_id(service) and not any(
                (folder / service / below).is_symlink() for below in _WRITTEN_LOGS
            ):
                with suppress(EnvironmentNotReady):
                    keep_log(container, folder / service / "logs")


def remove(client: Any, run_id: str) -> None:
    """Remove all containers (with their volumes), networks and volumes of a run. Idempotent.

    What a killed harness asked for last may appear while we look: it is looked for until nothing is
    left.

    Raises:
        HealError: something is still there after some seconds.
    """
    problems: list[str] = []

    def left() -> int:
        found = _everything(client, run_id)
        # One kind after the other: a network and a volume go when no container uses them.
        said = pool.map(_attempt, [do for kind, do in found if kind == found[0][0]])
        problems[:] = [text for text in said if text]
        return len(found)

    with ThreadPoolExecutor(_THREADS) as pool:
        if count := wait_while(left, _REMOVE_S, every_s=0.05):
            said = f": {problems[-1]}" if problems else ""
            raise HealError(
                f"{count} containers, networks or volumes of {run_id} cannot be removed{said}",
                hint=f"docker ps -a --filter label={LABEL}={run_id}",
            )


def drop_with_data(client: Any, container: Any) -> None:
    """Remove a container that ended, with the volumes of its own.

    Raises:
        EnvironmentNotReady: the engine does not answer, or keeps one.
    """
    from docker.errors import NotFound

    volumes = [mount["Name"] for mount in container.attrs["Mounts"] if mount["Type"] == "volume"]
    with asking(f"cannot remove {container.name} with its data"):
        container.remove(v=True, force=True)  # with the volumes that have no name
        for name in volumes:
            with suppress(NotFound):
                client.volumes.get(name).remove(force=True)


def _everything(client: Any, run_id: str) -> list[tuple[str, Callable[[], None]]]:
    found: list[tuple[str, Callable[[], None]]] = []
    later = "once the engine runs again, `brokerstorm clean` removes it"
    with asking(f"cannot remove what {run_id} has in the Docker engine", HealError, later):
        for each in client.containers.list(all=True, sparse=True, filters=_filter(run_id)):
            found.append(("container", partial(_drop, each)))
        for each in client.networks.list(filters=_filter(run_id)):
            found.append(("network", each.remove))
        for each in client.volumes.list(filters=_filter(run_id)):
            found.append(("volume", partial(each.remove, force=True)))
    return found


def _drop(container: Any) -> None:
    from docker.errors import APIError

    if container.attrs.get("State") == "paused":
        # An engine that finds it stopped all the same says so; the removal is what counts.
        with suppress(APIError):
            container.unpause()
    container.remove(force=True, v=True)


def _attempt(do: Callable[[], None]) -> str:
    """Why it could not be done; empty when it is done, by us or by somebody else."""
    from docker.errors import APIError, NotFound
    from requests.exceptions import RequestException

    try:
        do()
    except NotFound:
        return ""
    except (APIError, RequestException) as error:
        return _reason(error)
    return ""


def _filter(run_id: str | None = None) -> dict[str, list[str]]:
    """Return the filter for queries to the engine: everything that one run started, or that any run
    of any owner started.
    """
    if run_id is None:
        return {"label": [LABEL]}
    return {"label": [f"{label}={value}" for label, value in labels_of(run_id).items()]}
