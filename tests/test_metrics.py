import pytest
import torch

from helpers.errors import HookbookError
from helpers.metrics import Metric

LOGITS = torch.randn(3, 5, 11, generator=torch.Generator().manual_seed(0))  # [unit, pos, token]
WHOLE = torch.ones(3, 5, dtype=torch.bool)
RIGHT = torch.arange(5) < torch.tensor([[5], [3], [4]])
LEFT = RIGHT.flip(1)
UNITS = torch.arange(3)


def value(metric, mask=WHOLE, units=UNITS):
    """What a sweep does with a metric: gather what it reads, then reduce."""
    read = LOGITS[units[:, None], metric.reads(mask)[units]]
    tokens = metric.token_ids(units)
    if tokens is not None:
        read = read.gather(-1, tokens[:, None].expand(-1, read.shape[1], -1))
    return metric.reduce(read[None], units)[0]


def test_logit_difference_of_one_token_or_one_per_prompt():
    torch.testing.assert_close(value(Metric.logit_difference(4, 7)), LOGITS[:, -1, 4] - LOGITS[:, -1, 7])
    own = value(Metric.logit_difference([1, 2, 3], torch.tensor([4, 5, 6])))
    torch.testing.assert_close(own, torch.stack([LOGITS[i, -1, 1 + i] - LOGITS[i, -1, 4 + i] for i in range(3)]))
    mixed = value(Metric.logit_difference([1, 2, 3], 7))
    torch.testing.assert_close(mixed, torch.stack([LOGITS[i, -1, 1 + i] - LOGITS[i, -1, 7] for i in range(3)]))


def test_several_tokens_are_averaged():
    several = value(Metric.logit_difference(torch.tensor([[1, 2]]), torch.tensor([[3], [4], [5]])))
    expected = [LOGITS[i, -1, [1, 2]].mean() - LOGITS[i, -1, 3 + i] for i in range(3)]
    torch.testing.assert_close(several, torch.stack(expected))
    torch.testing.assert_close(value(Metric.logit(6, position=2)), LOGITS[:, 2, 6])


def test_log_prob_of_an_answer_of_several_tokens_is_their_sum():
    logs = LOGITS.log_softmax(-1)
    torch.testing.assert_close(value(Metric.log_prob([1, 2, 3])), logs[UNITS, -1, torch.tensor([1, 2, 3])])
    answer = torch.tensor([[1, 2], [3, 4], [5, 6]])
    both = value(Metric.log_prob(answer, position=torch.tensor([[3, 4]])))
    torch.testing.assert_close(both, logs[UNITS, 3, answer[:, 0]] + logs[UNITS, 4, answer[:, 1]])
    with pytest.raises(HookbookError, match="2 tokens and 1 positions"):
        value(Metric.log_prob(answer))


def test_kl_is_zero_against_itself_and_positive_against_others():
    torch.testing.assert_close(value(Metric.kl(LOGITS[:, -1])), torch.zeros(3), atol=1e-6, rtol=0)
    other = value(Metric.kl(LOGITS[:, 0]))
    p, q = LOGITS[:, 0].softmax(-1), LOGITS[:, -1].softmax(-1)
    torch.testing.assert_close(other, (p * (p / q).log()).sum(-1))
    assert (other > 0.1).all()


def test_units_find_their_own_tokens_when_only_some_are_run():
    metric = Metric.logit_difference([1, 2, 3], [4, 5, 6])
    torch.testing.assert_close(value(metric, units=torch.tensor([2, 0])), value(metric)[[2, 0]])
    metric = Metric.kl(LOGITS[:, 0])
    torch.testing.assert_close(value(metric, units=torch.tensor([1])), value(metric)[[1]])


@pytest.mark.parametrize(("mask", "last"), [(RIGHT, [4, 2, 3]), (LEFT, [4, 4, 4])])
def test_negative_positions_count_from_the_end_of_a_prompts_own_tokens(mask, last):
    assert Metric.logit(1).reads(mask)[:, 0].tolist() == last
    assert Metric.logit(1, position=-2).reads(mask)[:, 0].tolist() == [i - 1 for i in last]


@pytest.mark.parametrize(
    ("position", "mask"), [(3, RIGHT), (0, LEFT), (-4, RIGHT), (-4, LEFT), (5, WHOLE), (torch.tensor([4, 3, 3]), RIGHT)]
)
def test_padding_is_not_read(position, mask):
    with pytest.raises(HookbookError, match="has no token"):
        Metric.logit(1, position=position).reads(mask)


def test_positions_may_differ_between_prompts():
    metric = Metric.logit(1, position=torch.tensor([4, 2, -1]))
    assert metric.reads(RIGHT).tolist() == [[4], [2], [3]]
    torch.testing.assert_close(value(metric, RIGHT), LOGITS[UNITS, torch.tensor([4, 2, 3]), 1])


def test_a_callable_reads_everything_and_returns_a_number_per_prompt():
    metric = Metric.of(lambda logits: logits[:, 1, 3] - logits[:, 2, 4])
    assert metric.position is None
    assert metric.reads(WHOLE).tolist() == [list(range(5))] * 3
    torch.testing.assert_close(value(metric), LOGITS[:, 1, 3] - LOGITS[:, 2, 4])
    assert Metric.of(metric) is metric
    with pytest.raises(HookbookError, match="1 numbers for 3 prompts"):
        value(Metric.of(lambda logits: logits.mean()))


def test_tokens_or_positions_of_another_number_of_prompts_are_refused():
    with pytest.raises(HookbookError, match="tokens of 2 prompts, but there are 3"):
        Metric.logit([1, 2]).reads(WHOLE)
    with pytest.raises(HookbookError, match="positions of 2 prompts"):
        Metric.logit(1, position=[1, 2]).reads(WHOLE)
    with pytest.raises(HookbookError, match="whole numbers"):
        Metric.logit(1.5).reads(WHOLE)
