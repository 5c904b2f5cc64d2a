"""Wrong but plausible answers to the exercises of copy-suppression; each check must reject every one of them."""

import torch


def exercise_1():
    def scale_forgotten(weights, values, w_o, unembed, scale):
        return weights * (values @ w_o * unembed.T).sum(-1)

    def attention_forgotten(weights, values, w_o, unembed, scale):
        return (values @ w_o * unembed.T).sum(-1) / scale

    def head_output_for_all(weights, values, w_o, unembed, scale):
        return weights @ values @ w_o @ unembed / scale

    def every_token_for_every_source(weights, values, w_o, unembed, scale):
        return weights[:, None] * (values @ w_o @ unembed) / scale

    return [scale_forgotten, attention_forgotten, head_output_for_all, every_token_for_every_source]


def exercise_2():
    def other_way_round(logits, removed, which, change):
        p, q = logits.log_softmax(-1), removed.index_add(0, which, change).log_softmax(-1)
        return (q.exp() * (q - p)).sum()

    def in_place(logits, removed, which, change):
        removed[which] += change
        p, q = logits.log_softmax(-1), removed.log_softmax(-1)
        return (p.exp() * (p - q)).sum()

    def not_put_back(logits, removed, which, change):
        p, q = logits.log_softmax(-1), removed.log_softmax(-1)
        return (p.exp() * (p - q)).sum()

    def old_normaliser(logits, removed, which, change):
        p, q = logits.log_softmax(-1), removed.log_softmax(-1).index_add(0, which, change)
        return (p.exp() * (p - q)).sum()

    return [other_way_round, in_place, not_put_back, old_normaliser]


def exercise_3():
    def chosen_on_all(scores, fold):
        return scores[scores.mean(1).argmax()].mean()

    def chosen_on_its_own_fold(scores, fold):
        best = [scores[scores[:, fold == f].mean(1).argmax()][fold == f] for f in (0, 1)]
        return torch.cat(best).mean()

    def best_of_every_unit(scores, fold):
        return scores.max(0).values.mean()

    def mean_of_the_folds(scores, fold):
        best = [scores[scores[:, fold != f].mean(1).argmax()][fold == f].mean() for f in (0, 1)]
        return torch.stack(best).mean()

    return [chosen_on_all, chosen_on_its_own_fold, best_of_every_unit, mean_of_the_folds]
