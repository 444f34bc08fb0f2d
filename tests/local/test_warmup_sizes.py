"""Sizes and values of warm-up runs: batches, buckets, lengths, and the budget of time."""

from dataclasses import replace

import numpy as np
import pytest
from segment_fixture import spec
from warmup_harness import IDS, SUM, TEXT, Clock, Harness, X

from ringbatch.engine.worker.samples import MadeUp, made_up, spread
from ringbatch.engine.worker.warmup import (
    planned,
    sizes_to_try,
    warm_up,
)
from ringbatch.shm.cost_profile import Trial
from ringbatch.shm.tensor import Tensor


@pytest.mark.parametrize(
    ("cap", "allowed", "sizes"),
    [
        (1, (), [1]),
        (32, (), [1, 2, 4, 8, 16, 32]),
        (20, (), [1, 2, 4, 8, 16, 20]),
        (20, (3, 20), [3, 20]),
        (4096, (), [1 << power for power in range(13)]),
    ],
)
def test_the_allowed_sizes_are_run_or_the_powers_of_two(
    cap: int, allowed: tuple[int, ...], sizes: list[int]
) -> None:
    assert sizes_to_try(cap, allowed) == sizes


@pytest.mark.parametrize(
    ("inputs", "edges", "lengths"),
    [([X], (), [0]), ([X, IDS], (), [16]), ([IDS], (32, 64), [32, 64])],
)
def test_open_dimensions_have_the_sizes_of_the_buckets(
    inputs: list[Tensor], edges: tuple[int, ...], lengths: list[int]
) -> None:
    model = replace(spec(0, inputs, [SUM]), length_buckets=edges)
    assert MadeUp(model, 16).lengths == lengths


@pytest.mark.parametrize(
    ("below", "length", "count", "sizes"),
    [
        (0, 8, 1, [8]),
        (0, 8, 2, [8, 1]),
        (32, 64, 3, [64, 49, 33]),
        (32, 64, 4, [64, 54, 44, 33]),
        (3, 4, 3, [4, 4, 4]),
    ],
)
def test_the_lengths_of_rows_are_spread_over_a_bucket(
    below: int, length: int, count: int, sizes: list[int]
) -> None:
    assert spread(below, length, count) == sizes


def test_short_runs_come_first_and_sizes_that_never_form_do_not_run() -> None:
    runs = planned([1, 4], [32, 64], lambda rows, length: rows * length <= 128)
    assert runs == [(1, 32), (1, 64), (4, 32)]


def test_every_length_is_run_before_any_with_more_rows() -> None:
    runs = planned([2, 8], [1, 512], lambda _rows, _length: True)
    assert runs == [(2, 1), (2, 512), (8, 1), (8, 512)]


def test_the_best_of_several_runs_counts() -> None:
    clock, times = Clock(), iter([900, 50, 60, 90, 80, 70])

    def run(_rows: int, _length: int) -> int:
        run_ns = next(times)
        clock.now_ns += run_ns
        return run_ns

    trials_done: list[tuple[int, Trial]] = []
    result = warm_up(
        [(1, 0), (2, 0)],
        run,
        lambda done, trial: trials_done.append((done, trial)),
        limit_ns=10**6,
        clock_ns=clock,
    )
    assert result.trials == (Trial(1, 0, 60), Trial(2, 0, 50))
    assert [done for done, _ in trials_done] == [1, 2, 3, 4, 5, 6]
    assert trials_done[0] == (1, Trial(1, 0, 900))
    assert (result.left_out, result.error) == ((), None)


@pytest.mark.parametrize(
    ("limit_ns", "done", "left"),
    [(0, 1, 3), (1000, 1, 3), (3500, 2, 2), (15_000, 4, 0), (10**6, 4, 0)],
)
def test_a_size_that_would_take_too_long_is_left_out(limit_ns: int, done: int, left: int) -> None:
    clock = Clock()

    def run(rows: int, _length: int) -> int:
        clock.now_ns += 1000 * rows
        return 1000 * rows

    runs = [(rows, 0) for rows in (1, 2, 4, 8)]
    result = warm_up(runs, run, lambda *_: None, limit_ns=limit_ns, clock_ns=clock)
    assert len(result.trials) == done
    assert result.left_out == tuple(runs[len(runs) - left :])
    assert clock.now_ns <= max(limit_ns, 1000) + 1000 * runs[done - 1][0]


def test_made_up_values_are_ones_of_the_right_shape() -> None:
    x, ids, text = made_up([X, IDS, TEXT], 3, 7)
    assert (x.dtype, x.tolist()) == (np.dtype("f4"), [[1, 1]] * 3)
    assert (ids.dtype, ids.shape) == (np.dtype("i8"), (3, 7))
    assert text.tolist() == [b"1"] * 3


@pytest.mark.parametrize("datatype", ["BOOL", "BF16", "FP16", "UINT8", "BYTES"])
def test_every_datatype_can_be_made_up_as_in_a_request(datatype: str) -> None:
    tensor = Tensor("x", datatype, [2])
    harness = Harness(spec(0, [tensor], [tensor]), lambda x: x)
    assert len(harness.warm()) == 6


def test_rows_that_would_share_no_batch_are_made_up_alike() -> None:
    """An optional input that is empty by default is shorter than the one beside it."""
    words = Tensor("words", "BYTES", [-1], default=[])
    tags = Tensor("tags", "INT64", [-1])
    model = replace(spec(0, [IDS, words], [tags]), pad_variable_length=True)
    rows = MadeUp(model, 16).rows(3, 16)
    assert [[array.shape for array in row] for row in rows] == [[(1, 16), (1, 0)]] * 3
    alone = replace(spec(0, [IDS], [tags]), pad_variable_length=True)
    assert [row[0].shape for row in MadeUp(alone, 16).rows(3, 16)] == [(1, 16), (1, 9), (1, 1)]
