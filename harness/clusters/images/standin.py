"""Stand-in images: what runs in containers where no image registry answers.

A stand-in has the official image's tag, folders, entry point, user and health command, so the same
compose file and templates run on both. It is the base image plus the jars, or the program, that the
process runtime would use, after the recipe in compose/<system>/images. Labels tell it from an
official image, which is never replaced.
"""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.clusters.docker.engine import STANDIN_LABEL, asking
from harness.clusters.images import base_image
from harness.clusters.layout.compose import ClusterLayout
from harness.errors import EnvironmentNotReady
from harness.toolchains import jars as artifacts
from harness.toolchains.jars import Progress

RECIPE_LABEL = "brokerstorm.recipe"
_MB = 2**20
_JAVA = 17
_ROOM_MB = 1000  # the largest system's jars, twice


@dataclass(frozen=True, slots=True)
class Image:
    """An image in the engine. ``kind`` is official, stand-in, or absent."""

    tag: str
    kind: str
    size_mb: int = 0
    recipe: str = ""


def image_of(spec: ClusterLayout) -> str:
    """The tag that every service of a system runs from."""
    return spec.services[0].image


def look(client: Any, tag: str) -> Image:
    """Return the image that the engine has under a tag.

    Raises:
        EnvironmentNotReady: the engine does not answer.
    """
    from docker.errors import ImageNotFound

    with asking(f"cannot ask for the image {tag}"):
        try:
            found = client.api.inspect_image(tag)
        except ImageNotFound:
            return Image(tag, "absent")
    labels = (found.get("Config") or {}).get("Labels") or {}
    kind = "stand-in" if labels.get(STANDIN_LABEL) == "true" else "official"
    return Image(tag, kind, found["Size"] // _MB, labels.get(RECIPE_LABEL, ""))


def provide(client: Any, spec: ClusterLayout, *, on_progress: Progress | None = None) -> Image:
    """The image of a system's version: the official one if it is there, else a stand-in, built if
    need be.

    Raises:
        EnvironmentNotReady: no engine, no network, no way to make the base image, disk full.
        UsageError: a version that was never published.
    """
    report = on_progress or (lambda text, share: None)
    tag = image_of(spec)
    found = look(client, tag)
    if found.kind == "official":
        report(f"{tag}: official image, {found.size_mb} MB", 1.0)
        return found
    base = base_image.provide(client, max(_JAVA, spec.java), report)
    if found.recipe != _recipe(spec, base):
        software = _software(spec, on_progress)
        # The folder of jars has its final name only when they were resolved.
        recipe = _recipe(spec, base)
        if found.recipe != recipe:
            report(f"building {tag}", None)
            _build(client, tag, _images(spec), software, base, recipe)
            found = look(client, tag)
    report(f"{tag}: stand-in, {found.size_mb} MB", 1.0)
    return found


def _software(spec: ClusterLayout, on_progress: Progress | None) -> dict[str, Path]:
    """The files that the process runtime would use, by their names in the build context."""
    if spec.program:
        spec.program.fetch(on_progress=on_progress)
        return {f"program/{name}": path for name, path in spec.program.parts().items()}
    jars = artifacts.resolve(spec.artifacts, on_progress=on_progress)
    return {f"jars/{path.name}": path for path in sorted(jars.glob("*.jar"))}


def _images(spec: ClusterLayout) -> Path:
    return spec.file.parent / "images"


def _recipe(spec: ClusterLayout, base: str) -> str:
    """Changes with whatever the image is made of."""
    folder = spec.program.place.parent if spec.program else artifacts.jars_folder(spec.artifacts)
    digest = hashlib.sha256(f"{base}\n{folder.name}\n".encode())
    for path in _files(_images(spec)):
        digest.update(f"{path.relative_to(_images(spec))}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _build(
    client: Any, tag: str, recipe_folder: Path, software: Mapping[str, Path], base: str, recipe: str
) -> None:
    with tempfile.TemporaryFile(prefix="brokerstorm-image-") as context:
        base_image.room(Path(tempfile.gettempdir()), _ROOM_MB)
        _pack(context, recipe_folder, software)
        context.seek(0)
        with asking(f"cannot build {tag}"):
            for line in client.api.build(
                fileobj=context,
                custom_context=True,
                tag=tag,
                buildargs={"BASE": base},
                labels={STANDIN_LABEL: "true", RECIPE_LABEL: recipe},
                network_mode="none",
                rm=True,
                forcerm=True,
                decode=True,
            ):
                if "error" in line:
                    raise EnvironmentNotReady(
                        f"cannot build {tag}: {line['error'].strip()[:300]}",
                        hint="is the disk of the Docker engine full? `docker system df`",
                    )


def _pack(target: Any, recipe_folder: Path, software: Mapping[str, Path]) -> None:
    """The build context. Times and owners are left out, so equal content is an equal layer."""
    with tarfile.open(fileobj=target, mode="w") as tar:
        for path in _files(recipe_folder):
            _add(tar, path, str(path.relative_to(recipe_folder)))
        for name, path in software.items():
            _add(tar, path, name)


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    member = tarfile.TarInfo(name)
    member.size = path.stat().st_size
    with path.open("rb") as file:
        # Not the file's own mode: an installed package may have lost it.
        member.mode = 0o755 if file.read(4).startswith((b"#!", b"\x7fELF")) else 0o644
        file.seek(0)
        tar.addfile(member, file)
