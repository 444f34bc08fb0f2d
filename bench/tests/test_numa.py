"""The arithmetic of two nodes."""

import numa
import pytest
from numa import Costs, extra_ns, far_shares, lines, waiting


def test_an_engine_for_each_node_has_nothing_far_and_pinning_only_the_collector() -> None:
    assert set(far_shares("engines").values()) == {0.0}
    assert {pair for pair, share in far_shares("pinned").items() if share} == {
        pair for pair in lines(1) if "collector" in pair
    }


def test_the_extra_time_of_a_request() -> None:
    costs = Costs(far_ns=100.0, near_gbs=10.0, far_share=0.5)
    words = sum(lines(8).values()) * 100.0 / 2
    assert extra_ns("anywhere", 8, 1000, costs) == pytest.approx(words + 50.0)
    assert extra_ns("pinned", 8, 1000, costs) < words
    assert extra_ns("engines", 8, 1 << 20, costs) == 0.0


def test_the_slot_is_counted_as_it_is_laid_out() -> None:
    assert (numa.REQUEST_LINES, numa.ANSWER_LINES) == (2, 2)


def test_waiting_is_erlangs() -> None:
    # One server: load / (1 - load).
    assert waiting(1, 0.5) == pytest.approx(1.0)
    # Two, at half load: a third of all wait, for a run on average.
    assert waiting(2, 0.5) == pytest.approx(1 / 3)
