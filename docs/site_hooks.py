"""Hooks of mkdocs: pages of the repository's top folder, and links that leave docs/."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

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


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the top folder."""
    for source, page in _TOP_PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Rewrite links for the site.

    Links in a page of the top folder are relative to that folder. A link to a file that is no page of the
    site leads to the repository (the environment variable REPOSITORY_URL); without it, only its text and path
    stay.
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
    return "".join([*parts, _LINK.sub(rewritten, markdown[last:])])
