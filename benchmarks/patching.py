"""How fast patch sweeps are beside transformer_lens.patching, and how near to the arithmetic that they need.

`make bench` writes results/patching.json and results/patching.png. Both sides run the same model, folded, in the same
process with the same threads and without gradients, after a warm-up. The prompts are random tokens that differ from the
first one after BOS on, so that there is no common beginning to skip. The peer runs a random sample of the sites and is
scaled to all of them, each of its sites being one full forward pass; our sweep runs in full, or where that would take
hours at evenly spaced positions, whose suffixes are as long on average as those of all positions. Ours counts its runs
of the unpatched prompts, the peer's is given the clean run's activations.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import io
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import psutil
import torch
from idle import machine, require_idle
from matplotlib import ticker
from transformer_lens import patching

from helpers import plots
from helpers.errors import HookbookError
from helpers.interventions.sweep import Sweep, patch_sweep
from helpers.metrics import Metric
from helpers.models import load_model

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

RESULTS = Path(__file__).parent / "results"
CORRECT, WRONG = 5000, 6000  # two tokens; which ones does not matter to the time
RESID = ("resid_pre by layer and position", "resid_pre", ("layer", "position"))
HEADS = ("heads by position", "z", ("layer", "position", "head"))
HEADS_ALL = ("heads over all positions", "z", ("layer", "head"))


@dataclass(frozen=True)
class Case:
    """One sweep; `every` is the distance of the positions that our side runs, `layers` those that both run."""

    name: str
    site: str
    over: tuple[str, ...]
    prompts: int
    tokens: int
    every: int = 1
    layers: tuple[int, ...] | None = None

    @property
    def positions(self) -> list[int]:
        """Those that our side patches; their mean is that of all positions behind BOS."""
        return list(range(1 + self.every // 2, self.tokens, self.every))


CASES = [Case(*what, 1, 15) for what in (RESID, HEADS, HEADS_ALL)]
CASES += [Case(*RESID, 16, 50, every=7), Case(*HEADS, 16, 50, every=49), Case(*HEADS_ALL, 16, 50)]
# Along the layers it is one sweep a layer: patches in late layers leave little to compute
GROWTH = {
    "layer of the patch": [Case(*RESID, 1, 15, layers=(n,)) for n in (0, 10, 20, 29)],
    "tokens": [Case(*RESID, 1, n) for n in (8, 15, 29, 50)],
    "prompts": [Case(*RESID, n, 15) for n in (1, 2, 4, 8)],
}


def prompts(case: Case, model: TransformerBridge) -> tuple[torch.Tensor, torch.Tensor]:
    """Two batches of random tokens behind BOS, without a position in common."""
    generator = torch.Generator().manual_seed(0)
    corrupted = torch.randint(1000, 40000, (case.prompts, case.tokens), generator=generator)
    clean = 1000 + (corrupted + 12345) % 39000
    corrupted[:, 0] = clean[:, 0] = model.tokenizer.bos_token_id
    return corrupted, clean


def ours(case: Case, model: TransformerBridge, layers: Sequence[int] | None = None) -> Sweep:
    """Our sweep, as a user calls it."""
    return patch_sweep(
        model,
        *prompts(case, model),
        site=case.site,
        over=case.over,
        metric=Metric.logit_difference(CORRECT, WRONG),
        layers=layers,
        positions=case.positions if "position" in case.over else None,
        progress=False,
    )


def peer(case: Case, model: TransformerBridge, sweep: Sweep, n_sites: int) -> tuple[float, float]:
    """Seconds that the peer takes for a site, and the largest difference between its values and ours."""
    corrupted, clean = prompts(case, model)
    _, cache = model.run_with_cache(clean, names_filter=lambda name: name.endswith(f"hook_{case.site}"))
    every = np.array(list(np.ndindex(sweep.values.shape[:-1])))
    chosen = every[np.random.default_rng(0).choice(len(every), min(n_sites, len(every)), replace=False)]
    names = {"layer": "layer", "position": "pos", "head": "head_index"}
    labels = {names[axis]: np.array(label)[chosen[:, i]] for i, (axis, label) in enumerate(sweep.axes.items())}
    setter = {
        RESID[2]: patching.layer_pos_patch_setter,
        HEADS[2]: patching.layer_pos_head_vector_patch_setter,
        HEADS_ALL[2]: patching.layer_head_vector_patch_setter,
    }[case.over]

    def metric(logits: torch.Tensor) -> torch.Tensor:
        return logits[:, -1, CORRECT] - logits[:, -1, WRONG]

    began = time.perf_counter()
    with contextlib.redirect_stderr(io.StringIO()):  # its progress bar
        theirs = patching.generic_activation_patch(
            model, corrupted, cache, metric, setter, case.site, index_df=pd.DataFrame(labels), reduce="none"
        )
    seconds = (time.perf_counter() - began) / len(chosen)
    return seconds, float(np.abs(theirs.values.numpy() - sweep.values[tuple(chosen.T)]).max())


def arithmetic(case: Case, model: TransformerBridge) -> float:
    """Floating-point operations that an exact answer needs at the sites of our side.

    Behind the patch, of later positions only: the rest of its layer, the later layers (of the last one keys and values,
    and the rest of the row that is read), and the two logits of that row.
    """
    cfg = model.cfg
    attention, kv = cfg.n_heads * cfg.d_head, cfg.n_key_value_heads * cfg.d_head
    mlp, qo, both_kv = 6 * cfg.d_model * cfg.d_mlp, 4 * cfg.d_model * attention, 4 * cfg.d_model * kv
    total = 0.0
    starts = case.positions if "position" in case.over else [1]
    for start in starts:
        rows = case.tokens - start
        looks = 4 * attention * sum(range(start + 1, case.tokens + 1))
        block = rows * (mlp + qo + both_kv) + looks
        last = rows * both_kv + mlp + qo + 4 * attention * case.tokens
        for layer in case.layers or range(cfg.n_layers):
            is_last = layer == cfg.n_layers - 1
            if case.site == "resid_pre":
                total += (cfg.n_layers - 1 - layer) * block + last
                continue
            patched = 2 * cfg.d_head * cfg.d_model + mlp
            changed = patched if is_last else patched * rows + (cfg.n_layers - 2 - layer) * block + last
            total += cfg.n_heads * changed
    n_layers = len(case.layers or range(cfg.n_layers))
    per_site = 4 * cfg.d_model * len(starts) * n_layers * (cfg.n_heads if "head" in case.over else 1)
    return case.prompts * (total + per_site)


def speed() -> float:
    """Floating-point operations a second of this machine's best matrix product of the sizes that occur here."""
    best = 0.0
    for rows, inner, columns in ((1024, 576, 1536), (1024, 1536, 576), (2048, 576, 1536), (1024, 576, 576)):
        a, b = torch.randn(rows, inner), torch.randn(columns, inner)
        for _ in range(30):
            began = time.perf_counter()
            torch.nn.functional.linear(a, b)
            best = max(best, 2 * rows * inner * columns / (time.perf_counter() - began))
    return best


@contextlib.contextmanager
def peak() -> Iterator[Callable[[], float]]:
    """Within it the resident memory is watched; what it yields gives the peak in megabytes."""
    process, highest, done = psutil.Process(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            highest[0] = max(highest[0], process.memory_info().rss)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield lambda: highest[0] / 2**20
    finally:
        done.set()
        thread.join()


def resident() -> float:
    """Megabytes of resident memory after what is free has gone back to the system."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return psutil.Process().memory_info().rss / 2**20


def measure(case: Case, model: TransformerBridge, n_sites: int, peak_speed: float, empty_mb: float) -> dict:
    """Both sides on one case."""
    began, cpu = time.perf_counter(), time.process_time()
    with peak() as highest:
        sweep = ours(case, model, case.layers)
        seconds, used = time.perf_counter() - began, time.process_time() - cpu
        peak_mb = highest() - empty_mb
    resident()
    with torch.no_grad():
        peer_seconds, difference = peer(case, model, sweep, n_sites)
    # BOS is the same in both runs, so its sites cost us nothing and are left out: the peer is scaled to what we ran
    n_run = sweep.values[..., 0].size
    fixed = 0.0
    if case.every > 1:  # what does not grow with the number of sites is not to be scaled
        began = time.perf_counter()
        ours(case, model, layers=[model.cfg.n_layers - 1])
        fixed = time.perf_counter() - began
    whole = fixed + case.every * (seconds - fixed)
    share = case.every * arithmetic(case, model) / peak_speed / whole
    return {
        "case": case.name,
        "prompts": case.prompts,
        "tokens": case.tokens,
        "seconds": round(whole, 2),
        "peer_seconds": round(peer_seconds * n_run * case.every, 2),
        "ratio": round(peer_seconds * n_run * case.every / whole, 2),
        "max_abs_diff": float(f"{difference:.1e}"),
        "peak_mb": round(peak_mb),
        "share_of_bound": round(share, 2),
        "sites": n_run * case.every,
        "sites_run": n_run,
        "peer_sites_run": min(n_sites, n_run),
        "cpu_seconds": round(used, 2),
        "how": sweep.how,
    }


def figure(results: dict) -> None:
    """How time grows with layers, tokens and prompts, ours and the peer's, as results/patching.png."""
    fig, axes = plots.figure(len(results["growth"]), height=3, width=9)
    for ax, (along, rows) in zip(axes, results["growth"].items(), strict=True):
        at = [row[along] for row in rows]
        scale = "linear" if along.startswith("layer") else "log"
        ax.plot(
            at, [row["peer_seconds"] for row in rows], color=plots.GREY, marker="s", label="transformer_lens.patching"
        )
        ax.plot(at, [row["seconds"] for row in rows], color=plots.BLUE, marker="o", label="Hookbook")
        ax.set(xlabel=along, ylabel="seconds for all positions", xscale=scale, yscale="log")
        ax.set_xticks(at, labels=[str(n) for n in at])
        ax.minorticks_off()
        ax.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter("{x:g}")
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    fig.savefig(RESULTS / "patching.png", dpi=150)


def main() -> None:
    """Measure, print a line for every case, write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--even-if-busy", action="store_true", help="measure beside other work, and say so")
    parser.add_argument("--only", default="", help="cases named so, e.g. '1 x 15' or 'heads'; not saved")
    parser.add_argument("--sites", type=int, default=40, help="sites that the peer runs in each case")
    given = parser.parse_args()
    if not given.even_if_busy:
        require_idle()
    model = load_model()
    ours(Case(*RESID, 1, 8), model)  # warm-up
    with torch.no_grad():
        model(prompts(CASES[-1], model)[0][:2])
    empty_mb, peak_speed = resident(), speed()

    def run(case: Case, n_sites: int) -> dict:
        if not given.even_if_busy:
            require_idle(1)
        row = measure(case, model, n_sites, peak_speed, empty_mb)
        print(
            f"{case.name}, {case.prompts} x {case.tokens}: "
            + ", ".join(f"{k} {v}" for k, v in row.items() if k != "case")
        )
        return row

    chosen = [case for case in CASES if given.only in f"{case.name}, {case.prompts} x {case.tokens}"]
    results = {
        "machine": {
            **machine(("torch", "transformers", "transformer-lens")),
            "threads": torch.get_num_threads(),
            "gflops": round(peak_speed / 1e9),
            "model": "smollm2-135m, folded, float32",
            "busy": given.even_if_busy,
        },
        "cases": [run(case, given.sites) for case in chosen],
    }
    if given.only:
        return
    for along, cases in GROWTH.items():
        rows = results.setdefault("growth", {}).setdefault(along, [])
        rows += [run(case, 8) | {"layer of the patch": (case.layers or [None])[0]} for case in cases]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "patching.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    figure(results)


if __name__ == "__main__":
    try:
        main()
    except HookbookError as error:
        sys.exit(str(error))
