"""Publications through the segment, each in the weak memory of AArch64.

Each is the real code of its writer and of its reader, under every order of their steps in
`memories.Armv8`. Its acquires, releases and fences are left out one at a time, and each leads to
something that must not be. `test_memory_orders.py` holds the list against the descriptors.
"""

from collections.abc import Iterable

import pytest
from interleave import Access, Violation, explore
from memories import Armv8
from metric_publications import METRIC_PUBLICATIONS
from publication_site import Fence, Publication, WordByWord
from record_publications import RECORD_PUBLICATIONS, Lines, TwoWords
from slot_publications import SLOT_PUBLICATIONS
from tiers import first_of

from ringbatch.shm import (
    engine_slots,
    joined,
    lane,
    model_table,
    slow_requests,
)

PUBLICATIONS = SLOT_PUBLICATIONS | RECORD_PUBLICATIONS | METRIC_PUBLICATIONS


@pytest.fixture(autouse=True)
def _formats_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write headers, answers and records word by word, and use tables of one word."""
    monkeypatch.setattr(model_table, "model_spec", Lines)
    monkeypatch.setattr(slow_requests, "REQUEST_RECORD_DETAILS", TwoWords())
    monkeypatch.setattr(lane, "_store_header", WordByWord().pack_into)
    monkeypatch.setattr(engine_slots, "_store_details", WordByWord().pack_into)
    monkeypatch.setattr(joined, "BATCH_DETAILS", WordByWord())


def explored(of: Publication, relaxed: Iterable[Access] = ()) -> int:
    found = explore(
        of.scenario, private=lambda n: n not in of.shared, memory=Armv8, relaxed=relaxed
    )
    print(found)
    return found.states


@pytest.mark.parametrize("name", PUBLICATIONS)
def test_a_reader_finds_the_published_value_or_nothing(name: str) -> None:
    assert explored(PUBLICATIONS[name]) > 5


ORDERS = [(name, access) for name, of in PUBLICATIONS.items() for access in of.accesses]
FENCES = [(name, fence) for name, of in PUBLICATIONS.items() for fence in of.fences]


@pytest.mark.parametrize(("name", "access"), ORDERS)
def test_an_acquire_or_release_that_is_left_out_is_missed(name: str, access: Access) -> None:
    with pytest.raises(Violation):
        explored(PUBLICATIONS[name], [access])


@pytest.mark.parametrize(("name", "fence"), first_of(FENCES, 4))
def test_a_fence_that_is_left_out_is_missed(
    name: str, fence: Fence, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, operation = fence
    monkeypatch.setattr(module, operation, lambda: None)
    with pytest.raises(Violation):
        explored(PUBLICATIONS[name])
