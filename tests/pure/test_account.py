"""The account word: every value is valid, and its parts do not touch each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.shm.account import (
    MAX_WEIGHT,
    MAX_WORD,
    MIXED,
    NOBODY,
    PriorityClass,
    account_word,
    at_most,
    class_of,
    common_class,
    identity,
    identity_of,
    weight_of,
    with_class,
    with_limit,
    word_for_slot,
    word_of_lane,
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
def test_a_program_names_the_class_of_its_requests_and_nothing_else(word: int, own: int) -> None:
    changed = word_of_lane(word, own)
    if own == NOBODY:
        assert changed == NOBODY
    else:
        assert changed == account_word(own, class_of(word))


ORDER = [PriorityClass.INTERACTIVE, PriorityClass.NORMAL, PriorityClass.BULK]


@given(words, classes, st.integers(0, 3))
def test_the_body_of_a_request_may_name_a_class_up_to_a_limit(
    word: int, highest: PriorityClass, level: int
) -> None:
    limited = with_limit(word, highest)
    assert class_of(limited) is at_most(class_of(word), highest)
    assert weight_of(limited) == weight_of(word)
    found = word_for_slot(limited, level)
    asked = ORDER[level - 1] if level and limited & MAX_WORD else class_of(limited)
    assert found == with_class(limited & MAX_WORD, at_most(asked, highest))
    assert with_limit(limited, PriorityClass.INTERACTIVE) == limited & MAX_WORD


@given(words)
def test_every_value_is_valid(word: int) -> None:
    assert class_of(word) in PriorityClass
    assert 1 <= weight_of(word) <= MAX_WEIGHT
    assert 0 <= identity_of(word) < 1 << 48


@pytest.mark.parametrize("level", range(4))
def test_nobody_has_no_class_for_any_body(level: int) -> None:
    assert word_for_slot(NOBODY, level) == NOBODY


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
    for highest in ORDER:
        for priority in ORDER:
            lower = ORDER[max(ORDER.index(priority), ORDER.index(highest))]
            assert at_most(priority, highest) is lower


@given(st.lists(words, min_size=1, max_size=5))
def test_requests_have_a_common_class_or_none(several: list[int]) -> None:
    classes = {class_of(word) for word in several}
    assert common_class(several) == (min(classes) if len(classes) == 1 else MIXED)
