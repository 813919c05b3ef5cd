"""What the site shows otherwise than the Markdown files themselves.

The files read well on their own, so they link to files of the repository and to the other language.
A site has neither: it has a language switch, and only what lies in ``docs/``.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import PurePosixPath
from typing import Any

REPOSITORY = os.environ.get("REPOSITORY", "").removesuffix("/").removesuffix(".git")
OTHER_LANGUAGE = re.compile(r"^\[(?:中文|English)\]\([^)]*\)\n", re.MULTILINE)
BESIDE = re.compile(r" · \[中文\]\([^)]*\)")
LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)]*)\)")
RECORD = re.compile(r"\[([^\]]*)\]\(((?:\.\./)*records/[^)]*\.json)\)")
ANCHOR = re.compile(r"(\]\([^)#:]+\.md)#[^)]*\)")
TABS = re.compile(r"<!-- tabs -->\n(.*?)<!-- end of tabs -->\n", re.DOTALL)


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Return the page's Markdown as the site has it."""
    folder = PurePosixPath("docs", page.file.src_uri).parent
    text = BESIDE.sub("", OTHER_LANGUAGE.sub("", markdown, count=1))
    if config["plugins"]["i18n"].current_language == "zh" and not page.file.src_uri.endswith(
        ".zh.md"
    ):
        # A page in English alone, whose links lead to pages with Chinese headings.
        text = ANCHOR.sub(r"\1)", text)
    text = RECORD.sub(lambda link: outside(link, folder), text)
    text = LINK.sub(lambda link: outside(link, folder), text)
    return TABS.sub(lambda part: as_tabs(part[1]), text)


def outside(link: re.Match[str], folder: PurePosixPath) -> str:
    """Return a link that leaves the site: to the repository, or as a path in words."""
    path, _, anchor = link[2].partition("#")
    place = posixpath.normpath(folder / path)
    if place.startswith("docs/") and not path.endswith(".json"):
        return link[0]
    if REPOSITORY:
        return f"[{link[1]}]({REPOSITORY}/blob/main/{place}{'#' if anchor else ''}{anchor})"
    return f"{link[1]} (`{place}`)" if place not in link[1] else f"`{place}`"


def as_tabs(text: str) -> str:
    """Return sections of one level as tabs, in which their text is indented."""
    _, *sections = re.split(r"^### ", text, flags=re.MULTILINE)
    tabs = []
    for section in sections:
        title, _, body = section.partition("\n")
        lines = [f"    {line}" if line else "" for line in body.strip().splitlines()]
        tabs.append(f'=== "{title}"\n\n' + "\n".join(lines) + "\n")
    return "\n".join(tabs) + "\n"
