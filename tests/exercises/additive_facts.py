"""Wrong but plausible answers to the exercises of additive-facts; each check must reject every one of them."""

import torch


def exercise_1():
    def scale_forgotten(pattern, v, w_o, u, scale):
        return pattern[-1] * (v @ w_o @ u)

    def first_query(pattern, v, w_o, u, scale):
        return pattern[0] * (v @ w_o @ u) / scale

    def attention_forgotten(pattern, v, w_o, u, scale):
        return v @ w_o @ u / scale

    def spread_evenly(pattern, v, w_o, u, scale):
        return (pattern[-1] @ v @ w_o @ u / scale).expand(len(v)) / len(v)

    def summed_up(pattern, v, w_o, u, scale):
        return pattern[-1] @ v @ w_o @ u / scale

    return [scale_forgotten, first_query, attention_forgotten, spread_evenly, summed_up]


def exercise_2():
    def cell_used(x):
        return x.mean(1, keepdim=True) + x.mean(0, keepdim=True) - x.mean()

    def grand_mean_of_all(x):
        n, m = x.shape
        row = (x.sum(1, keepdim=True) - x) / (m - 1)
        column = (x.sum(0, keepdim=True) - x) / (n - 1)
        return row + column - x.mean()

    def cell_left_out_of_the_grand_mean_only(x):
        row, column = x.mean(1, keepdim=True), x.mean(0, keepdim=True)
        return row + column - (x.sum() - x) / (x.numel() - 1)

    def the_table_itself(x):
        return x

    return [cell_used, grand_mean_of_all, cell_left_out_of_the_grand_mean_only, the_table_itself]


def exercise_3():
    def right_answer_only(x, u, answer):
        return (x @ u[:, answer]).diagonal().mean()

    def against_the_vocabulary(x, u, answer):
        return ((x @ u[:, answer]).diagonal() - (x @ u).mean(1)).mean()

    def not_halved(x, u, answer):
        read = x @ u[:, answer]
        own = read.diagonal()
        return (own[:, None] + own - read - read.T)[answer[:, None] != answer].mean()

    def same_answers_counted(x, u, answer):
        read = x @ u[:, answer]
        own = read.diagonal()
        pairs = (own[:, None] + own - read - read.T) / 2
        return pairs[~torch.eye(len(x), dtype=torch.bool)].mean()

    def one_prompt_only(x, u, answer):
        read = x @ u[:, answer]
        lead = read.diagonal()[:, None] - read
        return lead[0][answer != answer[0]].mean()

    return [right_answer_only, against_the_vocabulary, not_halved, same_answers_counted, one_prompt_only]
