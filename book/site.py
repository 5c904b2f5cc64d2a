"""What must be true of a built site: links and anchors resolve, nothing is asked of another host, pages are small."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LARGEST = 3_000_000  # bytes, of a page with what it loads
_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "embed": "src", "object": "data"}
_RELATIONS = {"stylesheet", "icon", "preload", "modulepreload", "preconnect", "dns-prefetch", "prefetch", "manifest"}
_CSS_URL = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])((?:https?:)?//[^'\")\s]+)")
_FOREIGN = re.compile(r"^(https?:)?//")


@dataclass
class Page(HTMLParser):
    """A page as far as it is checked: its anchors, its links, what it loads, its pictures."""

    path: Path
    anchors: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    without_alt: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._style = False
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the tag names, leads to or loads."""
        found = {name: value or "" for name, value in attrs}
        self._style = tag == "style"
        self.anchors += [found["id"]] if found.get("id") else []
        self.links += [found["href"]] if tag == "a" and "href" in found else []
        if address := found.get(_LOADED.get(tag, "")):
            self.loaded.append(address)
        if tag == "link" and _RELATIONS & set(found.get("rel", "").split()):
            self.loaded.append(found.get("href", ""))
        self.loaded += [part.split()[0] for part in found.get("srcset", "").split(",") if part.strip()]
        self.loaded += _CSS_URL.findall(found.get("style", ""))
        if tag == "img" and not found.get("alt"):
            self.without_alt.append(found.get("src", "")[:60])

    def handle_data(self, data: str) -> None:
        """Note what a style sheet inside the page loads."""
        if self._style:
            self.loaded += _CSS_URL.findall(data)

    @property
    def size(self) -> int:
        """Bytes of the page and of what it loads from the site."""
        files = {file_of(self.path, address) for address in self.loaded if not address.startswith("data:")}
        return self.path.stat().st_size + sum(file.stat().st_size for file in files if file.is_file())


def pages(site: Path) -> list[Page]:
    """The pages of a site."""
    return [Page(path) for path in sorted(site.rglob("*.html")) if "_static" not in path.relative_to(site).parts]


def complaints(site: Path) -> list[str]:
    """Everything that is wrong with a site, each with its page."""
    site = site.resolve()
    all_pages = {page.path: page for page in pages(site)}
    found = []
    for path, page in all_pages.items():
        found += [f"{path.relative_to(site).as_posix()}: {text}" for text in _complaints(page, site, all_pages)]
    for sheet in sorted(site.rglob("*.css")):
        foreign = _CSS_URL.findall(sheet.read_text(encoding="utf-8", errors="replace"))
        found += [f"{sheet.relative_to(site).as_posix()}: loads {url}" for url in foreign]
    return found


def file_of(page: Path, address: str) -> Path:
    """The file to which an address on a page leads."""
    path = unquote(urlsplit(address).path)
    target = (page.parent / path).resolve() if path else page
    return target / "index.html" if target.is_dir() else target


def _complaints(page: Page, site: Path, all_pages: dict[Path, Page]) -> list[str]:
    found = [f"loads {url}" for url in page.loaded if _FOREIGN.match(url)]
    found += [f"the id {name} stands twice" for name in sorted({n for n in page.anchors if page.anchors.count(n) > 1})]
    found += [f"a picture has no alternative text: {source}" for source in page.without_alt]
    if page.size > LARGEST:
        found.append(f"{page.size / 1e6:.1f} MB with what it loads, more than {LARGEST / 1e6:.0f}")
    for address in dict.fromkeys([*page.links, *page.loaded]):
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        target = file_of(page.path, address)
        if not target.is_file() or not target.is_relative_to(site):
            found.append(f"the link {address} leads nowhere")
        elif target in all_pages and unquote(parts.fragment) not in ("", "top", *all_pages[target].anchors):
            found.append(f"the link {address} finds no such anchor")
    return found
