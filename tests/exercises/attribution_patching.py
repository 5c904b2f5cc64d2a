"""Wrong but plausible answers to the exercises of attribution-patching; each check must reject every one of them."""

import torch


def exercise_1():
    def turned_round(clean, corrupted, gradient):
        return ((clean - corrupted) * gradient).sum((1, 2)).mean()

    def summed_over_prompts(clean, corrupted, gradient):
        return ((corrupted - clean) * gradient).sum()

    def averaged_before_multiplying(clean, corrupted, gradient):
        return ((corrupted - clean).mean(0) * gradient.mean(0)).sum()

    def averaged_over_positions(clean, corrupted, gradient):
        return ((corrupted - clean) * gradient).sum(-1).mean()

    def without_signs(clean, corrupted, gradient):
        return ((corrupted - clean) * gradient).abs().sum((1, 2)).mean()

    def on_the_corrupted_side_alone(clean, corrupted, gradient):
        return (corrupted * gradient).sum((1, 2)).mean()

    def one_number_a_prompt(clean, corrupted, gradient):
        return ((corrupted - clean) * gradient).sum((1, 2))

    return [
        turned_round,
        summed_over_prompts,
        averaged_before_multiplying,
        averaged_over_positions,
        without_signs,
        on_the_corrupted_side_alone,
        one_number_a_prompt,
    ]


def _along(f, x, y, shares):
    total = torch.zeros_like(x)
    for share in shares:
        point = (x + share * (y - x)).detach().requires_grad_()
        total = total + torch.autograd.grad(f(point), point)[0]
    return float(total @ (y - x)) / len(shares)


def exercise_2():
    def clean_gradient_only(f, x, y, steps):
        return _along(f, x, y, [0.0])

    def left_ends(f, x, y, steps):
        return _along(f, x, y, [i / steps for i in range(steps)])

    def right_ends(f, x, y, steps):
        return _along(f, x, y, [(i + 1) / steps for i in range(steps)])

    def both_ends(f, x, y, steps):
        return _along(f, x, y, [i / max(steps - 1, 1) for i in range(steps)])

    def not_divided(f, x, y, steps):
        return steps * _along(f, x, y, [(i + 0.5) / steps for i in range(steps)])

    def turned_round(f, x, y, steps):
        return -_along(f, x, y, [(i + 0.5) / steps for i in range(steps)])

    return [clean_gradient_only, left_ends, right_ends, both_ends, not_divided, turned_round]


def exercise_3():
    def ties_won(score, true):
        return float((score[true][:, None] >= score[~true][None, :]).float().mean())

    def ties_lost(score, true):
        return float((score[true][:, None] > score[~true][None, :]).float().mean())

    def by_place_in_the_list(score, true):
        rank = score.argsort(descending=True, stable=True).argsort()
        return float((rank[true][:, None] < rank[~true][None, :]).float().mean())

    def share_of_true_on_top(score, true):
        top = score.topk(int(true.sum())).indices
        return float(true[top].float().mean())

    def turned_round(score, true):
        gap = score[~true][:, None] - score[true][None, :]
        return float(((gap > 0) + 0.5 * (gap == 0)).mean())

    return [ties_won, ties_lost, by_place_in_the_list, share_of_true_on_top, turned_round]
