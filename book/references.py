"""A paper as BibTeX, and what is known of the run that a page shows."""

import re
from typing import Any

from helpers.papers import Paper


def bibtex(paper: Paper) -> str:
    """The entry of a paper; `@inproceedings` where a venue is known to have a year."""
    venue = paper.venue.split(" (also")[0]
    year = re.search(r"\b(?:19|20)\d\d\b", venue)
    fields = {
        "title": f"{{{paper.title}}}",  # twice in braces: BibTeX leaves its capitals alone
        "author": " and ".join(paper.authors),
        "booktitle": venue,
        "year": year[0] if year else "",
        "eprint": paper.arxiv or "",
        "archivePrefix": "arXiv" if paper.arxiv else "",
    }
    kind = "inproceedings" if year else "misc"
    lines = [f"  {name} = {{{_escaped(text)}}}," for name, text in fields.items() if text]
    return "\n".join([f"@{kind}{{{paper.slug},", *lines, "}"])


def provenance(metadata: dict[str, Any]) -> dict[str, str]:
    """Name -> what the runner wrote into a notebook's metadata, in words."""
    known = metadata.get("hookbook", {}).get("provenance", {})
    found = {
        "Run": known.get("date", "").split("T")[0],
        "Preset": known.get("preset", ""),
        "Model": known.get("model", ""),
        "Weights (SHA-256)": known.get("model_sha256") or "",
        "Seed": str(known.get("seed", "")),
        "Took": f"{known['seconds']:.0f} s" if "seconds" in known else "",
        "Memory of its own": f"{known['peak_private_mb'] / 1000:.1f} GB" if known.get("peak_private_mb") else "",
        "Platform": " ".join(part for part in (known.get("platform"), known.get("python")) if part),
        "Libraries": ", ".join(f"{name} {version}" for name, version in known.get("versions", {}).items()),
        "Parent commit": known.get("parent_commit") or "",
    }
    return {name: text for name, text in found.items() if text}


def _escaped(text: str) -> str:
    return re.sub(r"([&%$#_])", r"\\\1", text)
