"""What both figures of an audit are made of: a value with its interval, and the region that was tested."""

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes


@dataclass(frozen=True)
class Point:
    """A row of a strip: what it is called, what was found, the words beside it, and how it looks."""

    name: str
    found: dict[str, Any]
    aside: str
    colour: str
    marker: str

    def draw(self, ax: Axes, height: float) -> None:
        """Draw value and interval at that height, as far as there are any."""
        if self.found["interval"]:
            ax.hlines(height, *self.found["interval"], color=self.colour, lw=2)
        if self.found["value"] is not None:
            ax.plot(self.found["value"], height, marker=self.marker, color=self.colour, ms=6, ls="none")


def edges(claim: dict[str, Any]) -> list[float]:
    """The finite ends of the tested region."""
    return [edge for edge in claim["region"] if edge is not None]


def measured(found: dict[str, Any]) -> list[float]:
    """The numbers that an axis has to show."""
    return [value for value in (found["value"], *(found["interval"] or ())) if value is not None]
