"""What a sweep may use, and how each of its runs ended."""

from dataclasses import dataclass
from pathlib import Path

from helpers.batch.planned import Plan


@dataclass(frozen=True)
class Limits:
    """What a sweep may use: workers at a time, seconds and private MB of a run, repetitions of one that was killed.

    Attributes:
        stay: whether a worker's kernel stays for its next runs, reset instead of fresh.
    """

    workers: int
    timeout: float | None = None
    memory_mb: float | None = None
    retries: int = 1
    stay: bool = False


@dataclass
class Ending:
    """How a run of the plan ended, or that it never ran."""

    plan: Plan
    status: str
    folder: Path | None = None
    failure: str | None = None
    seconds: float | None = None
    before: bool = False  # it was done before this sweep began, or by another
