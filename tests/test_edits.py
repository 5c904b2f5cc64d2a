from contextlib import ExitStack

import pytest
import torch
from tiny_networks import HEADS, KV_HEADS, LAYERS, WIDTH, Toy, tiny_bridge, tokens

from helpers import interventions
from helpers.errors import HookbookError
from helpers.interventions import ablate, edit, edits, freeze, project_out, steer

RESID, Z = "blocks.1.hook_resid_pre", "blocks.0.attn.hook_z"
TOKENS = tokens()
DIRECTION = torch.randn(WIDTH, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module", params=["gpt2", "llama", "llama folded", "neox"])
def model(request):
    architecture, _, folded = request.param.partition(" ")
    return tiny_bridge(architecture, folded=bool(folded))


@pytest.fixture(scope="module")
def llama():
    return tiny_bridge("llama")


@pytest.fixture
def toy():
    return Toy()


@pytest.fixture(autouse=True)
def nothing_left_behind(request):
    """After every test the shared models must be as they were; transformers leaves hooks of its own on its blocks."""
    yield
    for name in {"model", "llama"} & set(request.fixturenames):
        network = request.getfixturevalue(name)
        assert not any(point._forward_hooks for point in network.hook_points())
        assert not network.list_hooks()


@torch.no_grad()
def run(model, names=(), given=TOKENS):
    """Logits, and the activations as a cache attached innermost sees them."""
    logits, cache = model.run_with_cache(given, names_filter=list(names))
    return (logits, *(cache[name].clone() for name in names))


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


# What each edit writes, and only there


def test_zero_mean_and_a_tensor_replace_the_whole_activation(model):
    base, before = run(model, [RESID])
    for to, values, expected in (
        ("zero", None, torch.zeros_like(before)),
        ("mean", before[1:], before[1:].mean((0, 1)).expand_as(before)),
        (before[:1], None, before[:1].expand_as(before)),
        (DIRECTION, None, DIRECTION.expand_as(before)),
        (2.5, None, torch.full_like(before, 2.5)),
    ):
        with ablate(model, RESID, to=to, values=values):
            logits, after = run(model, [RESID])
        close(after, expected)
        assert not torch.allclose(logits, base)
    assert torch.equal(run(model)[0], base)


def test_the_rest_of_the_model_computes_with_the_edit(model):
    replaced = torch.randn(3, 6, WIDTH)
    expected = model.run_with_hooks(TOKENS, fwd_hooks=[(RESID, lambda value, hook: replaced)])
    with ablate(model, RESID, to=replaced):
        assert torch.equal(model(TOKENS), expected)


def test_positions_and_heads_confine_an_edit_bit_for_bit(model):
    _, before = run(model, [Z])
    mask = torch.zeros(3, 6, dtype=torch.bool)
    mask[0, 1] = mask[2, 4] = True
    for positions, heads, where in (
        ([0, -1], None, [(slice(None), [0, 5])]),
        (2, None, [(slice(None), 2)]),
        (None, [1, 3], [(slice(None), slice(None), [1, 3])]),
        (mask, 2, [(0, 1, 2), (2, 4, 2)]),
        (mask.numpy(), None, [(0, 1), (2, 4)]),
    ):
        expected = before.clone()
        for index in where:
            expected[index] = 0
        with ablate(model, Z, to="zero", positions=positions, heads=heads):
            assert torch.equal(run(model, [Z])[1], expected)


def test_heads_of_grouped_queries_are_counted_where_they_are(llama):
    for name, heads in (("q", HEADS), ("z", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
        name = f"blocks.0.attn.hook_{name}"
        base, before = run(llama, [name])
        with ablate(llama, name, to="zero", heads=heads - 1):
            logits, after = run(llama, [name])
        assert before.shape[2] == heads and not torch.allclose(logits, base, atol=1e-4)
        assert not after[:, :, -1].any() and torch.equal(after[:, :, :-1], before[:, :, :-1])
        with pytest.raises(HookbookError, match=f"There are {heads} heads at {name}"):
            with ablate(llama, name, to="zero", heads=[heads]):
                llama(TOKENS)


def test_patterns_count_queries_and_heads(model):
    name = "blocks.0.attn.hook_pattern"
    _, before = run(model, [name])
    before[:, 1, 4] = 0
    with ablate(model, name, to="zero", positions=4, heads=1):
        assert torch.equal(run(model, [name])[1], before)


def test_the_mean_leaves_padding_out(llama):
    _, values = run(llama, [Z])
    expected = values[:, :4].mean((0, 1))
    values[:, 4:] = float("nan")
    with ablate(llama, Z, to="mean", values=values.numpy()):
        close(run(llama, [Z])[1], expected.expand_as(values))


def test_resample_takes_whole_prompts_the_same_at_all_hooks_and_anew_each_pass(llama):
    names = [Z, RESID]
    values = dict(zip(names, run(llama, names, tokens(8, seed=5))[1:], strict=True))

    def sources(seed):
        with ablate(llama, names, to="resample", values=values, seed=seed):
            passes = [run(llama, names)[1:] for _ in range(2)]
        found = [[(values[n] == row).flatten(1).all(1).nonzero().flatten().tolist() for row in after]
                 for one in passes for n, after in zip(names, one, strict=True)]  # fmt: skip
        assert all(len(rows) == 1 for rows in sum(found, []))
        assert found[0] == found[1] and found[2] == found[3] != found[0]
        return found

    assert sources(0) == sources(0) != sources(1)
    values = {Z: torch.full_like(values[Z], float("nan"))}
    with pytest.raises(HookbookError, match="are padding at positions that are replaced"):
        with ablate(llama, Z, to="resample", values=values):
            llama(TOKENS)


def test_steer_adds_the_direction_at_its_own_length(model):
    _, before = run(model, [RESID])
    with steer(model, RESID, DIRECTION.numpy().astype("float64"), -1.5, positions=[2]):
        _, after = run(model, [RESID])
    close(after[:, 2], before[:, 2] - 1.5 * DIRECTION)
    assert torch.equal(after[:, :2], before[:, :2]) and torch.equal(after[:, 3:], before[:, 3:])


def test_project_out_leaves_the_orthogonal_part_alone(model):
    basis = torch.linalg.qr(torch.randn(WIDTH, 2)).Q.T
    unit = DIRECTION / DIRECTION.norm()
    _, before = run(model, [RESID])
    for directions, to, rows, target in (
        (DIRECTION * 7, None, unit[None], [0.0]),
        (DIRECTION, 0.7, unit[None], [0.7]),
        (DIRECTION, {RESID: torch.tensor([-2.0])}, unit[None], [-2.0]),
        (basis, None, basis, [0.0, 0.0]),
        (basis, [1.0, -1.0], basis, [1.0, -1.0]),
    ):
        with project_out(model, RESID, directions, to=to):
            _, after = run(model, [RESID])
        close(after @ rows.T, torch.tensor(target).expand(3, 6, -1))
        rest = torch.eye(WIDTH) - rows.T @ rows
        close(after @ rest, before @ rest)


def test_project_out_rounds_once_in_half_precision():
    model = tiny_bridge("llama").to(torch.bfloat16)
    _, before = run(model, [RESID])
    with project_out(model, RESID, DIRECTION):
        _, after = run(model, [RESID])
    unit, precise = DIRECTION / DIRECTION.norm(), before.float()
    expected = (precise - (precise @ unit)[..., None] * unit).bfloat16()
    assert after.dtype == torch.bfloat16 and (after != expected).float().mean() < 0.01


def test_freeze_pins_activations_whatever_comes_before(model):
    base, z, resid = run(model, [Z, RESID])
    with ablate(model, "blocks.0.hook_resid_pre", to="zero"), freeze(model, [Z, RESID], {Z: z, RESID: resid[:1]}):
        _, frozen_z, frozen = run(model, [Z, RESID])
    assert torch.equal(frozen_z, z) and torch.equal(frozen, resid[:1].expand_as(resid))
    with freeze(model, lambda name: name in (Z, RESID), {Z: z, RESID: resid}):  # changes nothing, and that is allowed
        close(run(model)[0], base)


def test_a_cache_of_transformer_lens_gives_values_under_any_spelling(model):
    alias, canonical = "blocks.0.hook_resid_post", "blocks.0.hook_out"
    _, cache = model.run_with_cache(tokens(seed=3))
    with freeze(model, alias, {canonical: cache[canonical]}), ablate(model, Z, to="mean", values=cache):
        assert torch.equal(run(model, [alias])[1], cache[alias])


def test_a_filter_leaves_out_what_is_turned_off(llama):
    seen = []
    with edit(llama, lambda name: name.endswith(("attn.hook_z", "hook_result", "hook_mlp_in")),
              lambda value, hook: seen.append(hook.name) or value * 2):  # fmt: skip
        llama(TOKENS)
    assert len(seen) == LAYERS


def test_edits_work_on_networks_that_are_no_transformers(toy):
    x = torch.randn(4, 5)
    with ablate(toy, "hook_hidden", to="mean", values=toy.first(x).relu().detach()):
        out = toy(x)
    close(out, out[:1].expand_as(out))
    with edit(toy, lambda name: name == "hook_out", lambda value, hook: value + 1) as same:
        close(same(x), toy.second(toy.first(x).relu()) + 1)
    with pytest.raises(HookbookError, match="without an axis of positions"):
        with ablate(toy, "hook_hidden", to="zero", positions=[0]):
            toy(x)
    with pytest.raises(HookbookError, match="without an axis of heads"):
        with ablate(toy, "hook_hidden", to="zero", heads=[0]):
            toy(x)


# Gradients


def test_gradients_pass_through_edits_as_they_should(model):
    model.zero_grad()
    direction = DIRECTION.clone().requires_grad_()
    with steer(model, RESID, direction, 2.0, positions=[3]):
        model(TOKENS)[:, -1, 7].sum().backward()
    assert direction.grad.abs().sum() > 0 and model.embed.weight.grad.abs().sum() > 0
    model.zero_grad()
    with ablate(model, RESID, to="zero", positions=[0, 1, 2, 3, 4]):
        model(TOKENS)[:, -1, 7].sum().backward()
    touched = model.embed.weight.grad.abs().sum(1).nonzero().flatten()
    tied = model.unembed.weight.data_ptr() == model.embed.weight.data_ptr()
    assert tied or set(touched.tolist()) <= set(TOKENS.flatten().tolist())
    model.zero_grad()
    resid = run(model, [RESID])[1]
    with freeze(model, RESID, resid):  # a pinned activation passes no gradient on
        model(TOKENS)[:, -1, 7].sum().backward()
    first = next(p for n, p in model.named_parameters() if "0" in n and "mlp" in n)
    assert first.grad is None or not first.grad.any()
    model.zero_grad()


# Order, nesting, re-entry, and what stays


def test_the_inner_edit_sees_the_outer_ones_result(llama):
    plus, twice = (edit(llama, RESID, f) for f in (lambda v, hook: v + 1, lambda v, hook: v * 2))
    _, before = run(llama, [RESID])
    with plus, twice:
        assert torch.equal(run(llama, [RESID])[1], (before + 1) * 2)
    with twice, plus:
        assert torch.equal(run(llama, [RESID])[1], before * 2 + 1)
        with twice:  # again, while it is entered
            assert torch.equal(run(llama, [RESID])[1], (before * 2 + 1) * 2)
        assert torch.equal(run(llama, [RESID])[1], before * 2 + 1)
    assert torch.equal(run(llama, [RESID])[1], before)


@pytest.mark.parametrize("make", [lambda: tiny_bridge("llama"), Toy], ids=["bridge", "toy"])
def test_hooks_of_the_user_stay_permanent_or_not(make):
    model = make()
    given, name = (TOKENS, RESID) if not isinstance(model, Toy) else (torch.randn(2, 5), "hook_hidden")
    calls = []
    model.add_hook(name, lambda value, hook: calls.append("user"))
    model.add_perma_hook(name, lambda value, hook: calls.append("permanent"))
    with model.hooks(fwd_hooks=[(name, lambda value, hook: calls.append("kept"))], reset_hooks_end=False):
        pass
    with pytest.raises(ZeroDivisionError):
        with edit(model, name, lambda value, hook: value + 1):
            model(given)
            raise ZeroDivisionError
    with edit(model, name, lambda value, hook: calls.append("edit") or value + 1):
        with model.hooks(fwd_hooks=[(name, lambda value, hook: calls.append("inner"))]):
            calls.clear()
            model(given)
        assert calls == ["user", "permanent", "kept", "edit", "inner"] or isinstance(model, Toy)
    calls.clear()
    model(given)
    assert calls[:2] == ["user", "permanent"]
    assert len(model.hook_dict[name].fwd_hooks) == len(calls)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_errors_and_interrupts_leave_the_model_as_it_was(llama, error):
    base = run(llama)[0]

    def fail(value, hook):
        raise error("stop")

    with pytest.raises(error, match="stop"):  # and not a complaint that the edit did nothing
        with steer(llama, RESID, DIRECTION, 1.0), edit(llama, Z, fail):
            llama(TOKENS)
    with pytest.raises(error, match="outside"):
        with steer(llama, RESID, DIRECTION, 1.0):
            raise error("outside")
    assert torch.equal(run(llama)[0], base)


def test_an_interrupt_while_hooks_are_attached_leaves_none(llama, monkeypatch):
    first, second = (llama.hook_dict[name] for name in (RESID, Z))
    monkeypatch.setattr(second, "add_hook", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    both = steer(llama, [RESID, Z], {RESID: DIRECTION, Z: DIRECTION[:8]}, 1.0)
    with pytest.raises(KeyboardInterrupt), both:
        pass
    assert not first.fwd_hooks and not first._forward_hooks
    monkeypatch.undo()
    with both:
        run(llama)


def test_an_interrupt_while_hooks_come_off_leaves_none(llama):
    removals = []

    class Slow:
        def __init__(self, handle):
            self.handle = handle

        def remove(self):
            removals.append(1)
            if len(removals) == 1:
                raise KeyboardInterrupt
            self.handle.remove()

    with pytest.raises(KeyboardInterrupt):
        with steer(llama, [RESID, Z], {RESID: DIRECTION, Z: DIRECTION[:8]}, 1.0):
            run(llama)
            (handle,) = llama.hook_dict[RESID].fwd_hooks
            handle.hook = Slow(handle.hook)
    assert not llama.hook_dict[RESID].fwd_hooks and not llama.hook_dict[Z].fwd_hooks


def test_edits_end_in_any_order(llama):
    _, before = run(llama, [RESID])
    outer, inner = (edit(llama, RESID, lambda v, hook, n=n: v + n) for n in (1, 10))
    stack = ExitStack()
    outer.__enter__()
    stack.enter_context(inner)
    run(llama)
    outer.__exit__(None, None, None)
    assert torch.equal(run(llama, [RESID])[1], before + 10)
    stack.close()


# Silence is an error


def test_an_edit_without_effect_is_an_error(llama):
    with pytest.raises(HookbookError, match="no forward pass inside it reached blocks.1.hook_resid_pre"):
        with steer(llama, RESID, DIRECTION, 1.0):
            pass
    with pytest.raises(HookbookError, match="reached blocks.1.hook_mlp_out "):  # the other was reached
        with ablate(llama, [Z, "blocks.1.hook_mlp_out"], to="zero"):
            llama(TOKENS, stop_at_layer=1)
    with pytest.raises(HookbookError, match="`edit` changed no activation at blocks.1.hook_resid_pre"):
        with edit(llama, RESID, lambda value, hook: value.clone()):
            llama(TOKENS)
    with pytest.raises(HookbookError, match="`steer` changed no activation"):  # too small for float32
        with steer(llama, RESID, DIRECTION, 1e-30):
            llama(TOKENS)
    with steer(llama, RESID, DIRECTION, 0.0):
        close(llama(TOKENS), run(llama)[0])
    with pytest.raises(HookbookError, match="were removed inside it: do not reset hooks there"):
        with steer(llama, RESID, DIRECTION, 1.0):
            llama(TOKENS)
            llama.reset_hooks()


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        (lambda v: None, "gave NoneType: return the edited tensor"),
        (lambda v: (v,), "gave tuple"),
        (lambda v: v[:, :, :1], r"gave \(3, 6, 1\) of torch.float32, where"),
        (lambda v: v[:1], r"gave \(1, 6, 32\)"),
        (lambda v: v.double(), "torch.float64"),
    ],
)
def test_what_an_edit_returns_is_checked(llama, returned, sentence):
    with pytest.raises(HookbookError, match=sentence):
        with edit(llama, RESID, lambda value, hook: returned(value)):
            llama(TOKENS)


def test_an_edit_in_place_touches_nobody_elses_tensor(llama):
    seen = []

    def half(value, hook):
        value[:, 2] *= 0.5
        return value

    _, before = run(llama, [RESID])
    llama.add_hook(RESID, lambda value, hook: seen.append(value))
    with edit(llama, RESID, half):
        llama(TOKENS).sum().backward()
    llama.reset_hooks()
    llama.zero_grad()
    assert torch.equal(seen[0], before)


MISTAKES = {
    "blocks.1.hook_resid_pr is no hook of this model: did you mean .*blocks.1.hook_resid_pre": lambda m: steer(
        m, "blocks.1.hook_resid_pr", DIRECTION, 1.0
    ),
    "The filter names no hook": lambda m: ablate(m, lambda name: "resid_pree" in name, to="zero"),
    "The list names no hook": lambda m: ablate(m, [], to="zero"),
    "is turned off in this model .*set_use_attn_result": lambda m: ablate(m, "blocks.0.attn.hook_result", to="zero"),
    "none of zero, mean, resample": lambda m: ablate(m, Z, to="median"),
    "to=mean needs `values`": lambda m: ablate(m, Z),
    "to=zero takes no `values`": lambda m: ablate(m, Z, to="zero", values=DIRECTION),
    "One array is given for several hooks": lambda m: freeze(m, [Z, RESID], torch.zeros(3, 6, WIDTH)),
    "Nothing is given for blocks.1.hook_resid_pre": lambda m: freeze(m, RESID, {Z: torch.zeros(3, 6, 4, 8)}),
    "`values` is of torch.int64": lambda m: freeze(m, RESID, TOKENS),
    "holds NaN": lambda m: freeze(m, RESID, torch.full((3, 6, WIDTH), float("nan"))),
    "`values` has the shape \\(5, 6, 32\\)": lambda m: freeze(m, RESID, torch.zeros(5, 6, WIDTH)),
    "`values` has the shape \\(1, 1, 32\\)": lambda m: freeze(m, RESID, torch.zeros(1, 1, WIDTH)),
    "`to` has the shape \\(31,\\)": lambda m: ablate(m, RESID, to=torch.zeros(31)),
    "`values` has the shape \\(2, 5, 32\\)": lambda m: ablate(m, RESID, to="resample", values=torch.ones(2, 5, WIDTH)),
    "There are 6 positions at blocks.1.hook_resid_pre: \\[6\\]": lambda m: steer(
        m, RESID, DIRECTION, 1.0, positions=[6]
    ),
    "There are 6 positions .*: -7": lambda m: steer(m, RESID, DIRECTION, 1.0, positions=-7),
    "whole numbers, at least one": lambda m: steer(m, RESID, DIRECTION, 1.0, positions=[]),
    "The mask of positions has the shape \\(2, 6\\)": lambda m: steer(
        m, RESID, DIRECTION, 1.0, positions=torch.ones(2, 6, dtype=torch.bool)
    ),
    "an empty choice": lambda m: steer(m, RESID, DIRECTION, 1.0, positions=torch.zeros(3, 6, dtype=torch.bool)),
    "The direction has 31 numbers, and an activation at .* 32": lambda m: steer(m, RESID, DIRECTION[:31], 1.0),
    "The direction has 32 numbers, and .* 8": lambda m: project_out(m, Z, DIRECTION),
    "A direction is zero": lambda m: steer(m, RESID, DIRECTION * 0, 1.0),
    "A direction is zero, ": lambda m: project_out(m, RESID, torch.stack([DIRECTION, DIRECTION * 0])),
    "A direction of the shape \\(2, 32\\)": lambda m: steer(m, RESID, torch.ones(2, WIDTH), 1.0),
    "not orthonormal": lambda m: project_out(m, RESID, torch.stack([DIRECTION, DIRECTION])),
    "`to` has the shape \\(2,\\), but .* has 1 directions": lambda m: project_out(m, RESID, DIRECTION, to=[1.0, 2.0]),
    "carries no floating-point tensor": lambda m: ablate(m, "embed.hook_in", to="zero"),
}


@pytest.mark.parametrize("sentence", MISTAKES)
def test_mistakes_are_sentences(llama, sentence):
    with pytest.raises(HookbookError, match=sentence) as caught:
        with MISTAKES[sentence](llama):
            llama(TOKENS)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def test_what_is_public_is_there_and_every_edit_is_exported():
    for module in (interventions, edits):
        assert len(set(module.__all__)) == len(module.__all__)
        assert all(getattr(module, name, None) is not None for name in module.__all__)
    assert {name for name in edits.__all__ if name.islower()} < set(interventions.__all__)
    assert interventions.edit is edits.edit


# What TransformerLens itself lets pass: if one of these fails, a newer version has put it right and code here can go


def test_transformer_lens_runs_a_hook_without_return_and_a_filter_without_match(llama):
    base = run(llama)[0]
    lost = llama.run_with_hooks(TOKENS, fwd_hooks=[(RESID, lambda value, hook: (value * 0, None)[1])])
    missed = llama.run_with_hooks(
        TOKENS, fwd_hooks=[(lambda name: "resid_pree" in name, lambda value, hook: value * 0)]
    )
    assert torch.equal(lost, base) and torch.equal(missed, base)


def test_transformer_lens_runs_a_hook_that_never_fires():
    model, name = tiny_bridge("gpt2"), "blocks.0.attn.qkv.hook_out"
    assert torch.equal(model.run_with_hooks(TOKENS, fwd_hooks=[(name, lambda value, hook: value * 0)]), run(model)[0])
    with pytest.raises(HookbookError, match="some hook points are never used"):
        with ablate(model, name, to="zero"):
            model(TOKENS)


def test_transformer_lens_broadcasts_an_edit_of_the_wrong_shape(llama):
    mean = llama.run_with_hooks(TOKENS, fwd_hooks=[("blocks.1.hook_mlp_out", lambda v, hook: v.mean(0, keepdim=True))])
    assert mean.shape == run(llama)[0].shape
    with pytest.raises(HookbookError, match=r"gave \(1, 6, 32\)"):
        with edit(llama, "blocks.1.hook_mlp_out", lambda v, hook: v.mean(0, keepdim=True)):
            llama(TOKENS)


def test_transformer_lens_edits_twice_what_has_two_names(llama):
    names = ["blocks.0.hook_out", "blocks.0.hook_resid_post"]
    _, before = run(llama, names[:1])
    with llama.hooks(fwd_hooks=[(name, lambda v, hook: v + DIRECTION) for name in names]):
        close(run(llama, names[:1])[1], before + 2 * DIRECTION)
    with steer(llama, names, DIRECTION, 1.0):
        close(run(llama, names[:1])[1], before + DIRECTION)


def test_transformer_lens_takes_hooks_of_others_off_a_plain_network(toy):
    def kept(value, hook):
        return value + 1

    with toy.hooks(fwd_hooks=[("hook_hidden", kept)], reset_hooks_end=False):
        pass
    with edit(toy, "hook_out", lambda value, hook: value * 2):
        toy(torch.randn(2, 5))
    assert [handle.user_hook for handle in toy.hook_dict["hook_hidden"].fwd_hooks] == [kept]
    with toy.hooks(fwd_hooks=[("hook_out", lambda value, hook: value * 2)]):
        toy(torch.randn(2, 5))
    assert not toy.hook_dict["hook_hidden"].fwd_hooks  # the other context's hook is gone


def test_hooks_of_a_bridge_cannot_be_entered_twice(llama):
    hooks = llama.hooks(fwd_hooks=[(RESID, lambda value, hook: value * 2)])
    with hooks:
        llama(TOKENS)
    with pytest.raises((AttributeError, RuntimeError)), hooks:
        pass
