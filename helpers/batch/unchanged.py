"""Whether what a sweep's runs are named by is still what it was when they were named."""

from pathlib import Path

from helpers.batch.plan import SweepPlan, base
from helpers.fingerprint import shared


class Unchanged:
    """Whether what the runs' ids stand for is still so; files are hashed again only when one of them was written."""

    def __init__(self, plan: SweepPlan):
        self._plan = plan
        self._seen = self._look()

    def problem(self) -> str | None:
        """What to tell the user when something that results depend on has changed since the plan was made."""
        now = self._look()
        if now == self._seen:
            return None
        self._seen = now
        for slug, notebook in self._plan.notebooks.items():
            copy = next((self._plan.folder / "notebooks" / base(notebook)).glob("*.ipynb"))
            fresh = shared(copy).hard
            changed = [name for name, value in notebook.shared.hard.items() if fresh.get(name) != value]
            if changed or fresh.keys() != notebook.shared.hard.keys():
                what = ", ".join(changed) or "what it imports"
                return f"{slug} depends on {what}, which changed while the sweep ran: give the same command again."
        return None

    def _look(self) -> dict[Path, tuple[int, int] | None]:
        files = {file for notebook in self._plan.notebooks.values() for file in notebook.shared.files}
        return {file: _stat(file) for file in files}


def _stat(file: Path) -> tuple[int, int] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size
