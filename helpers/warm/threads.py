"""How many threads a kernel computes with: as many as if it had been started cold."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping

# which variables a library reads at its start, the first that is set counts
_READ = {
    "torch": ("OMP_NUM_THREADS", "MKL_NUM_THREADS"),
    "openmp": ("OMP_NUM_THREADS",),
    "openblas": ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"),
    "mkl": ("MKL_NUM_THREADS", "OMP_NUM_THREADS"),
}
_ASK = """
import json, numpy, scipy.linalg, sklearn.utils._openmp_helpers, threadpoolctl, torch
pools = threadpoolctl.threadpool_info()
print(json.dumps({**{pool["internal_api"]: pool["num_threads"] for pool in pools}, "torch": torch.get_num_threads()}))
"""


def ask_a_cold_process(environment: Mapping[str, str]) -> subprocess.Popen:
    """Start a process that tells how many threads the libraries take when no variable says so.

    The warm process must not ask itself: it keeps to one thread, since a process that has computed with two leaves
    children that hang at their first parallel operation.
    """
    names = {name for read in _READ.values() for name in read}
    free = {name: value for name, value in environment.items() if name not in names}
    return subprocess.Popen([sys.executable, "-c", _ASK], env=free, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)


def answer(process: subprocess.Popen) -> dict[str, int]:
    """What that process told, by library."""
    return json.loads(process.communicate()[0])


class Threads:
    """The thread pools that are loaded, to be set in a fork."""

    def __init__(self, usual: dict[str, int]):
        """Find the pools.

        Args:
            usual: by library, the number of threads without any variable.
        """
        from threadpoolctl import ThreadpoolController

        self._usual = usual
        self._pools = ThreadpoolController().lib_controllers

    def set(self, environment: Mapping[str, str]) -> None:
        """Set all pools of this process as the libraries would have done at their start in this environment."""
        import torch

        cores = len(os.sched_getaffinity(0))
        for pool in self._pools:
            wanted = self._wanted(pool.internal_api, environment)
            # OpenBLAS takes no more threads than there are cores, whatever it is told
            pool.set_num_threads(min(wanted, cores) if pool.internal_api == "openblas" else wanted)
        torch.set_num_threads(self._wanted("torch", environment))

    def _wanted(self, library: str, environment: Mapping[str, str]) -> int:
        for name in _READ.get(library, ()):
            number = environment.get(name, "").split(",")[0].strip()
            if number.isdecimal() and int(number) > 0:
                return int(number)
        return self._usual.get(library, 1)
