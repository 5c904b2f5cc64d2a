"""Wrong but plausible answers to the exercises of sentiment-direction; each check must reject every one of them."""

import torch


def exercise_1():
    def not_scaled(x, y):
        return x[y > 0].mean(0) - x[y < 0].mean(0)

    def other_way_round(x, y):
        d = x[y < 0].mean(0) - x[y > 0].mean(0)
        return d / d.norm()

    def wrong_axis(x, y):
        d = x[y > 0].mean(1) - x[y < 0].mean(1)
        return d / d.norm()

    def label_weighted_mean(x, y):
        d = (x * y[:, None]).mean(0) + x.mean(0)
        return d / d.norm()

    return [not_scaled, other_way_round, wrong_axis, label_weighted_mean]


def exercise_2():
    def everything(base, source, d):
        return source.clone()

    def length_forgotten(base, source, d):
        return base + ((source - base) @ d)[:, None] * d

    def added_not_exchanged(base, source, d):
        d = d / d.norm()
        return base + (source @ d)[:, None] * d

    def nothing_returned(base, source, d):
        d = d / d.norm()
        base + ((source - base) @ d)[:, None] * d

    def in_place(base, source, d):
        d = d / d.norm()
        base += ((source - base) @ d)[:, None] * d
        return base

    def one_position_late(base, source, d):
        d = d / d.norm()
        move = ((source - base) @ d)[:, None] * d
        return base + torch.roll(move, 1, dims=0)

    return [everything, length_forgotten, added_not_exchanged, nothing_returned, in_place, one_position_late]


def exercise_3():
    def own_component(base, source, d, c):
        return base + ((source - base) @ c)[:, None] * c

    def one_size_for_all(base, source, d, c):
        return base + ((source - base) @ d).abs().mean() * c

    def along_both(base, source, d, c):
        return base + ((source - base) @ d)[:, None] * (c + d)

    def divided_by_zero(base, source, d, c):
        move = ((source - base) @ c)[:, None] * c
        return base + move * ((source - base) @ d).abs()[:, None] / move.norm(dim=-1, keepdim=True)

    return [own_component, one_size_for_all, along_both, divided_by_zero]
