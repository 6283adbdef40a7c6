"""The docs: links lead somewhere, what is named exists, pages about the code say what is in the
code."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import cast

import click
import pytest

from cli import cli
from harness.errors import Exit
from harness.scenario.bundled import bundled_bugs
from tests.howto import files_of
from tests.unit.test_imports import ROOT, imports, module_file, name_of, sources

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PARTS = (
    *("analysis", "bench", "commands", "compose", "docs", "experiments"),
    *("faults", "harness", "scenarios", "tests"),
)
#: Files that readers of a how-to make.
WRITTEN = {name for page in PAGES if page.parent.name == "howto" for name in files_of(page)}
LINK = re.compile(r"\]\(([^)\s]+)\)")
#: ``harness/run/lifecycle.py``; with ``<name>`` or ``*`` any that fits.
FILE = re.compile(rf"(?<![\w/.<>-])((?:{'|'.join(PARTS)})/[\w./*<>-]*[\w*>/])")
#: A module, class or function by its whole name.
DOTTED = re.compile(
    r"`((?:analysis|commands|experiments|faults|harness)(?:\.\w+)+)(?<!\.jsonl)(?<!\.sqlite)`"
)


def without_code_blocks(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


@cache
def anchors(page: Path) -> frozenset[str]:
    """What a code host makes of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", without_code_blocks(page), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return frozenset(
        re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain
    )


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(without_code_blocks(page)):
        if "://" in link or link.startswith("mailto:"):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def missing_files(text: str) -> list[str]:
    found = {re.sub(r"<[^>]*>", "*", path) for path in FILE.findall(text) if "..." not in path}
    return sorted(path for path in found if path not in WRITTEN and not any(ROOT.glob(path)))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_a_page_names_exist(page: Path) -> None:
    assert missing_files(page.read_text()) == []


def test_files_that_the_code_names_exist() -> None:
    found = {name_of(path): missing_files(path.read_text()) for path in sources()}
    assert {name: missing for name, missing in found.items() if missing} == {}


def is_defined(dotted: str) -> bool:
    """Whether a dotted name is a module, or a name that its module defines or imports."""
    module, _, name = dotted.rpartition(".")
    if not module:
        return False
    if module_file(dotted) is not None:
        return True
    file = module_file(module)
    if file is None:
        return is_defined(module)  # a member of a class
    return (
        re.search(
            rf"^(?:class |def |from .* import .*\b)?{name}\b|^ +{name},$", file.read_text(), re.M
        )
        is not None
    )


def test_names_that_the_code_mentions_exist() -> None:
    """Docstrings and comments point to modules, classes and functions by their dotted names."""
    wrong = [
        f"{name_of(path)}: {dotted}"
        for path in sources()
        for dotted in DOTTED.findall(path.read_text())
        if not is_defined(dotted)
    ]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_and_options_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    code = re.findall(r"^```\w*\n(.*?)^```|`([^`\n]+)`", text, re.DOTALL | re.MULTILINE)
    wrong = []
    for block in (re.sub(r"\n +--", " --", "".join(found)) for found in code):
        for call in re.findall(r"brokerstorm (?!-)([a-z][^\n;|#>]*)", block):
            words, command = call.split(), cast("click.Command", cli)
            while words and isinstance(command, click.Group) and words[0] in command.commands:
                command = command.commands[words.pop(0)]
            known = {
                name for each in (cli, command) for option in each.params for name in option.opts
            }
            options = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
            if command is cli or not known.issuperset(options):
                wrong.append(call)
    assert wrong == []


# ----- architecture.md ----------------------------------------------------------------------------


@cache
def rooms() -> list[str]:
    """The packages of architecture.md in its order."""
    page = ROOT / "docs" / "explanation" / "architecture.md"
    return re.findall(r"^- `([\w/]+)`: ", page.read_text(), re.MULTILINE)


def package_of(path: Path) -> str:
    return name_of(path.parent)


def imports_between_packages() -> Iterator[tuple[Path, str]]:
    """(module, package it imports from), of the modules that stand in a package."""
    for path in sources():
        if package_of(path) in rooms():
            targets = (module_file(module) for _, module in imports(path))
            yield from ((path, package_of(target)) for target in targets if target is not None)


def test_every_command_has_a_man_page(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "docs.man_pages", tmp_path], check=True, cwd=ROOT)
    pages = {page.stem: page.read_text() for page in tmp_path.glob("*.1")}
    shown = [name for name, command in cli.commands.items() if not command.hidden]
    assert {"brokerstorm", *(f"brokerstorm-{name}" for name in shown)} <= set(pages)
    assert not [name for name, text in pages.items() if "..." in text.partition(".SH SYNOPSIS")[0]]


def test_the_architecture_page_lists_every_package() -> None:
    parts = ("analysis/", "commands/", "experiments/", "faults/", "harness/")
    packages = {package_of(path) for path in sources() if name_of(path).startswith(parts)}
    assert sorted(rooms()) == sorted(packages - {"analysis", "experiments", "faults", "harness"})


def test_the_architecture_page_names_every_module_beside_packages() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    beside = [
        name_of(path)
        for path in sources()
        if re.fullmatch(r"(analysis|harness)/(?!__)\w+\.py", name_of(path))
    ]
    assert [name for name in beside if f"`{name}`" not in page] == []


def test_the_architecture_page_lists_packages_above_what_they_import() -> None:
    height = {room: number for number, room in enumerate(rooms())}
    wrong = [
        f"{name_of(path)} imports {target}"
        for path, target in imports_between_packages()
        if target in height and height[target] < height[package_of(path)]
    ]
    assert wrong == []


# ----- troubleshooting.md -------------------------------------------------------------------------

TROUBLE = ROOT / "docs" / "howto" / "troubleshooting.md"


def test_troubleshooting_has_every_exit_code() -> None:
    table = TROUBLE.read_text().partition("## When the verdict is unknown")[0]
    listed = {
        int(code)
        for cell in re.findall(r"^\| ([\d, ]+) \|", table, re.M)
        for code in cell.split(",")
    }
    assert listed == {code.value for code in Exit}


def test_troubleshooting_quotes_messages_that_there_are() -> None:
    """``...`` in a message stands for a name or a number."""
    text = "".join(
        path.read_text() for path in sources() if not name_of(path).startswith(("tests/", "docs/"))
    )
    quoted = re.findall(r"^\| `(.+?)` \| ", TROUBLE.read_text(), re.M)
    parts = [part.strip() for message in quoted for part in message.split("...")]
    assert len(quoted) > 20
    assert [part for part in parts if part not in text] == []


def linked_from(page: Path) -> set[Path]:
    """Files that a page links to."""
    return {
        (page.parent / link.partition("#")[0]).resolve() for link in LINK.findall(page.read_text())
    }


def test_the_index_links_to_every_page_but_those_of_single_bugs() -> None:
    index = ROOT / "docs" / "index.md"
    bugs = {ROOT / "docs" / "bugs" / f"{name}.md" for name in bundled_bugs()}
    linked = linked_from(index) | bugs | {index}
    assert [name_of(page) for page in index.parent.rglob("*.md") if page not in linked] == []


def test_every_page_is_reached_from_a_page_that_is_not_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    others = [page for page in PAGES if page != index]
    linked = set().union(*(linked_from(page) - {page} for page in others))
    assert [name_of(page) for page in others if page.parent != ROOT and page not in linked] == []


def test_the_site_lists_every_page_but_those_of_single_bugs() -> None:
    """`make site` would refuse it, too, but only where its tools are installed."""
    listed = set(re.findall(r": ([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    docs = ROOT / "docs"
    pages = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
    bugs = {f"bugs/{name}.md" for name in bundled_bugs()}
    of_the_top_folder = {"overview.md", "changelog.md", "security.md", "contributing.md"}
    assert listed == (pages - bugs) | of_the_top_folder


def test_the_vocabulary_names_classes_that_there_are() -> None:
    table = (
        (ROOT / "docs" / "explanation" / "architecture.md")
        .read_text()
        .partition("## Names in the code")[2]
    )
    code = "".join(path.read_text() for path in sources())
    names = re.findall(r"`(\w+)`", table)
    assert names
    assert [name for name in names if not re.search(rf"^class {name}\b", code, re.MULTILINE)] == []


def test_the_messages_on_the_troubleshooting_page_are_those_that_programs_print() -> None:
    """A reader searches the page for the words on the terminal."""
    page = (ROOT / "docs" / "howto" / "troubleshooting.md").read_text()
    tables = page.partition("## When something is not ready")[2]
    rows = re.findall(r"^\| (.+?) \|", tables, re.MULTILINE)
    quoted = [
        part.strip()
        for row in rows
        for text in re.findall(r"`([^`]+)`", row)
        for part in text.split("...")
    ]
    code = re.sub(r'"\s*\n\s*f?"', "", " ".join(path.read_text() for path in sources()))
    assert len(quoted) > 15
    assert [text for text in quoted if text not in " ".join(code.split())] == []


#: What makes pip take our name from a package index: not a path, a wheel or a URL.
BY_NAME = re.compile(
    r"""pip install[^`\n#]*?[\s'"]brokerstorm(?=$|[\s'"`\[=<>~])|["']brokerstorm(\[\w+\])?["'],?\s*\]"""
)


def test_nothing_says_to_install_us_from_an_index() -> None:
    """There is no release: whoever registers the name would be installed."""
    suffixes = {".md", ".py", ".toml", ".yml", ".yaml"}
    folders = (
        "analysis",
        "commands",
        "docs",
        "examples",
        "experiments",
        "harness",
        "launcher",
        "workers",
    )
    files = [
        *PAGES,
        *(path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()),
    ]
    named = {
        path.relative_to(ROOT).as_posix(): found[0]
        for path in files
        if path.suffix in suffixes and (found := BY_NAME.search(path.read_text(errors="replace")))
    }
    assert named == {}
