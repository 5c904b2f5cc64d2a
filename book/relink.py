"""Links between files of the repository become links between pages, or text where there is no page."""

import posixpath
import re
from collections.abc import Mapping

from helpers import badges

_CODE = r"^[ \t]*(?P<fence>`{3,}|~{3,}).*?^[ \t]*(?P=fence)[ \t]*$|(?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)"
_LINK = r"(?<!!)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<target>[^()\s]+)\)"
_CODE_OR_LINK = re.compile(f"{_CODE}|{_LINK}", re.MULTILINE | re.DOTALL)  # what looks like a link in code is none
_ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def relink(markdown: str, file: str, pages: Mapping[str, str]) -> str:
    """Markdown of a file of the repository, as a page of the book can have it.

    Args:
        markdown: its text.
        file: its path from the root.
        pages: path from the root -> path of the page in the book's source, such as `docs/audit.md` -> `run/audit.md`.
    """
    return _CODE_OR_LINK.sub(lambda found: _link(found, file, pages) if found["target"] else found[0], markdown)


def _link(link: re.Match, file: str, pages: Mapping[str, str]) -> str:
    text, target = link["text"], link["target"]
    if _ELSEWHERE.match(target):
        return link[0]
    path, _, anchor = target.partition("#")
    if not path:  # cells have anchors that Sphinx does not know of; the check of the built pages does
        return f'<a href="#{anchor}">{text}</a>'
    place = posixpath.normpath(posixpath.join(posixpath.dirname(file), path))
    if place in pages:
        here = posixpath.dirname(pages.get(file, file))
        page = posixpath.relpath(pages[place], here or ".")
        if anchor:
            return f'<a href="{posixpath.splitext(page)[0]}.html#{anchor}">{text}</a>'
        return f"[{text}]({page})"
    repository = badges.repository()
    return f"[{text}](https://github.com/{repository}/blob/main/{place})" if repository else text
