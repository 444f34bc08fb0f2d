"""Tests of bench/in_process.py: it measures exchanges that work, and the shortest of many runs."""

import pytest
from hot_path.pieces import Piece
from in_process import BURST, MESSAGE, WAYS, Between, NotInstalled, best_ns, between_table, copies
from tiers import only

FIRST = [way for way in WAYS if way != "faster-fifo"]
"""The ways that need nothing but the packages of the first tier."""


@pytest.mark.parametrize("way", only({way: way for way in WAYS}, *FIRST))
def test_each_way_gives_back_the_sent_message(way: str) -> None:
    try:
        with WAYS[way]() as exchange:
            for _ in range(3):
                assert exchange([MESSAGE]) == [MESSAGE]
                assert exchange([MESSAGE] * BURST) == [MESSAGE] * BURST
    except NotInstalled as error:
        pytest.skip(str(error))


def test_the_shortest_run_counts_without_its_preparation() -> None:
    calls: list[str] = []
    piece = Piece(
        lambda: calls.append("run"),
        serves=2,
        before=lambda: calls.append("before"),
        after=lambda: calls.append("after"),
    )
    assert best_ns(piece, 2) > 0
    assert calls == ["before", "run", "after"] * 2


def test_copies_of_a_batch_take_time() -> None:
    found = copies(3136, 8, 3)
    assert list(found) == ["gather", "scatter", "memcpy"]
    assert all(ns > 0 for ns in found.values())


def test_ways_are_compared_with_ringbatch() -> None:
    text = between_table({"ringbatch": [Between(20, 3)], "other": [Between(40, 9)]})
    assert text.splitlines()[-1].split()[-1] == "3"
