"""Places of a model's workers: which run here, and which drive Ray actors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.config.worker_places import Count, agree, fewest, in_ray, most

COUNTS = st.one_of(
    st.integers(0, 6),
    st.tuples(st.integers(0, 6), st.integers(0, 6)).map(lambda p: (min(p), max(p))),
)


@pytest.mark.parametrize(
    ("here", "elsewhere", "kinds"),
    [
        (2, 0, "hh"),
        (2, 1, "hhr"),
        (2, (0, 3), "hhrrr"),
        ((1, 3), (0, 2), "hhhrr"),
        ((1, 3), (1, 3), "hrhhrr"),
        ((0, 2), (0, 2), "hhrr"),
        ((0, 2), 1, "rhh"),
    ],
)
def test_the_order_of_the_places(here: Count, elsewhere: Count, kinds: str) -> None:
    assert in_ray(here, elsewhere) == tuple(kind == "r" for kind in kinds)


@given(COUNTS, COUNTS)
def test_any_number_of_running_workers_is_within_both_ranges(here: Count, elsewhere: Count) -> None:
    kinds = in_ray(here, elsewhere)
    assert len(kinds) == most(here) + most(elsewhere)
    for running in range(fewest(here) + fewest(elsewhere), len(kinds) + 1):
        far = sum(kinds[:running])
        assert fewest(elsewhere) <= far <= most(elsewhere)
        assert fewest(here) <= running - far <= most(here)
        # No further one is elsewhere while there could be one here.
        assert far == fewest(elsewhere) or running - far == most(here)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("hh", "hh", True),
        ("hh", "hhrr", True),
        ("hhrr", "hh", True),
        ("hhh", "hhr", False),
        ("hhrr", "hhhr", False),
        ("rr", "hh", False),
    ],
)
def test_workers_that_may_keep_their_places(before: str, after: str, found: bool) -> None:
    assert agree(*(tuple(kind == "r" for kind in kinds) for kinds in (before, after))) is found
