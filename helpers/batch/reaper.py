"""What outlives a sweep for a moment: a process that kills the kernels of a sweep which was killed without warning.

A kernel leads a process group of its own, so that `kill -9` of the sweep's group leaves it running. This process, which
leads one too, reads from a pipe which kernels there are; the pipe ends when the supervisor is gone, however it went.
"""

import json
import signal
import sys

import psutil


def kill(processes: list[tuple[int, float]]) -> None:
    """Kill the processes, given by id and time of birth: an id alone may belong to somebody else by now."""
    for pid, born in processes:
        try:
            process = psutil.Process(pid)
            if abs(process.create_time() - born) < 0.1:
                process.kill()
        except psutil.Error:
            continue


def main() -> None:
    """Keep the last list that each worker sent, and kill what is on them once nobody can send any more."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    known: dict[int, list] = {}
    for line in sys.stdin.buffer:
        worker, processes = json.loads(line)
        known[worker] = processes
    kill([process for processes in known.values() for process in processes])


if __name__ == "__main__":
    main()
