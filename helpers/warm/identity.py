"""What a warm process was made from, so that nobody gets kernels with older sources or another environment."""

import hashlib
import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

HELPERS = Path(__file__).resolve().parents[1]
# what only drives, which a warm process does not import: a kernel that wants it reads it from the disk
APART = ("audit", "batch", "cli", "doctor", "gallery", "skeleton")

# Read by libraries while they are imported (or by the C library at start), hence fixed once a process is warm
_PREFIXES = (
    *("ACCELERATE_", "ATEN_", "DNNL_", "GOMP_", "HF_", "HUGGINGFACE_", "KMP_", "LC_", "LD_", "MATPLOTLIB", "MKL_"),
    *("NPY_", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTHON", "PYTORCH_", "SKLEARN_", "TORCH_", "TQDM_", "TRANSFORMERS_"),
    "XDG_",
)
_NAMES = ("HOME", "LANG", "LANGUAGE", "MPLCONFIGDIR")
# set anew in each kernel (threads), or taken out of every kernel's environment by Jupyter
_FREE = ("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONEXECUTABLE")
# a warm process has these whether or not its owner said so: the runner sets the first for its kernels, scikit-learn the
# others in every process that imports it
DEFAULTS = {"OMP_WAIT_POLICY": "passive", "KMP_DUPLICATE_LIB_OK": "True", "KMP_INIT_AT_FORK": "FALSE"}


def identity() -> str:
    """A hash over the interpreter, the installed distributions, and the sources of helpers that a warm process imports.

    It takes milliseconds: the client asks at every kernel, since a source may have changed a moment ago.
    """
    paths = sysconfig.get_paths()
    told = [sys.version, os.path.realpath(sys.executable), sys.prefix, str(HELPERS)]
    for place in sorted({paths["purelib"], paths["platlib"]}):
        told += sorted(name for name in os.listdir(place) if name.endswith((".dist-info", ".egg-info")))
    for file in sorted(HELPERS.rglob("*.py")):
        if file.relative_to(HELPERS).parts[0].removesuffix(".py") not in APART:
            told += [str(file), hashlib.sha256(file.read_bytes()).hexdigest()]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def fixed(environment: Mapping[str, str]) -> dict[str, str]:
    """Those variables of an environment that a kernel cannot have other than the process it is forked from."""
    chosen = {
        name: value
        for name, value in environment.items()
        if (name.startswith(_PREFIXES) or name in _NAMES) and name not in _FREE
    }
    return {**DEFAULTS, **chosen}
