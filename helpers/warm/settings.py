"""What torch, numpy, pandas and matplotlib let a notebook set for the whole process."""

import sys
import warnings
from typing import Any

_HOOKS = ("forward_hooks", "forward_pre_hooks", "backward_hooks", "backward_pre_hooks")
_noted: dict[str, Any] = {}


def note() -> None:
    """Import the libraries and note how they are set."""
    import matplotlib.pyplot
    import numpy as np
    import pandas  # noqa: F401
    import torch

    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    _noted.update(
        rc=matplotlib.rcParams.copy(),
        prints=np.get_printoptions(),
        errors=np.geterr(),
        dtype=torch.get_default_dtype(),
        threads=torch.get_num_threads(),
        precision=torch.get_float32_matmul_precision(),
        flags=[
            (part, name, getattr(part, name))
            for part, name in (
                (cudnn, "benchmark"),
                (cudnn, "deterministic"),
                (cudnn, "allow_tf32"),
                (matmul, "allow_tf32"),
            )
        ],
    )


def restore() -> None:
    """Set them as they were."""
    import matplotlib.pyplot as plt
    import numpy as np
    import pandas as pd
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of options that are about to go
        pd.reset_option("all")
        plt.rcParams.update(_noted["rc"])
    plt.close("all")
    np.set_printoptions(**_noted["prints"])
    np.seterr(**_noted["errors"])
    torch.set_default_dtype(_noted["dtype"])
    torch.set_default_device(None)
    torch.set_num_threads(_noted["threads"])
    torch.set_float32_matmul_precision(_noted["precision"])
    for part, name, value in _noted["flags"]:
        setattr(part, name, value)
    torch.set_grad_enabled(True)
    torch.use_deterministic_algorithms(False)
    torch.set_printoptions(profile="default")
    for name in _HOOKS:
        getattr(torch.nn.modules.module, f"_global_{name}").clear()
    if torch.cuda.is_initialized():
        torch.cuda.set_device(0)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def reseed() -> None:
    """Seed the global generators as a new process does."""
    sys.modules["numpy"].random.seed()
    sys.modules["torch"].seed()  # of every device
