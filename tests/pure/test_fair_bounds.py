"""Properties of fair shares in random lives: no starvation, close shares, no role of names.

`fair_shares_ledger` has the bounds.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

import pytest
from fair_shares_ledger import Ledger
from hypothesis import given
from hypothesis import strategies as st
from simulation.mutation import Mutant
from tiers import only

from ringbatch.engine.collector.fair_order import FairOrder
from ringbatch.engine.collector.usage import AccountUsage, ClassUsage, Usage
from ringbatch.shm.account import IDENTITY_MASK, PriorityClass, account_word
from ringbatch.shm.engine_slots import Request

MOST_ROWS = 8
NEW: Final = 0
"""Account that was never seen before."""
FIRST_NEW: Final = 1_000
SEEDS: Final = range(30)


class Turn(NamedTuple):
    """A request comes, then some are taken, and one may leave unserved.

    Attributes:
        word: of the request's account; of the identity `NEW` each is another account.
        rows: of the request.
        taken: number of requests taken then.
        leaves: the place by arrival of the request that leaves, counted around; -1 for none.
    """

    word: int
    rows: int = 1
    taken: int = 0
    leaves: int = -1


Life = Sequence[Turn]
words = st.builds(
    account_word, st.integers(0, 3), st.sampled_from(PriorityClass), st.sampled_from([1, 1, 2, 5])
)
turns = st.builds(
    Turn, words, st.integers(1, MOST_ROWS), st.integers(0, 2), st.sampled_from([-1, -1, -1, 0, 3])
)
lives = st.lists(turns, max_size=40)


def requests_of(life: Life) -> list[Request]:
    """The requests of a life; the n-th has the reference n."""
    new, found = count(FIRST_NEW), []
    for ref, turn in enumerate(life):
        word = turn.word if turn.word & IDENTITY_MASK else turn.word | next(new)
        found.append(Request(ref, 0, turn.rows, 0, 0, 0, 0, 0, ref, 1 << 62, word))
    return found


def lived(life: Life, requests: Sequence[Request], ledger: Ledger | None = None) -> list[int]:
    """The references of requests as they are taken; the last ones once no more come."""
    order, found = FairOrder(Usage(), None, []), list[int]()

    def take() -> None:
        request = order.popleft()
        found.append(request.ref)
        if ledger is not None:
            ledger.is_taken(request)

    for turn, request in zip(life, requests, strict=True):
        order.extend([request])
        if ledger is not None:
            ledger.comes(request)
        for _ in range(min(turn.taken, len(order))):
            take()
        if turn.leaves >= 0 and order:
            gone = [*order][turn.leaves % len(order)]
            order.remove(gone.ref)
            if ledger is not None:
                ledger.leaves(gone)
    while order:
        take()
    return found


def keep_the_bounds(life: Life) -> None:
    largest = max((turn.rows for turn in life), default=0)
    lived(life, requests_of(life), Ledger(largest))


def have_no_names(life: Life, names: Mapping[int, int]) -> None:
    requests = requests_of(life)
    renamed = [
        each._replace(account=each.account & ~IDENTITY_MASK | names[each.account & IDENTITY_MASK])
        for each in requests
    ]
    assert lived(life, requests) == lived(life, renamed), "other names, another order"


def fill_batches(life: Life, cap: int) -> None:
    """Take batches, whose places stay empty only for want of requests or of room for the next."""
    order = FairOrder(Usage(), None, requests_of(life))
    while order:
        taken, rows = order.take(cap)
        assert rows == sum(each.rows for each in taken), "a wrong count"
        assert taken, "a batch is empty while requests wait"
        assert rows <= cap or len(taken) == 1, "too many rows"
        if order:
            assert rows + order.next_request().rows > cap, "a place stays empty"


def other_names(chance: random.Random) -> dict[int, int]:
    """New names of all accounts of a life, none of them twice."""
    used = [*range(1, 4), *range(FIRST_NEW, FIRST_NEW + 100)]
    return dict(zip(used, chance.sample(range(1, IDENTITY_MASK), len(used)), strict=True))


@given(lives)
def test_nobody_starves_and_shares_stay_close(life: Life) -> None:
    keep_the_bounds(life)


@given(lives, st.randoms(use_true_random=False))
def test_names_of_accounts_do_not_matter(life: Life, chance: random.Random) -> None:
    have_no_names(life, other_names(chance))


@given(lives, st.integers(1, 3 * MOST_ROWS))
def test_no_place_of_a_batch_stays_empty_while_the_next_request_fits(life: Life, cap: int) -> None:
    fill_batches(life, cap)


@given(st.lists(words, max_size=30), st.integers(1, 8))
def test_batches_of_single_rows_are_full(several: list[int], cap: int) -> None:
    order = FairOrder(Usage(), None, requests_of([Turn(word) for word in several]))
    while order:
        waited = len(order)
        assert len(order.take(cap)[0]) == min(cap, waited)


def by_chance(seed: int) -> Life:
    """A life in which more comes than is taken, with many of the same accounts."""
    chance = random.Random(seed)
    kinds = chance.sample([*PriorityClass], chance.randint(1, 3))
    most, weights = chance.choice([1, 3, MOST_ROWS]), chance.choice([[1], [1, 2, 5]])
    return [
        Turn(
            account_word(chance.randint(0, 3), chance.choice(kinds), chance.choice(weights)),
            chance.randint(1, most),
            chance.choice([0, 1, 1, 2]),
            chance.choice([-1] * 9 + [0]),
        )
        for _ in range(60)
    ]


def stream(several: Iterable[int], turns: int = 20) -> Life:
    """Requests of the same words again and again, fewer of which are taken than come."""
    own = [*several]
    return [Turn(word, 1, int(place == 0)) for _ in range(turns) for place, word in enumerate(own)]


INTERACTIVE, BULK = PriorityClass.INTERACTIVE, PriorityClass.BULK
KEPT: Final[tuple[Life, ...]] = (
    stream([1, NEW, NEW, NEW]),
    stream([account_word(1, BULK), account_word(2, INTERACTIVE)], 80),
    [*stream([2, 2], 50), *stream([2, 1, 1], 50)],
    [*stream([2, 2], 50), *stream([2, account_word(1, BULK), account_word(1, BULK)], 50)],
    *map(by_chance, SEEDS),
)


def all_bounds_are_kept() -> None:
    for life in KEPT:
        keep_the_bounds(life)


def no_names_matter() -> None:
    for seed in SEEDS:
        have_no_names(by_chance(seed), other_names(random.Random(seed)))


def all_batches_are_full() -> None:
    for seed in SEEDS:
        fill_batches(by_chance(seed), 1 + seed % (2 * MOST_ROWS))


CLASSES: Final = "one class starves another|two classes drift apart"
ACCOUNTS: Final = "one account starves another|many accounts starve one|two accounts drift apart"
WRONG: Final[Mapping[tuple[Callable[[], None], str], Mapping[str, Mutant]]] = {
    (all_bounds_are_kept, ACCOUNTS): {
        "nothing is charged": Mutant(Usage, "charge", "cost / account.weight", "0.0"),
        "weights do not count": Mutant(Usage, "charge", "cost / account.weight", "cost"),
        "an account starts at nothing": Mutant(AccountUsage, "__init__", "priority.clock", "0.0"),
        "an account that leaves is remembered": Mutant(
            Usage, "end", "del self._accounts[account.word]", "pass"
        ),
        "a new account starts where the last one began": Mutant(
            Usage,
            "_serve",
            "priority.clock = reached",
            "priority.clock = reached - 1",
        ),
    },
    (all_bounds_are_kept, CLASSES): {
        "no class is charged": Mutant(Usage, "_serve", "cost / priority.weight", "0.0"),
        "classes have one weight": Mutant(Usage, "_serve", "cost / priority.weight", "cost"),
        "a class starts at nothing": Mutant(Usage, "_begin_in", "= self._clock", "= 0.0"),
        "bulk goes when nobody else waits": Mutant(
            ClassUsage, "__init__", "= CLASS_WEIGHTS[kind]", "= CLASS_WEIGHTS[kind] - 1 or 1e-9"
        ),
    },
    (no_names_matter, "other names, another order"): {
        "names decide": Mutant(
            AccountUsage, "__init__", "priority.clock", "priority.clock + word % 7 / 8"
        ),
    },
    (all_batches_are_full, "a place stays empty"): {
        "a batch ends before it is full": Mutant(
            FairOrder, "take", "first.rows > left", "first.rows >= left"
        ),
    },
    (all_batches_are_full, "too many rows"): {
        "a batch takes one row more": Mutant(
            FairOrder, "take", "first.rows > left", "first.rows > left + 1"
        ),
    },
}
"""Engines that lack a rule, for each property and its failure."""
CASES: Final = {
    name: (mutant, proof, how)
    for (proof, how), mutants in WRONG.items()
    for name, mutant in mutants.items()
}


@pytest.mark.parametrize("proof", [all_bounds_are_kept, no_names_matter, all_batches_are_full])
def test_the_rule_has_the_properties(proof: Callable[[], None]) -> None:
    proof()


@pytest.mark.parametrize(
    ("wrong", "proof", "how"),
    only(CASES, "nothing is charged", "no class is charged", "a batch ends before it is full"),
)
def test_a_wrong_rule_is_found_out(wrong: Mutant, proof: Callable[[], None], how: str) -> None:
    with wrong.applied(), pytest.raises(AssertionError, match=how):
        proof()
