"""Makes a bundle: gathers, redacts, cuts to size and writes it, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from analysis.capture.left_out import LeftOut
from experiments.bundle import logs
from experiments.bundle.archive import most_bytes, write_archive
from experiments.bundle.contents import (
    Judged,
    Texts,
    is_log,
    is_talk,
    read_judged,
    read_texts,
    stamps_of,
)
from experiments.bundle.cover import Cover
from experiments.bundle.fitting import BucketChoice, choices
from experiments.bundle.issue import issue_text
from experiments.bundle.secrets import Redactor, written_forms
from harness import __version__
from harness.errors import BrokerstormError, UsageError
from harness.log_stamp import Stamp
from harness.rundir import RunDir

#: Compressed bytes that a name and its header take, about.
_HEADER_BYTES: Final = 60
_SMALL_BYTES: Final = 1 << 18
#: How much of the logs is kept: everything, then this many seconds around what was found.
_LOG_WINDOWS_S: Final = (None, logs.AROUND_S, 2.0)

Files = dict[str, bytes | Path]


@dataclass(frozen=True, slots=True)
class Made:
    """A bundle that was written. ``left_out``: a sentence for each part that it does not hold."""

    path: Path
    bytes: int
    files: int
    redacted: int
    left_out: list[str]


@dataclass(slots=True)
class _BundleDraft:
    """The content of a bundle before its size is known: cleaned texts, and what was done to
    them."""

    judged: Judged
    texts: Texts
    redactor: Redactor
    stamps: Mapping[Path, Sequence[Stamp]]
    redacted: dict[str, int] = field(default_factory=dict)

    def clean(self, name: str, text: str) -> str:
        """Return the text without secrets, and note how many were removed."""
        made, count = self.redactor.redacted(name, text)
        if count:
            self.redacted[name] = self.redacted.get(name, 0) + count
        return made


def make_bundle(root: RunDir, target: Path, most: int, environment: Mapping[str, str]) -> Made:
    """Write the bundle of a judged run or campaign to ``target``, of at most ``most`` bytes.

    Args:
        environment: variables of this process; values of those named as secrets are redacted.

    Raises:
        UsageError: the run is not finished, or does not fit.
    """
    judged = read_judged(root)
    redactor = Redactor(environment, _ordinary(judged))
    draft = _BundleDraft(judged, read_texts(root), redactor, stamps_of(judged))
    for name, text in draft.texts.files.items():
        draft.redactor.collect(name, text)
    draft.texts.files = {name: draft.clean(name, text) for name, text in draft.texts.files.items()}
    _mend_seals(judged, draft)
    tightest: tuple[int, BucketChoice] | None = None
    for choice, window_s in _attempts(judged):
        files, left_out = _files(draft, choice, window_s)
        needed = _estimate(files)
        if tightest is None or needed < tightest[0]:
            tightest = needed, choice
        if needed > most:
            continue
        files = _with_cover(draft, target.name, files, left_out)
        _require_clean(files, draft.redactor)
        size = _write(target, root.run_id, files, most)
        if size <= most:
            return Made(target, size, len(files), sum(draft.redacted.values()), left_out)
    assert tightest is not None
    raise _too_large(judged, most, *tightest)


def _attempts(judged: Judged) -> Iterator[tuple[BucketChoice, float | None]]:
    """The capture is worth more than the logs."""
    for choice in choices(judged):
        for window_s in _LOG_WINDOWS_S:
            yield choice, window_s


def _ordinary(judged: Judged) -> Iterable[str]:
    """Names of topics, nodes and clients: words of every log."""
    for each in judged.rounds:
        plan = each.plan
        yield from (plan.scenario, plan.variant, plan.system, plan.version)
        yield from (topic.name for topic in plan.topics)
        yield from (
            name for producer in plan.producers for name in (producer.name, producer.client)
        )
        yield from (
            name for each in plan.consumers for name in (each.name, each.client, each.group)
        )
        yield from (usage.name for usage in each.result.usage)


# -- what goes in


def _files(
    draft: _BundleDraft, choice: BucketChoice, window_s: float | None
) -> tuple[Files, list[str]]:
    """Everything but the cover, and a sentence for each part that is left out."""
    files: Files = {}
    left_out = [f"{name}: {why}" for name, why in sorted(draft.texts.omitted.items())]
    moments = sorted(_moments(draft.judged)) if window_s is not None else []
    for name, text in draft.texts.files.items():
        if window_s is None or not (is_log(name) or is_talk(name)):
            files[name] = _encoded(text)
        elif is_log(name) and (cut := _cut(draft, name, moments, window_s)) != text:
            files[name] = _encoded(cut)
            left_out.append(f"{name}: all but its ends and {window_s:.0f} s around what was found")
        elif is_log(name):
            files[name] = _encoded(text)
    if window_s is not None and any(map(is_talk, draft.texts.files)):
        left_out.append("raw/*/stdout.jsonl: messages from workers to the harness")
    for each in draft.judged.rounds:
        kept = choice.kept[each.prefix]
        files |= dict(each.sealed_files(kept))
        if gone := each.left_out(kept):
            files[each.prefix + each.run.left_out.name] = _document(draft, gone)
            left_out.append(f"{each.prefix or 'the run'}: {gone.text}")
    return files, left_out


def _cut(draft: _BundleDraft, name: str, moments_s: Sequence[float], window_s: float) -> str:
    """A log around what was found."""
    stamps = draft.stamps.get(draft.texts.paths[name], ())
    return logs.around(draft.texts.files[name], stamps, moments_s, window_s)


def _document(draft: _BundleDraft, gone: LeftOut) -> bytes:
    """left-out.json; what was judged before says nothing that result.json may not."""
    return _encoded(draft.redactor.redacted("left-out.json", _json(gone.document()))[0])


def _moments(judged: Judged) -> Iterator[float]:
    """Seconds since 1970 of what the report shows; of a run that found nothing, of its faults."""
    for each in judged.rounds:
        zero = logs.utc_s(each.result.started)
        if zero is None:
            continue
        shown = [w.t_s for finding in each.result.findings for w in finding.witnesses if w.t_s]
        shown += [hang.t_s for hang in each.result.hangs]
        yield from (zero + t_s for t_s in shown or [fault.t_s for fault in each.result.faults])


def _mend_seals(judged: Judged, draft: _BundleDraft) -> None:
    """A sealed document that was redacted has another checksum: seal.json says the new one."""
    for each in judged.rounds:
        name = each.prefix + each.run.seal_report.relative_to(each.run.root).as_posix()
        sealed = json.loads(draft.texts.files[name])
        folder = name.removesuffix(each.run.seal_report.name)
        beside = {"files": folder, "documents": each.prefix}
        changed = [
            (sealed[kind][path], draft.texts.files[where + path])
            for kind, where in beside.items()
            for path in sealed.get(kind) or {}
            if where + path in draft.redacted
        ]
        for entry, text in changed:
            data = _encoded(text)
            entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        if changed:
            draft.texts.files[name] = _json(sealed)


def _with_cover(draft: _BundleDraft, archive: str, files: Files, left_out: list[str]) -> Files:
    """Return the files with bundle.json and issue.md. ``archive`` is the name of the file that is
    written."""
    judged = draft.judged
    issue = draft.clean("issue.md", issue_text(judged, archive, left_out))
    cover = Cover(
        made_by=f"brokerstorm {__version__}",
        run=judged.root.run_id,
        rounds=[each.run.run_id for each in judged.rounds] if judged.campaign else [],
        left_out=left_out,
        redacted=dict(sorted(draft.redacted.items())),
    )
    return files | {"bundle.json": _encoded(_json(asdict(cover))), "issue.md": _encoded(issue)}


# -- size


def _estimate(files: Files) -> int:
    """Bytes of the archive, about."""
    return sum(_packed(content) + _HEADER_BYTES for content in files.values())


def _packed(content: bytes | Path) -> int:
    """Large sealed files are packed already."""
    if isinstance(content, Path):
        size = content.stat().st_size
        if size > _SMALL_BYTES:
            return size
        content = content.read_bytes()
    return len(zlib.compress(content, 6))


def _write(target: Path, folder: str, files: Files, most: int) -> int:
    """Write the archive under its name if it is small enough; its size in bytes."""
    try:
        handle, part = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:80]}.part-")
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            write_archive(file, folder, files)
            size = file.tell()
        if size <= most:
            _require_openable(target, files, size)
            os.chmod(part, 0o644)
            os.replace(part, target)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from error
    finally:
        Path(part).unlink(missing_ok=True)
    return size


def _require_openable(target: Path, files: Files, size: int) -> None:
    unpacked = sum(
        content.stat().st_size if isinstance(content, Path) else len(content)
        for content in files.values()
    )
    if unpacked > most_bytes(size):
        raise UsageError(
            f"{target} would unpack to {unpacked >> 20:,} MiB from {megabytes(size)}, which `open` refuses",
            hint="remove the largest logs of the run, or give a smaller --max-size so that logs are cut",
        )


def _too_large(judged: Judged, most: int, needed: int, choice: BucketChoice) -> UsageError:
    """Return the error that names what is too large, and what to do."""
    capture = choice.bucket_bytes(judged)
    sizes = [
        (each.bucket_bytes(frozenset({number})), f"bucket {number} of {each.run.run_id}")
        for each in judged.rounds
        for number in choice.kept[each.prefix]
    ]
    largest, name = max(sizes, default=(0, ""))
    most_of_it = f" ({name} alone {megabytes(largest)})" if name else ""
    one = f", or one run of it: {judged.rounds[0].run.root}" if len(judged.rounds) > 1 else ""
    return UsageError(
        f"{judged.root.run_id} does not fit into {megabytes(most)}: {megabytes(capture)} for {choice.what}"
        f"{most_of_it}, {megabytes(max(needed - capture, 0))} for documents and logs",
        hint=f"--max-size {-(-needed * 21 // 20_000_000)}MB takes it{one}",
    )


def megabytes(count: int) -> str:
    """``7.8 MB``."""
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count / 1e3:,.1f} kB"


# -- the last look


def _require_clean(files: Files, redactor: Redactor) -> None:
    """No file contains a known secret, however it is written.

    Raises:
        BrokerstormError: one does; nothing is written.
    """
    forms = _bytes_of(redactor.secrets)
    for name, content in files.items():
        if isinstance(content, bytes) and any(form in content for form in forms):
            raise BrokerstormError(f"a secret would be left in {name}; no bundle was written")


def _bytes_of(secrets: Iterable[str]) -> Sequence[bytes]:
    return [
        form.encode("utf-8", "surrogateescape")
        for secret in sorted(secrets)
        for form in written_forms(secret)
    ]


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _json(document: Any) -> str:
    return json.dumps(document, indent=1) + "\n"
