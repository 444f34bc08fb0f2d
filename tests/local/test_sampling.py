"""Choice of the next token: temperatures, likeliest tokens, penalties and seeds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.runtimes.graphs.sampling import Sampler, chosen

SCORES = np.log(np.array([0.1, 0.4, 0.2, 0.3]))
DRAWS = (np.arange(1000) + 0.5) / 1000


def shares(top_p: float, temperature: float = 1.0) -> list[float]:
    """Return the share of draws that choose each token."""
    found = [chosen(SCORES / temperature, top_p, float(draw)) for draw in DRAWS]
    return [round(found.count(token) / len(DRAWS), 2) for token in range(4)]


@pytest.mark.parametrize(
    ("top_p", "found"),
    [
        (1.0, [0.1, 0.4, 0.2, 0.3]),
        (0.91, [0.1, 0.4, 0.2, 0.3]),
        (0.89, [0, 0.44, 0.22, 0.33]),
        (0.69, [0, 0.57, 0, 0.43]),
        (0.39, [0, 1, 0, 0]),
        (0.0, [0, 1, 0, 0]),
    ],
)
def test_tokens_are_chosen_by_their_shares_among_the_likeliest(
    top_p: float, found: list[float]
) -> None:
    assert shares(top_p) == found


def test_a_temperature_makes_shares_more_or_less_alike() -> None:
    weights = np.exp(SCORES / 2)
    assert shares(1, temperature=2) == pytest.approx(weights / weights.sum(), abs=0.01)
    assert shares(1, temperature=0.1)[1] > 0.9


@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=9),
    st.floats(0, 1),
    st.floats(0, 1, exclude_max=True),
)
def test_a_chosen_token_is_among_the_fewest_that_suffice(
    scores: list[float], top_p: float, draw: float
) -> None:
    values = np.array(scores)
    token = chosen(values, top_p, draw)
    weights = np.exp(values - values.max())
    likelier = weights[weights > weights[token]].sum() / weights.sum()
    assert likelier <= top_p + 1e-9


def test_without_a_temperature_the_best_is_chosen() -> None:
    sampler = Sampler(temperature=0, top_p=0.5)
    assert [sampler.next(SCORES) for _ in range(3)] == [1, 1, 1]


def test_penalties_count_the_tokens_of_the_text() -> None:
    scores = np.array([0.0, 1.0, 0.5])
    present = Sampler(temperature=0, presence_penalty=0.6)
    assert [present.next(scores) for _ in range(4)] == [1, 2, 1, 1]
    frequent = Sampler(temperature=0, frequency_penalty=0.6)
    assert [frequent.next(scores) for _ in range(5)] == [1, 2, 1, 0, 2]
    wanted = Sampler(temperature=0, presence_penalty=-2)
    assert [wanted.next(one) for one in (scores, scores[::-1])] == [1, 1]
    assert scores.tolist() == [0.0, 1.0, 0.5]


def test_a_seed_gives_the_same_text_and_none_gives_others() -> None:
    flat = np.zeros(1000)

    def text(seed: int) -> list[int]:
        sampler = Sampler(seed=seed)
        return [sampler.next(flat) for _ in range(8)]

    assert text(3) == text(3) != text(4)
    assert text(-1) != text(-1)


@given(st.integers(0, 9), st.sampled_from([0.0, 1.0]), st.sampled_from([0.3, 1.0]))
def test_a_text_goes_on_behind_the_tokens_that_it_has(
    count: int, temperature: float, top_p: float
) -> None:
    flat = np.linspace(0, 1, 50)

    def sampler(emitted: list[int]) -> Sampler:
        return Sampler(temperature, top_p, 0.5, 0.25, 7, emitted)

    whole = sampler([])
    text = [whole.next(flat) for _ in range(10)]
    again = sampler(text[:count])
    assert [again.next(flat) for _ in range(10 - count)] == text[count:]
