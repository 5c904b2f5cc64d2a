"""Badges that open a notebook in Colab or Binder, once pyproject.toml names the repository."""

import tomllib
from urllib.parse import quote, urlsplit

from helpers.papers import ROOT, Paper


def repository(pyproject: str | None = None) -> str | None:
    """`owner/name` of the repository on GitHub that `[project.urls] Repository` names, or None while it names none."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8") if pyproject is None else pyproject
    url = urlsplit(tomllib.loads(text)["project"].get("urls", {}).get("Repository", ""))
    return url.path.strip("/").removesuffix(".git") if url.hostname == "github.com" else None


def badges(entry: Paper, name: str | None = None) -> str:
    """Markdown of the two badges of a paper's notebook; nothing while no repository is configured."""
    name = name or repository()
    if not name:
        return ""
    path = quote(entry.notebook.relative_to(ROOT).as_posix())
    colab = f"https://colab.research.google.com/github/{name}/blob/main/{path}"
    binder = f"https://mybinder.org/v2/gh/{name}/main?labpath={quote(path, safe='')}"
    return f"[Open in Colab]({colab}) · [Open in Binder]({binder})"
