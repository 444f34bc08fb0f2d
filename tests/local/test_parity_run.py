"""Answers whose rows differ in length, alone and in company, as ``ringbatch check --parity`` has
them."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from segment_fixture import local_segment, spec

from ringbatch.engine.models.model import Model
from ringbatch.engine.process.role_commands import Parity
from ringbatch.engine.process.role_events import ParityCompared
from ringbatch.engine.worker.padding import PaddedCodec, padding
from ringbatch.engine.worker.parity_run import compare
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.tensor import Tensor

COUNT = Tensor("count", "INT64", [])
NUMBERS = Tensor("numbers", "INT32", [-1], padding=-1)
PAIRS = Tensor("pairs", "BYTES", [-1, 2], padding="-")
HALVES = Tensor("halves", "BF16", [-1], padding=0)
BARE = Tensor("bare", "FP32", [-1])
COUNTS = [3, 2, 0, 5, 0]


def spans(count: Any) -> tuple[Any, ...]:
    return (
        [list(range(n)) for n in count],
        [[[str(i), "x" * i] for i in range(n)] for n in count],
        [np.arange(n) / 2 for n in count],
        [np.arange(n, dtype="<f4") for n in count],
    )


def padded_by_itself(count: Any) -> Any:
    rows = np.full((len(count), max(count)), -1, "<i4")
    for row, n in zip(rows, count, strict=True):
        row[:n] = np.arange(n)
    return rows


def company_in_its_length(count: Any) -> Any:
    return [list(range(n + (len(count) > 1))) for n in count]


def found(
    outputs: list[Tensor],
    predict: Callable[..., Any],
    file: Path | None,
    *,
    edges: tuple[int, ...] | None = None,
) -> ParityCompared:
    model = Model((COUNT,), tuple(outputs), lambda: None, predict)
    entry = spec(0, [COUNT], outputs, max_batch_size=4)
    if edges is not None:
        inputs = (Tensor("x", "INT64", [-1]),)
        model = replace(model, inputs=inputs)
        entry = replace(entry, inputs=inputs, pad_variable_length=True, length_buckets=edges)
    segment = local_segment(entry)
    engine_slots = EngineSlots(segment, 0, lambda _lane: None)
    codec = None
    if edges is not None:
        codec = PaddedCodec(segment.memory, *padding(model, edges, {}, ""))
    runner = Runner(RunnerSetup(model, "m", engine_slots, lambda: 0, codec=codec))
    return compare(entry, runner.answers, Parity(str(file or ""), 1e-4, 16), "model.py")


@pytest.fixture
def counts(tmp_path: Path) -> Path:
    path = tmp_path / "counts.json"
    path.write_text(json.dumps({"instances": COUNTS}))
    return path


def test_rows_of_their_own_lengths_are_as_those_alone(counts: Path) -> None:
    compared = found([NUMBERS, PAIRS, HALVES, BARE], spans, counts)
    assert compared.apart == ()
    assert compared.lines == (
        "5 samples alone and in batches of 2, 4",
        "output numbers: no difference",
        "output pairs: no difference",
        "output halves: no difference",
        "output bare: no difference",
    )


def test_made_up_samples_have_rows_of_several_lengths_too() -> None:
    compared = found([NUMBERS, PAIRS, HALVES, BARE], spans, None)
    assert compared.apart == ()


@pytest.mark.parametrize("predict", [padded_by_itself, company_in_its_length])
def test_a_length_that_depends_on_company_is_found(
    counts: Path, predict: Callable[..., Any]
) -> None:
    (line,) = found([NUMBERS], predict, counts).apart
    assert line.startswith("output numbers: another answer for sample ")


def test_one_number_that_company_changes_is_found_in_its_row(counts: Path) -> None:
    def predict(count: Any) -> Any:
        return [np.arange(n, dtype="<f4") + (len(count) > 1) * (n == 5) for n in count]

    (line,) = found([BARE], predict, counts).apart
    assert line.startswith("output bare: largest difference 1, relative inf; sample 4 in a batch")


def test_a_model_that_returns_the_same_memory_each_time_is_compared_by_copies(
    counts: Path,
) -> None:
    out = np.zeros((4, 3), "<f4")

    def predict(count: Any) -> Any:
        out[: len(count)] = count[:, None] + 10 * (len(count) > 1)
        return out[: len(count)]

    (line,) = found([Tensor("y", "FP32", [3])], predict, counts).apart
    assert line.startswith("output y: largest difference 10")


@pytest.mark.parametrize("edges", [(), (4, 8)])
def test_rows_of_their_own_lengths_may_come_of_padded_ones(edges: tuple[int, ...]) -> None:
    def predict(x: Any) -> tuple[Any, Any]:
        return [row[row != 0].astype("<i4") for row in x], x

    outputs = [NUMBERS, Tensor("y", "INT64", [-1])]
    compared = found(outputs, predict, None, edges=edges)
    assert compared.apart == ()
    assert compared.lines[0].endswith("in batches of 2, 4, and beside long neighbours")
