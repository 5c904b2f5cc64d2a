"""Wrong but plausible answers to the exercises of activation-patching-practices; each check must reject them all."""

import torch


def exercise_1():
    def mean_of_shares(patched, corrupted, clean):
        return ((patched - corrupted) / (clean - corrupted)).mean(-1)

    def of_the_clean_run(patched, corrupted, clean):
        return patched.sum(-1) / clean.sum(-1)

    def without_sign(patched, corrupted, clean):
        return (patched - corrupted).abs().sum(-1) / (clean - corrupted).abs().sum(-1)

    def what_is_missing(patched, corrupted, clean):
        return (clean - patched).sum(-1) / (clean - corrupted).sum(-1)

    def by_prompt(patched, corrupted, clean):
        return (patched - corrupted) / (clean - corrupted)

    def gaps_without_sign(patched, corrupted, clean):
        return (patched - corrupted).sum(-1) / (clean - corrupted).abs().sum(-1)

    return [mean_of_shares, of_the_clean_run, without_sign, what_is_missing, by_prompt, gaps_without_sign]


def exercise_2():
    def r(x, y):
        return torch.corrcoef(torch.stack([x, y]))[0, 1]

    def same_half(a1, a2, b1, b2):
        return (r(a1, b1) + r(a2, b2)) / 2 / (r(a1, a2) * r(b1, b2)).sqrt()

    def no_ceiling(a1, a2, b1, b2):
        return (r(a1, b2) + r(a2, b1)) / 2

    def halves_pooled(a1, a2, b1, b2):
        return r(a1 + a2, b1 + b2)

    def no_root(a1, a2, b1, b2):
        return (r(a1, b2) + r(a2, b1)) / 2 / (r(a1, a2) * r(b1, b2))

    def not_centred(a1, a2, b1, b2):
        return (a1 @ b2 + a2 @ b1) / 2 / ((a1 @ a2) * (b1 @ b2)).sqrt()

    def without_sign(a1, a2, b1, b2):
        return (r(a1, b2).abs() + r(a2, b1).abs()) / 2 / (r(a1, a2) * r(b1, b2)).sqrt()

    def ceiling_of_a(a1, a2, b1, b2):
        return (r(a1, b2) + r(a2, b1)) / 2 / r(a1, a2)

    def ceiling_of_b(a1, a2, b1, b2):
        return (r(a1, b2) + r(a2, b1)) / 2 / r(b1, b2)

    def mean_ceiling(a1, a2, b1, b2):
        return (r(a1, b2) + r(a2, b1)) / (r(a1, a2) + r(b1, b2))

    answers = [same_half, no_ceiling, halves_pooled, no_root, not_centred, without_sign]
    return [*answers, ceiling_of_a, ceiling_of_b, mean_ceiling]


def exercise_3():
    def sum_of_effects(base, singles):
        return (singles - base).sum(0)

    def log_probabilities(base, singles):
        return (base.log() + (singles.log() - base.log()).sum(0)).exp() - base

    def not_subtracted(base, singles):
        return (base.logit() + (singles.logit() - base.logit()).sum(0)).sigmoid()

    def base_counted_twice(base, singles):
        return singles.logit().sum(0).sigmoid() - base

    def mean_push(base, singles):
        return (base.logit() + (singles.logit() - base.logit()).mean(0)).sigmoid() - base

    return [sum_of_effects, log_probabilities, not_subtracted, base_counted_twice, mean_push]
