"""What the system itself says about memory: whether it killed somebody for want of it, and what a process holds."""

from pathlib import Path

import psutil


def kills(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """How many processes of this control group the kernel has killed for want of memory; 0 where nobody counts.

    Counted before and after a run it tells a kill by the system from one by hand: both are a SIGKILL.
    """
    try:
        group = next(line[3:] for line in own.read_text().splitlines() if line.startswith("0::"))
        events = (root / group.strip("/") / "memory.events").read_text()
        return int(next(line.split()[1] for line in events.splitlines() if line.startswith("oom_kill ")))
    except (OSError, StopIteration, ValueError):
        return 0


def private_mb() -> float:
    """The memory that this process holds for itself, in MB."""
    return psutil.Process().memory_full_info().uss / 2**20
