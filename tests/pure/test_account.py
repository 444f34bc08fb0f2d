"""The account word: every value is valid, and its parts do not touch each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.shm.account import (
    MAX_WEIGHT,
    NOBODY,
    PriorityClass,
    account_word,
    at_most,
    class_of,
    identity,
    identity_of,
    weight_of,
    with_class,
    with_identity,
)

identities = st.integers(0, (1 << 48) - 1)
classes = st.sampled_from(PriorityClass)
weights = st.integers(1, MAX_WEIGHT)
words = st.integers(0, (1 << 64) - 1)


@given(identities, classes, weights)
def test_the_parts_of_a_word_come_back(account: int, priority: PriorityClass, weight: int) -> None:
    word = account_word(account, priority, weight)
    assert 0 <= word < 1 << 64
    assert (identity_of(word), class_of(word), weight_of(word)) == (account, priority, weight)


@given(words, classes)
def test_another_class_changes_nothing_else(word: int, priority: PriorityClass) -> None:
    changed = with_class(word, priority)
    assert 0 <= changed < 1 << 64
    assert class_of(changed) is priority
    assert (identity_of(changed), weight_of(changed)) == (identity_of(word), weight_of(word))


@given(words, identities)
def test_another_identity_changes_nothing_else(word: int, account: int) -> None:
    changed = with_identity(word, account)
    assert 0 <= changed < 1 << 64
    assert identity_of(changed) == account
    assert (class_of(changed), weight_of(changed)) == (class_of(word), weight_of(word))


@given(words)
def test_every_value_is_valid(word: int) -> None:
    assert class_of(word) in PriorityClass
    assert 1 <= weight_of(word) <= MAX_WEIGHT
    assert 0 <= identity_of(word) < 1 << 48


def test_nobody_is_of_class_normal_and_weight_1() -> None:
    assert account_word(0) == NOBODY
    assert (class_of(NOBODY), weight_of(NOBODY)) == (PriorityClass.NORMAL, 1)


@pytest.mark.parametrize("number", [3, 128, 255])
def test_a_number_that_names_no_class_is_normal(number: int) -> None:
    assert class_of(number << 48) is PriorityClass.NORMAL


def test_an_identity_depends_on_kind_name_and_seed() -> None:
    found = {
        identity(kind, name, seed)
        for kind in ("key", "address")
        for name in (b"", b"a", b"b", b"key\0a")
        for seed in (0, 1, (1 << 64) - 1)
    }
    assert len(found) == 2 * 4 * 3
    assert all(0 < each < 1 << 48 for each in found)
    assert identity("key", b"a", 7) == identity("key", b"a", 7)


def test_interactive_is_above_normal_and_that_above_bulk() -> None:
    order = [PriorityClass.INTERACTIVE, PriorityClass.NORMAL, PriorityClass.BULK]
    for highest in order:
        for priority in order:
            lower = order[max(order.index(priority), order.index(highest))]
            assert at_most(priority, highest) is lower
