"""Wrong but plausible answers to the exercises of circuit-component-reuse; each check must reject every one of them."""

import torch


def exercise_1():
    def in_place(pattern, heads, positions):
        for h in heads:
            pattern[h, -1] = 0.0
            pattern[h, -1, positions] = 1 / len(positions)
        return pattern

    def every_query(pattern, heads, positions):
        new = pattern.clone()
        for h in heads:
            new[h] = 0.0
            new[h, :, positions] = 1 / len(positions)
        return new

    def every_head(pattern, heads, positions):
        new = pattern.clone()
        new[:, -1] = 0.0
        new[:, -1, positions] = 1 / len(positions)
        return new

    def rest_left_as_it_is(pattern, heads, positions):
        new = pattern.clone()
        for h in heads:
            new[h, -1, positions] = 1 / len(positions)
        return new

    def rescaled_to_what_was_there(pattern, heads, positions):
        new = pattern.clone()
        for h in heads:
            new[h, -1] = 0.0
            new[h, -1, positions] = pattern[h, -1, positions] / pattern[h, -1, positions].sum()
        return new

    def one_half_always(pattern, heads, positions):
        new = pattern.clone()
        for h in heads:
            new[h, -1] = 0.0
            new[h, -1, positions] = 0.5
        return new

    def first_query(pattern, heads, positions):
        new = pattern.clone()
        for h in heads:
            new[h, 0] = 0.0
            new[h, 0, positions] = 1 / len(positions)
        return new

    return [
        in_place,
        every_query,
        every_head,
        rest_left_as_it_is,
        rescaled_to_what_was_there,
        one_half_always,
        first_query,
    ]


def exercise_2():
    def turned_round(pattern, gradient, wanted):
        return (gradient * (pattern - wanted[:, None])).sum(-1).mean(0)

    def without_what_is_there(pattern, gradient, wanted):
        return (gradient * wanted[:, None]).sum(-1).mean(0)

    def sum_over_prompts(pattern, gradient, wanted):
        return (gradient * (wanted[:, None] - pattern)).sum((0, 2))

    def mean_over_keys(pattern, gradient, wanted):
        return (gradient * (wanted[:, None] - pattern)).mean((0, 2))

    def averaged_before_multiplying(pattern, gradient, wanted):
        return (gradient.mean(0) * (wanted[:, None] - pattern).mean(0)).sum(-1)

    def without_signs(pattern, gradient, wanted):
        return (gradient * (wanted[:, None] - pattern)).sum(-1).abs().mean(0)

    def one_number_a_prompt(pattern, gradient, wanted):
        return (gradient * (wanted[:, None] - pattern)).sum(-1)

    return [
        turned_round,
        without_what_is_there,
        sum_over_prompts,
        mean_over_keys,
        averaged_before_multiplying,
        without_signs,
        one_number_a_prompt,
    ]


def exercise_3():
    def over_all_layers(first, second):
        return second.float().mean()

    def found_overlap(first, second):
        return (first & second).sum() / first.sum()

    def expected_number(first, second):
        return (first.sum(1) * second.float().mean(1)).sum()

    def mean_over_layers(first, second):
        return (first.float().mean(1) * second.float().mean(1)).mean()

    def of_the_second(first, second):
        return (first.sum(1) * second.float().mean(1)).sum() / second.sum() * first.float().mean()

    def other_way_round(first, second):
        return (second.sum(1) / first.sum(1).clamp(min=1)).mean()

    def layers_that_have_both(first, second):
        both = first.any(1) & second.any(1)
        return torch.stack([second[i].float().mean() for i in both.nonzero()[:, 0]]).mean()

    return [
        over_all_layers,
        found_overlap,
        expected_number,
        mean_over_layers,
        of_the_second,
        other_way_round,
        layers_that_have_both,
    ]
