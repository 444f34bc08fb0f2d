"""The model table survives the way through the segment."""

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.shm.chain import Chain, Step
from ringbatch.shm.descriptors import LAYOUT_VERSION
from ringbatch.shm.model_spec import (
    INDEX_MASK,
    LOADING,
    RETIRING,
    SERVING,
    Forward,
    ModelSpec,
    defaults,
    dumps,
    loads,
    version_order,
)
from ringbatch.shm.tensor import DATATYPES, Tensor
from ringbatch.shm.texts import Generator, Tokens

tensors = st.builds(
    Tensor,
    name=st.text(min_size=1, max_size=8),
    datatype=st.sampled_from(sorted(DATATYPES)),
    shape=st.lists(st.integers(-1, 1 << 20), max_size=4),
)
specs = st.builds(
    ModelSpec,
    index=st.integers(0, 1023),
    name=st.text(max_size=20),
    platform=st.text(max_size=10),
    inputs=st.lists(tensors, max_size=3).map(tuple),
    outputs=st.lists(tensors, max_size=3).map(tuple),
    max_batch_size=st.integers(0, 1 << 20),
    max_latency_ns=st.integers(0, 1 << 50),
    timeout_ns=st.integers(0, 1 << 60),
    policy=st.sampled_from(["eager", "fixed"]),
    workers=st.lists(st.integers(0, 1023), max_size=4).map(tuple),
    kserve_errors=st.booleans(),
    allowed_batch_sizes=st.lists(st.integers(1, 4096), max_size=4).map(tuple),
    max_batch_elements=st.integers(0, 1 << 40),
    pad_variable_length=st.booleans(),
    length_buckets=st.lists(st.integers(1, 4096), max_size=4).map(tuple),
    version=st.text(max_size=5),
    default=st.booleans(),
    generation=st.integers(0, 1 << 40),
    state=st.sampled_from([LOADING, SERVING, RETIRING]),
)
DIGITS = ModelSpec(
    index=0,
    name="digits",
    platform="python",
    inputs=(Tensor("x", "FP32", [8, 8]),),
    outputs=(Tensor("digit", "INT64", []), Tensor("scores", "FP32", [10])),
    max_batch_size=32,
    max_latency_ns=500_000_000,
    timeout_ns=60_000_000_000,
    policy="eager",
    workers=(0, 1),
)


@given(st.lists(specs, max_size=4).map(tuple))
def test_the_written_specs_are_read(models: tuple[ModelSpec, ...]) -> None:
    assert loads(dumps(models)) == models


def test_blanks_behind_the_text_do_not_matter() -> None:
    assert loads(dumps((DIGITS,)) + b" " * 100) == (DIGITS,)


def test_tensors_stand_in_the_text_as_v2_metadata() -> None:
    fields = json.loads(dumps((DIGITS,)))
    assert fields["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [8, 8]}]
    assert fields["outputs"][0] == {"name": "digit", "datatype": "INT64", "shape": []}


def test_a_model_without_inputs_is_untyped() -> None:
    assert DIGITS.typed
    assert not replace(DIGITS, inputs=(), outputs=()).typed


@pytest.mark.parametrize("cut", [1, 10, -1])
def test_a_model_table_that_was_cut_off_is_not_read_as_a_shorter_one(cut: int) -> None:
    with pytest.raises(ValueError, match="not found"):
        loads(dumps((DIGITS,))[:cut])


def versions(*names: str, **more: object) -> tuple[ModelSpec, ...]:
    return tuple(replace(DIGITS, version=name, **more) for name in names)  # type: ignore[arg-type]


def test_numbers_are_in_the_order_of_their_values_above_everything_else() -> None:
    names = ["10", "2", "b", "1", "1.5", "a", "02"]
    assert sorted(names, key=version_order) == ["1.5", "a", "b", "1", "02", "2", "10"]


def test_the_highest_version_that_serves_is_for_requests_without_one() -> None:
    assert defaults(versions("1", "10", "9"))["digits"].version == "10"
    loading = versions("11", state=LOADING) + versions("12", state=RETIRING)
    assert defaults((*versions("9", "10"), *loading))["digits"].version == "10"
    assert defaults(loading) == {}
    chosen = versions("2", default=True)
    assert defaults((*versions("3"), *chosen, *versions("1")))["digits"].version == "2"


@given(specs, specs)
def test_no_two_entries_of_one_place_have_the_same_reference(a: ModelSpec, b: ModelSpec) -> None:
    same = (a.index, a.generation) == (b.index, b.generation)
    assert (a.reference == b.reference) == same
    assert a.reference & INDEX_MASK == a.index


def test_fields_in_the_model_table_of_version_32() -> None:
    """A change of a name here changes the layout, and needs another version.

    An engine of an older layout that runs on the host is known by that number, before its table is
    read.
    """
    assert LAYOUT_VERSION == 32
    named = (ModelSpec, Forward, Tokens, Generator, Chain, Step)
    assert {kind.__name__: " ".join(each.name for each in fields(kind)) for kind in named} == {
        "ModelSpec": "index name platform inputs outputs max_batch_size max_latency_ns timeout_ns "
        "policy workers kserve_errors batch_timeout_ns max_queue_wait_ns "
        "first_part_timeout_ns part_gap_timeout_ns stream_stall_ns allowed_batch_sizes "
        "max_batch_elements pad_variable_length length_buckets forward refuse_nan nulls words "
        "version default generation state spares file_differs account least most remote tokens "
        "chain in_parts places generator resumes numbered",
        "Forward": "path headers any_path",
        "Tokens": "path digest limit truncate pairs vocabulary",
        "Generator": "path digest limit vocabulary ends",
        "Chain": "steps answers",
        "Step": "model version inputs outputs batched sources keeps",
    }
    every = Tensor("x", "FP32", [1], labels=["a"], default=[1.0])
    assert every.to_json().keys() == {"name", "datatype", "shape", "labels", "default"}
