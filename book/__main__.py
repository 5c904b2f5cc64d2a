"""`python -m book [FOLDER]`: builds the site into book/_build, or into the folder that is named."""

import sys
from pathlib import Path

from book.build import build
from helpers.errors import HookbookError


def main(arguments: list[str]) -> int:
    """Build, say what is wrong with the site, and return the exit code."""
    out = Path(arguments[0]) if arguments else Path(__file__).parent / "_build"
    try:
        complaints = build(out)
    except HookbookError as error:
        complaints = [str(error)]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    print(f"The book does not build: {len(complaints)} complaints." if complaints else f"Open {out / 'index.html'}")
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
