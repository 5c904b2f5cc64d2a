import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_networks import HEADS, KV_HEADS, WIDTH, Toy, tiny_bridge, tokens
from torch import nn

from helpers import activations as module
from helpers import array_cache
from helpers.activations import activations
from helpers.errors import HookbookError
from helpers.interventions.edits import ablate, freeze, steer
from helpers.network_digest import indescribable, network_digest

RESID, K, PATTERN = "blocks.1.hook_resid_pre", "blocks.0.attn.hook_k", "blocks.0.attn.hook_pattern"
TOKENS = tokens(5)


def close(one, other):
    """Equal but for the last bits, which the number of threads and the batch's shape decide."""
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache of one's own, and nothing said yet."""
    monkeypatch.setenv("HOOKBOOK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HOOKBOOK_CACHE_GB", raising=False)
    monkeypatch.setattr(module, "_said", set())
    return tmp_path / "cache" / "activations"


@pytest.fixture
def llama():
    return tiny_bridge("llama")


@pytest.fixture
def passes(monkeypatch):
    """The sizes of the batches that were computed so far."""
    sizes, forward = [], module._forward

    def counted(model, inputs, *rest):
        sizes.append(len(inputs))
        return forward(model, inputs, *rest)

    monkeypatch.setattr(module, "_forward", counted)
    return sizes


def files(cache):
    return sorted(path for path in cache.iterdir()) if cache.exists() else []


def reference(model, name, given=TOKENS, **options):
    with torch.no_grad():
        return model.run_with_cache(given, names_filter=name, **options)[1][name].numpy()


# What is computed


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "neox"])
def test_batches_give_what_one_forward_pass_gives(architecture, passes):
    model = tiny_bridge(architecture)
    names = [
        "hook_embed",
        "blocks.0.hook_resid_post",
        RESID,
        K,
        PATTERN,
        "blocks.1.hook_mlp_out",
        "ln_final.hook_normalized",
    ]
    for chosen in (names[1:2], names[:5], names):
        found = activations(model, TOKENS, chosen, batch_size=2)
        assert list(found) == chosen
        for name in chosen:
            np.testing.assert_allclose(found[name], reference(model, name), atol=1e-5)
    assert passes == [2, 2, 1] * 3


def test_a_second_call_reads_read_only_memory_maps(llama, passes, cache):
    first = activations(llama, TOKENS, [RESID, K])
    again = activations(tiny_bridge("llama"), TOKENS.numpy(), [K, RESID], batch_size=3)
    assert passes == [5] and len(files(cache)) == 2
    for name, array in again.items():
        assert isinstance(array, np.memmap) and not array.flags.writeable and np.array_equal(array, first[name])
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    assert again[K].shape == (5, 6, KV_HEADS, 8) and again[K].dtype == np.float32


def test_only_hooks_that_are_missing_are_computed(llama, passes, monkeypatch):
    asked, batches = [], module._batches
    monkeypatch.setattr(module, "_batches", lambda *a: asked.append([t.name for t in a[-1]]) or batches(*a))
    activations(llama, TOKENS, RESID)
    activations(llama, TOKENS, lambda name: name in (RESID, K))
    activations(llama, TOKENS, "blocks.1.hook_in")  # another name of the first
    assert asked == [[RESID], [K]]
    both = activations(llama, TOKENS, ["blocks.1.hook_in", RESID])
    assert list(both) == ["blocks.1.hook_in", RESID] and both[RESID] is both["blocks.1.hook_in"]


def test_padding_on_either_side_is_nan_and_moves_nothing(llama):
    lengths = torch.tensor([6, 3, 4, 1, 6])
    real = torch.arange(6) < lengths[:, None]
    right = TOKENS.masked_fill(~real, 2)
    left = torch.stack([row.roll(int(6 - n)) for row, n in zip(right, lengths, strict=True)])
    found = activations(llama, right, [RESID, PATTERN], mask=real)
    mirrored = activations(llama, left, [RESID, PATTERN], mask=real.flip(1).numpy())
    for i, n in enumerate(lengths):
        alone = reference(llama, RESID, TOKENS[i : i + 1, :n])[0]
        for rows, pads in ((slice(0, n), slice(n, 6)), (slice(6 - n, 6), slice(0, 6 - n))):
            one = found if rows.start == 0 else mirrored
            np.testing.assert_allclose(one[RESID][i, rows], alone, atol=1e-5)
            assert np.isnan(one[RESID][i, pads]).all() and np.isnan(one[PATTERN][i, :, pads]).all()
            assert not np.isnan(one[PATTERN][i, :, rows]).any()
    last = activations(llama, right, RESID, mask=real, positions=lengths[:, None] - 1)[RESID]
    np.testing.assert_allclose(last[:, 0], mirrored[RESID][:, -1], atol=1e-5)


def test_positions_for_all_prompts_or_by_prompt(llama):
    whole = activations(llama, TOKENS, [RESID, PATTERN])
    some = activations(llama, TOKENS, [RESID, PATTERN], positions=[-1, 2], batch_size=2)
    assert close(some[RESID], whole[RESID][:, [5, 2]])
    np.testing.assert_allclose(some[PATTERN], whole[PATTERN][:, :, [5, 2]], atol=1e-6)
    by_prompt = np.array([[0], [1], [2], [3], [-1]])
    one = activations(llama, TOKENS, RESID, positions=by_prompt)[RESID]
    assert one.shape == (5, 1, WIDTH) and close(one[:, 0], whole[RESID][np.arange(5), by_prompt[:, 0]])


def test_half_precision_is_stored_without_loss(llama):
    half = tiny_bridge("llama").to(torch.bfloat16)
    found = activations(half, TOKENS, RESID)[RESID]
    with torch.no_grad():
        expected = half.run_with_cache(TOKENS, names_filter=RESID)[1][RESID]
    assert found.dtype == np.float32 and close(found, expected.float().numpy())
    assert not np.array_equal(found, activations(llama, TOKENS, RESID)[RESID])


def test_the_arrays_serve_edits(llama):
    real = torch.arange(6) < torch.tensor([6, 3, 4, 1, 6])[:, None]
    values = activations(llama, TOKENS, [RESID, K], mask=real)
    with ablate(llama, [RESID, K], to="mean", values=values), torch.no_grad():
        after = llama.run_with_cache(TOKENS, names_filter=RESID)[1][RESID]
    np.testing.assert_allclose(after[2, 3], np.nanmean(values[RESID], (0, 1)), atol=1e-5)
    with pytest.raises(HookbookError, match="padding is NaN"):
        freeze(llama, RESID, values[RESID])


# Whose activations they are


def _edit_weight(model):
    with torch.no_grad():
        model.blocks[0].mlp.out.weight[0, 0] += 1e-3


def _edit_weight_unnoticed_by_versions(model):
    model.blocks[0].mlp.out.weight.data[0, 0] += 1e-3


def _edit_buffer(model):
    next(model.buffers()).mul_(1.01)


def _fold(model):
    model.enable_compatibility_mode(disable_warnings=True)


def _configure(model):
    model.original_model.config.rms_norm_eps = 1e-3
    model.cfg.eps = 1e-3


def _rescale(model):
    model.blocks[0].attn.original_component.scaling *= 2


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "neox"])
def test_using_a_model_does_not_make_it_another(architecture):
    model = tiny_bridge(architecture)
    before = network_digest(model)
    model.run_with_cache(TOKENS[:2, :3])
    model(TOKENS, stop_at_layer=1)
    model(TOKENS).sum().backward()
    assert before == network_digest(model) == network_digest(tiny_bridge(architecture))


CHANGES = [_rescale, _edit_weight, _edit_weight_unnoticed_by_versions, _edit_buffer, _fold, _configure]


@pytest.mark.parametrize("change", [*CHANGES, lambda model: model.to(torch.bfloat16)])
def test_a_changed_model_gets_activations_of_its_own(llama, change, passes):
    before = np.array(activations(llama, TOKENS, "blocks.0.hook_resid_post")["blocks.0.hook_resid_post"])
    change(llama)
    after = activations(llama, TOKENS, "blocks.0.hook_resid_post")["blocks.0.hook_resid_post"]
    assert passes == [5, 5]
    with torch.no_grad():
        expected = llama.run_with_cache(TOKENS, names_filter="blocks.0.hook_resid_post")[1]
    assert close(after, expected["blocks.0.hook_resid_post"].float().numpy())
    assert change in (_configure, _fold) or not np.array_equal(before, after)  # these leave this one as it is


def test_every_argument_counts(llama, passes):
    real = torch.ones(5, 6, dtype=torch.bool)
    real[0, -1] = False
    calls = [{}, {"mask": real}, {"positions": [0]}, {"positions": [1]}, {"name": "b"}]
    for options in calls:
        activations(llama, TOKENS, RESID, **options)
    activations(llama, TOKENS.flip(0), RESID)
    activations(tiny_bridge("llama", seed=1), TOKENS, RESID)
    activations(tiny_bridge("gpt2"), TOKENS, RESID)
    assert len(passes) == 8
    activations(llama, TOKENS, RESID, mask=torch.ones(5, 6, dtype=torch.bool), batch_size=5)
    assert len(passes) == 8


def test_expanded_heads_are_another_network(llama):
    wide = tiny_bridge("llama", expanded=True)
    assert activations(llama, TOKENS, K)[K].shape[2] == KV_HEADS
    assert activations(wide, TOKENS, K)[K].shape[2] == HEADS


def test_hooks_and_edits_are_computed_with_and_never_stored(llama, passes, cache, capsys):
    plain = np.array(activations(llama, TOKENS, RESID)[RESID])
    for _ in range(2):
        with steer(llama, "blocks.0.hook_resid_pre", torch.ones(WIDTH), 1.0):
            steered = activations(llama, TOKENS, [RESID, K])[RESID]
    assert not np.allclose(steered, plain) and not steered.flags.writeable
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "without the cache: hooks are attached at blocks.0.hook_in" in said
    llama.add_perma_hook(K, lambda value, hook: None)
    activations(llama, TOKENS, RESID)
    llama.reset_hooks(including_permanent=True)
    handle = llama.blocks[0].mlp.register_forward_hook(lambda module, given, out: out * 2)
    assert not np.allclose(activations(llama, TOKENS, RESID)[RESID], plain)
    handle.remove()
    assert len(files(cache)) == 1 and passes == [5] * 5
    assert close(activations(llama, TOKENS, RESID)[RESID], plain) and len(passes) == 5
    assert not any(point.fwd_hooks for point in llama.hook_points())


def test_hooks_that_libraries_leave_are_no_obstacle(llama, passes):
    activations(llama, TOKENS, RESID)
    llama.run_with_cache(TOKENS)
    llama(TOKENS, stop_at_layer=1)
    assert any(part._forward_hooks or part._forward_pre_hooks for part in llama.modules())
    activations(llama, TOKENS, RESID)
    assert passes == [5] and indescribable(llama) == ""


def test_what_a_key_cannot_say_is_not_stored(llama, cache, monkeypatch, capsys):
    mlp = llama.blocks[0].mlp.original_component
    mlp.forward = lambda x: type(mlp).forward(mlp, x) * 2
    activations(llama, TOKENS, RESID)
    del mlp.forward
    llama.train()
    activations(llama, TOKENS, RESID)
    llama.eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        activations(llama, TOKENS, RESID)
    handle = nn.modules.module.register_module_forward_hook(lambda *args: None)
    activations(llama, TOKENS, RESID)
    handle.remove()
    out = capsys.readouterr().out
    for reason in ("mlp._original_component was replaced", "in training mode", "autocast", "a global hook"):
        assert reason in out
    assert not files(cache)


def test_a_network_of_ones_own_counts_with_its_code_and_attributes(passes):
    x = torch.randn(7, 5)
    toy = Toy()
    found = activations(toy, x, ["hook_hidden", "hook_out"], batch_size=3)
    np.testing.assert_allclose(found["hook_hidden"], toy.first(x).relu().detach(), atol=1e-6)
    activations(Toy(), x, "hook_out")
    assert passes == [3, 3, 1]

    def with_code(body):
        scope = {"Toy": Toy}
        forward = f"def forward(self, x): return self.hook_out(self.second(self.first(x){body}))"
        exec(f"class Mine(Toy):\n {forward}", scope)
        return scope["Mine"]()

    a, b, c = with_code(".tanh()"), with_code(".sin()"), with_code(" * 2")
    d, e = with_code(" * 3"), with_code(".tanh()")
    e.temperature = 2.0
    digests = {network_digest(model) for model in (a, b, c, d, e)}
    assert len(digests) == 5 and network_digest(a) == network_digest(with_code(".tanh()"))
    a.first.weight.data[0, 0] += 1
    assert network_digest(a) not in digests
    same, turned = Toy(), Toy()  # tensors that share memory are read once, but not taken for each other
    same.second.register_buffer("mix", same.first.weight.data)
    turned.second.register_buffer("mix", turned.first.weight.data.T)
    assert network_digest(same) != network_digest(turned)


# The files


def test_the_least_recently_used_goes_first_and_nothing_of_others(llama, cache, monkeypatch, passes):
    sizes = 5 * 6 * WIDTH * 4 + 128
    monkeypatch.setenv("HOOKBOOK_CACHE_GB", str(2.5 * sizes / 1e9))
    cache.mkdir(parents=True)
    outside = cache.parent / "models"
    outside.mkdir()
    (outside / "weights").write_bytes(b"x" * 10**5)
    mine = [cache / "notes.txt", cache / "folder" / f"{'a' * 64}.npy", cache / "mine.npy"]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 10**5)
    (cache / f"{'b' * 64}.npy").symlink_to(outside / "weights")
    names = ["blocks.0.hook_resid_pre", "blocks.0.hook_resid_mid", "blocks.1.hook_resid_pre"]
    kept = activations(llama, TOKENS, names[0])[names[0]]
    activations(llama, TOKENS, names[1])
    activations(llama, TOKENS, names[0])  # used again
    activations(llama, TOKENS, names[2])
    assert len([path for path in files(cache) if array_cache._own_file(path)]) == 2
    count = len(passes)
    activations(llama, TOKENS, [names[0], names[2]])
    assert len(passes) == count
    activations(llama, TOKENS, names[1])
    assert len(passes) == count + 1 and np.isfinite(kept).all()  # what is mapped stays readable
    assert all(path.exists() for path in [*mine, outside / "weights", cache / f"{'b' * 64}.npy"])


def test_more_than_the_limit_or_no_cache_at_all(llama, cache, monkeypatch, capsys):
    monkeypatch.setenv("HOOKBOOK_CACHE_GB", "1e-6")
    assert activations(llama, TOKENS, RESID)[RESID].shape == (5, 6, WIDTH)
    assert "more than HOOKBOOK_CACHE_GB allows" in capsys.readouterr().out and not files(cache)
    monkeypatch.setenv("HOOKBOOK_CACHE_GB", "0")
    activations(llama, TOKENS, RESID)
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("HOOKBOOK_CACHE_GB", "five")
    with pytest.raises(HookbookError, match="HOOKBOOK_CACHE_GB=five is no number of gigabytes"):
        activations(llama, TOKENS, RESID)


def full_at_once(monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: types.SimpleNamespace(free=10))


def full_later(monkeypatch):
    write = array_cache.Writer.write

    def limited(self, rows):
        if self._left < np.prod(self._shape):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(self, rows)

    monkeypatch.setattr(array_cache.Writer, "write", limited)


def full_at_the_end(monkeypatch):
    def fail(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)


def full_for_the_new_name(monkeypatch):
    def fail(part, path):
        assert not path.exists()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", fail)


@pytest.mark.parametrize("fault", [full_at_once, full_later, full_at_the_end, full_for_the_new_name])
def test_a_full_disk_costs_only_the_cache(llama, cache, monkeypatch, capsys, fault):
    fault(monkeypatch)
    for _ in range(2):
        found = activations(llama, TOKENS, RESID, batch_size=2)[RESID]
        np.testing.assert_allclose(found, reference(llama, RESID), atol=1e-5)
        assert not found.flags.writeable
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "without the cache (No space left on device)" in said
    assert not files(cache)


def test_a_cache_that_cannot_be_written_is_said_once(llama, cache, monkeypatch, capsys):
    cache.parent.mkdir()
    cache.write_text("a file where the folder should be")
    for _ in range(2):
        assert activations(llama, TOKENS, RESID)[RESID].shape == (5, 6, WIDTH)
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "computed without the cache" in said and str(cache) not in said


def test_a_read_only_cache_still_serves(llama, monkeypatch, passes):
    activations(llama, TOKENS, RESID)

    def refuse(*args, **kwargs):
        raise PermissionError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(array_cache.tempfile, "mkstemp", refuse)
    activations(llama, TOKENS, RESID)
    assert passes == [5]
    assert activations(llama, TOKENS, K)[K].shape == (5, 6, KV_HEADS, 8)


def test_damaged_files_are_made_anew(llama, cache, passes):
    whole = np.array(activations(llama, TOKENS, RESID)[RESID])
    (path,) = files(cache)
    for damage in (path.read_bytes()[:-4], path.read_bytes()[:50], b"", b"rubbish"):
        path.write_bytes(damage)
        assert close(activations(llama, TOKENS, RESID)[RESID], whole)
    assert len(passes) == 5 and len(files(cache)) == 1


def test_an_interrupt_leaves_no_file(llama, cache, monkeypatch):
    forward, calls = module._forward, []

    def interrupted(*args):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        forward(*args)

    monkeypatch.setattr(module, "_forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        activations(llama, TOKENS, RESID, batch_size=2)
    assert not files(cache) and not any(point.fwd_hooks for point in llama.hook_points())


def _other_process(code):
    script = "import numpy as np, os, sys, time\nfrom helpers import array_cache as c\n" + textwrap.dedent(code)
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_killed_process_leaves_no_half_file_and_its_rest_is_swept(cache):
    process = _other_process("""
        with c.writing({"c" * 64: ((2, 3), np.float32)}) as writers:
            writers["c" * 64].write(np.ones((1, 3), np.float32))
            print("half", flush=True)
            time.sleep(60)
    """)
    assert process.stdout.readline() == "half\n"
    (part,) = files(cache)
    assert part.name.startswith("part-") and array_cache.load("c" * 64) is None
    with array_cache.writing({"d" * 64: ((1,), np.float32)}) as writers:
        writers["d" * 64].write(np.ones(1, np.float32))
    assert part.exists()  # its writer is alive
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    foreign = cache / f"part-00000000-{process.pid}-abc"  # of another machine that shares the folder
    foreign.write_bytes(b"")
    with array_cache.writing({"e" * 64: ((1,), np.float32)}) as writers:
        writers["e" * 64].write(np.ones(1, np.float32))
    assert not part.exists() and foreign.exists()
    os.utime(foreign, (time.time() - 10**6,) * 2)
    with array_cache.writing({}):
        pass
    assert not foreign.exists()


def test_two_processes_may_write_the_same_array_at_once(cache):
    code = """
        for i in range(60):
            key = format(i % 5, "064x")
            with c.writing({key: ((40, 50), np.float32)}) as writers:
                for _ in range(40):
                    writers[key].write(np.full((1, 50), i % 5, np.float32))
            array = c.load(key)
            assert array is None or (array == i % 5).all()
        print("done")
    """
    os.environ["HOOKBOOK_CACHE_GB"] = str(3.5 * 8128 / 1e9)  # so that they also delete each other's
    try:
        both = [_other_process(code) for _ in range(2)]
        assert [process.communicate()[0] for process in both] == ["done\n"] * 2
    finally:
        del os.environ["HOOKBOOK_CACHE_GB"]
    assert all(path.name.endswith(".npy") and path.stat().st_size == 8128 for path in files(cache))


# Mistakes


class Twice(Toy):
    def forward(self, x):
        return super().forward(self.hook_hidden(x))


MISTAKES = {
    "blocks.9.hook_resid_pre is no hook": lambda: {"hook_names": "blocks.9.hook_resid_pre"},
    "set_use_attn_result": lambda: {"hook_names": "blocks.0.attn.hook_result"},
    "never fired": lambda: {"model": tiny_bridge("gpt2"), "hook_names": "blocks.0.attn.qkv.hook_out"},
    "fires more than once": lambda: {"model": Twice(), "tokens": torch.randn(5, 5), "hook_names": "hook_hidden"},
    "no floating-point tensor": lambda: {"hook_names": "embed.hook_in"},
    "Tokens have the shape \\(6,\\)": lambda: {"tokens": TOKENS[0]},
    "batches of 1 up": lambda: {"batch_size": 0},
    "The mask has the shape \\(4, 6\\) for tokens of \\(5, 6\\)": lambda: {"mask": torch.ones(4, 6)},
    "a token in each prompt": lambda: {"mask": torch.zeros(5, 6)},
    "There are 6 positions: 6 is out of range": lambda: {"positions": [2, 6]},
    "\\[k\\] or \\[prompt, k\\] for 5 prompts": lambda: {"positions": np.zeros((4, 1), dtype=int)},
    "Positions are whole numbers": lambda: {"positions": [0.5]},
    "A position of prompt 1 \\(\\[5\\]\\) is padding": lambda: {
        "positions": -1,
        "mask": torch.arange(6) < torch.tensor([6, 3, 6, 6, 6])[:, None],
    },
    "takes no attention_mask": lambda: {
        "model": Toy(),
        "tokens": torch.randn(5, 6, 5),
        "hook_names": "hook_out",
        "mask": torch.arange(6) < torch.tensor([6, 3, 6, 6, 6])[:, None],
    },
    "without an axis of positions": lambda: {
        "model": Toy(), "tokens": torch.randn(5, 5), "hook_names": "hook_out", "positions": [0]
    },
}  # fmt: skip


@pytest.mark.parametrize("sentence", MISTAKES)
def test_mistakes_are_sentences(llama, cache, sentence):
    with pytest.raises(HookbookError, match=sentence) as caught:
        activations(**{"model": llama, "tokens": TOKENS, "hook_names": RESID, **MISTAKES[sentence]()})
    assert "\n" not in str(caught.value) and not files(cache)


def test_the_default_folder_is_in_the_cache_of_models(cache):
    assert array_cache.folder() == Path(os.environ["HOOKBOOK_CACHE"]) / "activations"
