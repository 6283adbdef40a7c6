"""docs/reference/options.md: the options of every client, as far as its worker.toml names them."""

from __future__ import annotations

from collections.abc import Iterator

from docs.markdown import MADE, item, paragraph
from harness.workers import is_ours, known_workers
from harness.workers.spec import SettingFacts, WorkerSpec

_ABOUT = (
    "`options:` of a producer or consumer has the client's own options under its own names, for example "
    "`options: {acks: all}`. A client takes every option that its version has, not only the ones below: "
    "`brokerstorm plan` asks the client and names each option that it refuses, with one of a similar name.",
    "*Decides a promise*: what a run may expect of it (no loss, order, no duplicates) depends on "
    "it. *Set unless you write it*: brokerstorm's value, which differs from the client's own "
    "default. *Refused*: brokerstorm sets it itself.",
)


def options_page() -> str:
    """The whole page."""
    lines = ["# Options of clients", "", MADE]
    for text in _ABOUT:
        lines += ["", *paragraph(text)]
    for library, worker in sorted(known_workers().items()):
        if is_ours(worker):
            lines += ["", f"## {library}", "", *_client(worker)]
    return "\n".join(lines) + "\n"


def _client(worker: WorkerSpec) -> Iterator[str]:
    yield from paragraph(worker.options_are)
    yield ""
    yield from _list("Decides a promise", sorted(_promising(worker)))
    for role, options in worker.options.items():
        yield from _list(
            f"Set unless you write it ({role})",
            [f"{key}={value}" for key, value in options.items()],
        )
    yield from _list("Takes security settings", sorted(worker.security_options))
    refused = [name for name in worker.reserved if name not in worker.instead]
    yield from _list("Refused", refused)
    for name, instead in worker.instead.items():
        yield from item(f"Refused: `{name}`: {instead}")


def _promising(worker: WorkerSpec) -> set[str]:
    facts = list(vars(worker.promises).values()) if worker.promises else []
    named = {option for each in facts if isinstance(each, SettingFacts) for option in each.options}
    return named | {*(worker.codec.options if worker.codec else ())}


def _list(title: str, names: list[str]) -> Iterator[str]:
    if names:
        yield from item(f"{title}: {', '.join(f'`{name}`' for name in names)}")
