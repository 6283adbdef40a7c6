"""Hooks of mkdocs: pages of the top folder, links that leave docs/, and lists that follow text."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).resolve().parent.parent
#: Files of the top folder that are pages of the site.
_TOP_PAGES: Final = {
    "README.md": "overview.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
}
_LINK: Final = re.compile(r"(?P<text>!?\[[^]]*\])\((?P<target>[^)\s]+)\)")
_PARAGRAPH: Final = re.compile(r"<p>(.*?)</p>", re.DOTALL)
#: The first item of a list; a number other than 1 at the begin of a line may be a part of a
#: sentence.
_FIRST_ITEM: Final = re.compile(r"(?:[-*]|1\.) ")
_ANY_ITEM: Final = re.compile(r" *(?:[-*]|\d+\.) ")
_ITEM_IN_A_PARAGRAPH: Final = re.compile(r"\n(?:[-*]|1\.) ")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the top folder."""
    for source, page in _TOP_PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Rewrite links for the site, and separate lists from the text above them.

    Links in a page of the top folder are relative to that folder. A link to a file that is not a
    page of the site leads to the repository (the environment variable REPOSITORY_URL); without it,
    only its text and path stay.
    """
    source = page.file.src_uri
    pages_of_top = {page: name for name, page in _TOP_PAGES.items()}
    folder = "" if source in pages_of_top else posixpath.join("docs", posixpath.dirname(source))
    code = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)

    def rewritten(link: re.Match[str]) -> str:
        target, _, anchor = link["target"].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if path in _TOP_PAGES:
            uri = _TOP_PAGES[path]
        elif path.startswith("docs/") and files.get_file_from_path(path.removeprefix("docs/")):
            uri = path.removeprefix("docs/")
        elif config.repo_url:
            return f"{link['text']}({config.repo_url.rstrip('/')}/blob/main/{path})"
        else:
            return f"{link['text'].strip('![]')} (`{path}`)"
        relative = posixpath.relpath(uri, posixpath.dirname(source) or ".")
        return f"{link['text']}({relative}{'#' + anchor if anchor else ''})"

    parts, last = [], 0
    for block in code.finditer(markdown):
        parts += [_LINK.sub(rewritten, markdown[last : block.start()]), block[0]]
        last = block.end()
    return _with_lists_apart("".join([*parts, _LINK.sub(rewritten, markdown[last:])]))


def _with_lists_apart(markdown: str) -> str:
    """Insert an empty line between a paragraph and a list that follows it.

    Code hosts begin a list there; the Markdown of mkdocs would continue the paragraph.
    """
    lines: list[str] = []
    is_code = is_paragraph = False
    for line in markdown.splitlines():
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            if is_paragraph and _FIRST_ITEM.match(line):
                lines.append("")
            begins_block = not lines or not lines[-1]
            if not line or _ANY_ITEM.match(line):
                is_paragraph = False
            elif begins_block:
                is_paragraph = True
        lines.append(line)
    return "\n".join(lines) + "\n"


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Fail the build if a list of a page is shown as running text.

    Raises:
        PluginError: a paragraph has a line that begins like a list item.
    """
    for paragraph in _PARAGRAPH.findall(html):
        found = _ITEM_IN_A_PARAGRAPH.search(paragraph)
        if found:
            line = paragraph[found.start() :].strip().partition("\n")[0]
            raise PluginError(f"{page.file.src_uri}: a list item is shown as text: {line[:80]}")
    return html
