"""Warm-up: what is run, on what, for how long, and what becomes of a model that fails."""

import io
import json
import logging
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from segment_fixture import local_segment, spec
from warmup_harness import IDS, PATH, SUM, TEXT, Harness, X, shaped

from ringbatch.engine.models.model import InvalidInput
from ringbatch.engine.worker import samples
from ringbatch.engine.worker.samples import Samples
from ringbatch.engine.worker.warmup import (
    Progress,
)
from ringbatch.shm import cost_profile
from ringbatch.shm.cost_profile import Trial
from ringbatch.shm.descriptors import CostProfileWords
from ringbatch.shm.errors import StartupError
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import Tensor


def sums(x: Any) -> Any:
    return x.reshape(len(x), -1).sum(axis=1, dtype="f4")


def test_a_model_is_run_at_every_size() -> None:
    harness = Harness(spec(0, [X], [SUM], max_batch_size=3), sums)
    assert harness.warm() == [(1, 0, 10), (2, 0, 20), (3, 0, 30)]
    shapes = [arguments[0].shape for arguments in harness.seen]
    assert shapes == [(1, 2), (2, 2), (3, 2)] * 3, "what is done once is over in the first round"


def test_a_model_without_a_batch_dimension_is_run_once_as_it_is() -> None:
    harness = Harness(spec(0, [X], [Tensor("y", "FP32", [2])], max_batch_size=0), lambda x: x)
    assert [rows for rows, _, _ in harness.warm()] == [1]
    assert harness.seen[0][0].shape == (2,)


def test_every_bucket_is_run_at_every_size_within_the_budget() -> None:
    model = shaped(
        max_batch_size=4,
        allowed_batch_sizes=(1, 4),
        pad_variable_length=True,
        length_buckets=(8, 32),
        max_batch_elements=100,
    )
    harness = Harness(model, sums)
    assert [trial[:2] for trial in harness.warm()] == [(1, 8), (1, 32), (4, 8)]


BUCKETS = {"pad_variable_length": True, "length_buckets": (4, 8)}


def test_rows_of_a_bucket_have_the_lengths_that_clients_send_and_are_padded_as_theirs() -> None:
    model = shaped(max_batch_size=3, allowed_batch_sizes=(1, 3), **BUCKETS)
    harness = Harness(model, lambda ids, _length: sums(ids), lengths_input="length", fill=7)
    assert [trial[:2] for trial in harness.warm()] == [(1, 4), (1, 8), (3, 4), (3, 8)]
    runs = {arguments[0].shape: arguments for arguments in harness.seen}
    ids, lengths = runs[3, 8]
    assert lengths.tolist() == [8, 7, 5]
    assert ids.tolist() == [[1] * 8, [1] * 7 + [7], [1] * 5 + [7] * 3]
    ids, lengths = runs[3, 4]
    assert lengths.tolist() == [4, 3, 1]


def test_instances_of_a_file_are_run_with_those_of_their_bucket(tmp_path: Path) -> None:
    file = written(tmp_path, [[1, 2], [5] * 7, [3], [4] * 20])
    model = shaped(max_batch_size=2, **BUCKETS)
    harness = Harness(model, lambda ids, _length: sums(ids), lengths_input="length")
    sizes = [trial[:2] for trial in harness.warm(file=file)]
    assert sizes == [(1, 4), (1, 8), (1, 20), (2, 4), (2, 8), (2, 20)]
    runs = {arguments[0].shape: arguments for arguments in harness.seen}
    ids, lengths = runs[2, 4]
    assert (ids.tolist(), lengths.tolist()) == ([[1, 2, 0, 0], [3, 0, 0, 0]], [2, 1])
    assert runs[2, 20][1].tolist() == [20, 20]


def test_a_model_that_fails_in_one_bucket_is_refused_with_that_bucket() -> None:
    def predict(ids: Any) -> Any:
        if ids.shape[1] > 4:
            raise ValueError("too long")
        return sums(ids)

    with pytest.raises(
        StartupError, match=r"with ids INT64 \[1, 8\], padded to 8: ValueError: too"
    ):
        Harness(shaped(max_batch_size=1, **BUCKETS), predict).warm()


@pytest.mark.parametrize(("at", "right"), [(0, False), (-1, True)])
def test_a_padded_rows_result_is_nobodys_failure(at: int, right: bool) -> None:
    def predict(ids: Any) -> Any:
        result = np.ones(ids.shape)
        if len(ids) > 1:
            result[-1, at] = np.nan
        return result

    y = Tensor("y", "FP32", [-1])
    model = replace(
        spec(0, [IDS], [y]), max_batch_size=2, refuse_nan=True, pad_variable_length=True
    )
    harness = Harness(model, predict)
    if right:
        assert len(harness.warm()) == 2
    else:
        with pytest.raises(StartupError, match="'y' holds NaN"):
            harness.warm()


def test_open_dimensions_without_padding_have_the_configured_length() -> None:
    harness = Harness(shaped(max_batch_size=1), sums)
    assert [trial[:2] for trial in harness.warm()] == [(1, 5)]
    assert harness.seen[0][0].shape == (1, 5)


def refuse(x: Any) -> Any:
    if len(x) > 1:
        raise InvalidInput("ones are not good enough")
    return sums(x)


def test_a_model_that_refuses_made_up_values_serves_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = Harness(spec(0, [X], [SUM]), refuse)
    assert [rows for rows, _, _ in harness.warm()] == [1]
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    words = "/models/m.py: warm-up of m with x FP32 [2, 2]: InvalidInput: ones are not good enough"
    assert record.getMessage() == (
        f"{words}; the values were made up, so the model serves all the same; give it some that it "
        'takes with warm_up_file, or set warm_up = "off"'
    )


def broken(x: Any) -> Any:
    if len(x) > 1:
        raise ZeroDivisionError("no such kernel")
    return sums(x)


def ended(_x: Any) -> Any:
    raise SystemExit(3)


Y = Tensor("y", "FP32", [2])
B = Tensor("y", "INT8", [2])
FAILS: dict[str, tuple[Callable[[Any], Any], ModelSpec, str]] = {
    "it raises": (
        broken,
        spec(0, [X], [SUM]),
        "m with x FP32 [2, 2]: ZeroDivisionError: no such kernel",
    ),
    "it exits": (ended, spec(0, [X], [SUM]), "m with x FP32 [1, 2]: SystemExit: 3"),
    "too few rows": (
        lambda x: x[1:],
        spec(0, [X], [Y]),
        "m with x FP32 [1, 2]: WrongCount: output 'y' has shape [0, 2], declared is [1, 2]",
    ),
    "another shape": (
        lambda x: x[:, :1],
        spec(0, [X], [Y]),
        "WrongResult: output 'y' has shape [1, 1], declared is [1, 2]",
    ),
    "another dtype": (
        lambda x: x.astype("c8"),
        spec(0, [X], [Y]),
        "WrongResult: output 'y' is complex64, declared is FP32",
    ),
    "no array": (lambda x: "y", spec(0, [X], [Y]), "WrongResult: output 'y' has shape []"),
    "not finite": (
        lambda x: x * np.inf,
        replace(spec(0, [X], [Y]), refuse_nan=True),
        "WrongResult: output 'y' holds NaN or infinity",
    ),
    "beyond the datatype": (
        lambda x: np.full(x.shape, 300),
        spec(0, [X], [B]),
        "WrongResult: output 'y' holds numbers beyond the declared INT8",
    ),
    "without a batch dimension": (
        broken,
        spec(0, [X], [SUM], max_batch_size=0),
        "m with x FP32 [2]: ZeroDivisionError: no such kernel",
    ),
}


@pytest.mark.parametrize(("predict", "model", "words"), FAILS.values(), ids=FAILS)
def test_a_model_that_fails_at_its_own_signature_is_refused_or_served_with_a_warning(
    predict: Callable[[Any], Any],
    model: ModelSpec,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(StartupError) as refused:
        Harness(model, predict).warm()
    assert str(refused.value).startswith(f"{PATH}: warm-up of m with x FP32 ")
    assert words in str(refused.value)
    assert str(refused.value).endswith(
        "; the values were made up; if these are to blame, give it some with warm_up_file; "
        'warm_up = "required" refuses a model that fails, "try" serves it'
    )
    caplog.clear()
    Harness(model, predict).warm(required=False)
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert words in warning
    assert warning.endswith('the model serves all the same, as warm_up = "try"')


def test_an_answer_that_is_not_finite_is_one_where_nobody_refuses_it() -> None:
    assert len(Harness(spec(0, [X], [Y]), lambda x: x * np.inf).warm()) == 6


def test_unencodable_values_of_json_are_a_failure(tmp_path: Path) -> None:
    harness = Harness(spec(), lambda instances: [float("nan") for _ in instances])
    with pytest.raises(StartupError, match=r"with a batch of 1: WrongResult: a prediction cannot"):
        harness.warm(file=written(tmp_path, ["a"]))


def test_omitted_and_too_slow_sizes_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = Harness(
        spec(0, [X], [SUM], max_batch_size=4, batch_timeout_ns=10**9), sums, cost_ns=2 * 10**9
    )
    assert harness.warm(limit_s=3) == [(1, 0, 2 * 10**9)]
    assert "warm-up may take warm_up_s = 3; left out: 2, 4" in caplog.text
    assert (
        "a batch of 1 ran 2.0 s, over batch_timeout_s = 1, derived from timeout_s = 3: its worker "
        "would be taken for hung; raise batch_timeout_s, or lower max_batch_size = 4"
    ) in caplog.text


def test_a_batch_without_memory_is_reported_with_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(x: Any) -> Any:
        if len(x) > 2:
            raise MemoryError
        return sums(x)

    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1 << 30, resource.RLIM_INFINITY))
    with pytest.raises(StartupError) as refused:
        Harness(spec(0, [X], [SUM], max_batch_size=4), greedy).warm()
    assert (
        "x FP32 [4, 2]: MemoryError; lower max_batch_size = 4; this process may have 1073741824 "
        "bytes, see worker_memory_bytes; warm_up = "
    ) in str(refused.value)


@pytest.mark.parametrize(("size", "shape"), [(4, r"\[1, 2\]"), (0, r"\[2\]")])
def test_made_up_values_without_memory_are_reported_by_their_shapes(
    monkeypatch: pytest.MonkeyPatch, size: int, shape: str
) -> None:
    def refuse(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(samples, "made_up", refuse)
    with pytest.raises(StartupError, match=f"with x FP32 {shape}: MemoryError"):
        Harness(spec(0, [X], [SUM], max_batch_size=size), sums).warm()


def test_a_model_without_declared_inputs_is_left_alone() -> None:
    harness = Harness(spec(), lambda instances: instances)
    assert harness.warm() == []
    assert harness.seen == []


def written(folder: Path, document: object) -> Path:
    path = folder / "warm.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_instances_of_a_file_are_repeated_to_fill_a_batch(tmp_path: Path) -> None:
    file = written(tmp_path, {"instances": [{"a": 1}, "b"]})
    harness = Harness(spec(max_batch_size=4), lambda instances: instances)
    assert [rows for rows, _, _ in harness.warm(file=file)] == [1, 2, 4]
    assert harness.seen[-1] == ([{"a": 1}, "b", {"a": 1}, "b"],)


def test_a_file_gives_the_content_of_tensors_and_their_lengths(tmp_path: Path) -> None:
    file = written(tmp_path, [{"ids": [1, 2, 3], "text": "a"}, {"ids": [4, 5, 6], "text": "b"}])
    samples = Samples(file, spec(0, [IDS, TEXT], [SUM]))
    assert samples.lengths == [3]
    ids, text = samples.rows(3, 3)
    assert ids.tolist() == [[1, 2, 3], [4, 5, 6], [1, 2, 3]]
    assert text.tolist() == [b"a", b"b", b"a"]
    assert Harness(shaped(max_batch_size=1), sums).warm(file=written(tmp_path, [[7] * 9]))[0][
        :2
    ] == (
        1,
        9,
    )


def test_a_model_that_refuses_the_operators_samples_does_not_start(tmp_path: Path) -> None:
    harness = Harness(spec(0, [X], [SUM]), refuse)
    file = written(tmp_path, [[1, 2]])
    with pytest.raises(StartupError, match=r"with x FP32 \[2, 2\]: InvalidInput.*warm\.json"):
        harness.warm(file=file)
    assert [rows for rows, _, _ in harness.warm(file=file, required=False)] == [1]


@pytest.mark.parametrize(
    ("document", "inputs", "words"),
    [
        ("{", [X], "is not JSON"),
        ("[" * 100_000, [X], "is not JSON"),
        ({"instances": []}, [X], "with at least one instance"),
        ({"rows": [1]}, [X], "with at least one instance"),
        ([[1, 2, 3]], [X], r"'x' has shape \[3\], declared is \[2\]"),
        ([["a", "b"]], [X], "'x' is no FP32"),
        ([3], [TEXT], "'text' is no BYTES"),
        ([{"ids": [1]}], [IDS, TEXT], "there is none for 'text'"),
        ([5], [IDS, TEXT], "there is none for 'ids'"),
        ([[1], [1, 2]], [IDS], "must all have the same shapes"),
    ],
)
def test_a_file_that_is_not_of_this_model_is_refused_in_words(
    tmp_path: Path, document: object, inputs: list[Tensor], words: str
) -> None:
    with pytest.raises(StartupError, match=words):
        Samples(written(tmp_path, document), spec(0, inputs, [SUM] if inputs else []))


def test_a_file_that_is_gone_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="cannot be read"):
        Samples(tmp_path / "none.json", spec())


def test_a_person_on_a_terminal_sees_how_far_it_is() -> None:
    out = io.StringIO()
    progress = Progress("m/0", 2, out)
    progress.show(1, Trial(1, 0, 1_500_000))
    progress.show(2, Trial(4, 32, 2_000_000))
    progress.end()
    first, second = out.getvalue().split("\r")[1:]
    assert "warming up m/0 [############            ] 1 of 2, 1 1.5 ms" in first
    assert "[########################] 2 of 2, 4 x 32 2 ms" in second
    assert second.endswith("\n")


def test_trials_are_read_as_they_were_written() -> None:
    segment = local_segment(spec(workers=(0, 1)))
    assert cost_profile.read(segment, 0) == []
    found = [Trial(rows, 32, rows * 100) for rows in range(1, 200)]
    cost_profile.write(segment, 1, found)
    assert cost_profile.read(segment, 0) == []
    assert cost_profile.read(segment, 1) == found[: CostProfileWords.MAX_TRIALS]
    cost_profile.write(segment, 1, found[:1])
    assert cost_profile.read(segment, 1) == found[:1]


def test_a_count_beyond_the_table_reads_no_further() -> None:
    segment = local_segment(spec())
    segment.words[segment.layout.cost_profile(0) + CostProfileWords.COUNT] = 1 << 60
    assert len(cost_profile.read(segment, 0)) == CostProfileWords.MAX_TRIALS
