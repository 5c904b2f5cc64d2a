"""Planted transformers: each solves its task, its circuit is what the design says, and a null destroys it."""

import pytest
import torch

from helpers.errors import HookbookError
from helpers.planted import PLACES, Design, Part, plant
from helpers.planted_designs import PREVIOUS, SAME_LETTER, designs

ALL = [*designs("explore"), *designs("confirm")]
EACH = pytest.mark.parametrize("design", ALL, ids=lambda design: design.name)


def accuracy(planted, n=100):
    clean, _, answer, _ = planted.pairs(n)
    return float((planted.network(clean)[:, : planted.design.n_answers].argmax(-1) == answer).float().mean())


def edges(planted):
    found = planted.circuit.nonzero().tolist()
    return {(planted.writers[u], planted.readers[r]) for u, r in found}


@EACH
def test_it_solves_its_task(design):
    assert accuracy(plant(design, noise=0.0)) == 1
    assert min(accuracy(plant(design, seed=seed)) for seed in range(3)) > 0.8


@EACH
def test_a_null_does_not(design):
    for null in ("shuffled", "random"):
        assert accuracy(plant(design, null=null)) < 0.8 or design.one_way  # where clean answers are all 1, a guess is


@EACH
def test_pairs_have_other_answers_and_are_the_same_again(design):
    planted = plant(design)
    clean, corrupted, answer, other = planted.pairs(12)
    assert clean.shape == corrupted.shape == (12, PLACES) and (clean[:, 0] == 0).all()
    assert (answer != other).all()
    assert torch.equal(clean, planted.pairs(12)[0]) and not torch.equal(clean, planted.pairs(12, seed=1)[0])


@EACH
def test_the_circuit_alone_does_the_task_without_noise(design):
    """Each edge outside the circuit may carry another prompt: the answer's margin stays."""
    planted = plant(design, noise=0.0)
    clean, corrupted, answer, other = planted.pairs(40)

    def margin(logits):
        row = torch.arange(len(answer))
        return logits[row, answer] - logits[row, other]

    whole, cut = margin(planted.network(clean)), margin(run_cut(planted, clean, corrupted, ~planted.circuit))
    assert torch.allclose(whole, cut, atol=1e-4)
    assert margin(run_cut(planted, clean, corrupted, planted.circuit)).mean() < 0.5 * whole.mean()


def run_cut(planted, clean, corrupted, mask):
    """Logits on clean prompts when the edges of the mask carry what they carry on corrupted ones."""
    network, heads = planted.network, range(4)
    written, other, reader = [], [], iter(range(len(planted.readers)))

    def split(act):
        return [act[:, :, head] for head in heads] if act.ndim == 4 else [act]

    def read(act, hook):
        out = []
        for part in split(act):
            r = next(reader)
            out.append(part + sum(other[u] - now for u, now in enumerate(written) if mask[u, r]))
        return torch.stack(out, 2) if act.ndim == 4 else out[0]

    writes = lambda name: name == "hook_embed" or name.endswith(("hook_result", "hook_mlp_out"))  # noqa: E731
    reads = lambda name: name.endswith(("_input", "mlp_in", "hook_out"))  # noqa: E731
    network.run_with_hooks(corrupted, fwd_hooks=[(writes, lambda act, hook: other.extend(split(act)))])
    now = (writes, lambda act, hook: written.extend(split(act)))
    return network.run_with_hooks(clean, fwd_hooks=[now, (reads, read)])


def test_the_circuit_of_induction():
    planted = plant(designs("explore")[1])
    first, second = (next(w for _, w in sorted(edges(planted)) if w.startswith(layer)) for layer in ("L0", "L1"))
    early, late = first.split(".")[0], second.split(".")[0]
    expected = {("embed", f"{early}.v"), (early, f"{late}.k"), ("embed", f"{late}.q"), ("embed", f"{late}.v")}
    assert edges(planted) == expected | {(late, "output")}


def test_heads_change_places_with_the_seed_and_the_circuit_with_them():
    design = designs("explore")[1]
    assert len({frozenset(edges(plant(design, seed=seed))) for seed in range(6)}) > 1


def test_what_is_never_read_belongs_to_no_circuit():
    planted = plant(designs("explore")[0])
    assert planted.circuit.sum() == 5 and (planted.circuit & ~planted.possible).sum() == 0


def test_designs_of_one_shape_share_neither_noise_nor_prompts():
    one, other = (plant(design) for design in designs("explore")[4:6])  # and, or: the same parts with other signs
    alike = torch.nn.functional.cosine_similarity(one.network.W_E.flatten(), other.network.W_E.flatten(), dim=0)
    assert abs(alike) < 0.3
    prompts = [set(map(tuple, planted.pairs(64)[0].tolist())) for planted in (one, other)]
    assert len(prompts[0] & prompts[1]) < 4


def test_a_design_that_does_not_fit_is_refused():
    part = Part(0, {"q": PREVIOUS[0], "k": PREVIOUS[1], "v": {"tok": torch.eye(6)}}, {"out": 1.0})
    good = designs("explore")[0]
    with pytest.raises(HookbookError, match="more than 4 heads"):
        plant(Design("full", "", [part._replace() for _ in range(5)], good.draw, 6))
    late = Part(1, {"q": PREVIOUS[0], "k": PREVIOUS[1], "v": {"tok": torch.eye(6)}}, {"late": 1.0})
    early = Part(0, {"q": SAME_LETTER[0], "k": SAME_LETTER[1], "v": {"late": torch.eye(6)}}, {"out": 1.0})
    with pytest.raises(HookbookError, match="what is written later"):
        plant(Design("backwards", "", [late, early], good.draw, 6))


def test_the_global_generators_are_left_alone():
    before = torch.random.get_rng_state()
    plant(designs("explore")[0], null="shuffled").pairs(4)
    assert torch.equal(before, torch.random.get_rng_state())
