"""Links between files of the repository become links between pages, or text where there is no page."""

import posixpath
import re
from collections.abc import Mapping

from helpers import badges

_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
_CODE = re.compile(r"(^[ \t]*(`{3,}|~{3,}).*?^[ \t]*\2[ \t]*$|(?<!`)(`+)(?!`).+?(?<!`)\3(?!`))", re.MULTILINE | re.DOTALL)
_ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def relink(markdown: str, file: str, pages: Mapping[str, str]) -> str:
    """Markdown of a file of the repository, as a page of the book can have it.

    Args:
        markdown: its text.
        file: its path from the root.
        pages: path from the root -> path of the page in the book's source, such as `docs/audit.md` -> `run/audit.md`.
    """
    parts, end = [], 0
    for code in _CODE.finditer(markdown):  # what looks like a link in code is none
        parts += [_LINK.sub(lambda link: _link(link, file, pages), markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, _LINK.sub(lambda link: _link(link, file, pages), markdown[end:])])


def _link(link: re.Match, file: str, pages: Mapping[str, str]) -> str:
    text, target = link[1], link[2]
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
