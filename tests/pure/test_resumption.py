"""Tests frontend/codec/resumption.py: the parts of an answer become inputs of the request."""

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_fixture import spec

from ringbatch.frontend.codec.bytes_tensor import joined
from ringbatch.frontend.codec.payload import LazyBytes, Part, framed
from ringbatch.frontend.codec.resumption import (
    MOST_KEPT_BYTES,
    MOST_RESUMPTIONS,
    NothingLeft,
    Resumption,
    ResumptionPlan,
)
from ringbatch.shm.frame import Frame
from ringbatch.shm.tensor import ANY, Tensor
from ringbatch.shm.texts import MAX_TOKENS, PROMPT, Generator

INPUTS: Final = (
    Tensor("prompt", "BYTES", [ANY]),
    Tensor("limit", "INT32", []),
    Tensor("words", "BYTES", [ANY], default=[]),
    Tensor("points", "FP32", [ANY, 2], default=[]),
    Tensor("ids", "INT64", [ANY], default=[]),
)
OUTPUTS: Final = (
    Tensor("point", "FP32", [2]),
    Tensor("seen", "FP32", [ANY, ANY]),
    Tensor("word", "BYTES", [ANY]),
    Tensor("id", "INT64", []),
)
RESUMES: Final = (("word", "words"), ("point", "points"), ("id", "ids"))
PLAN: Final = ResumptionPlan(replace(spec(inputs=INPUTS, outputs=OUTPUTS), resumes=RESUMES))


def laid_out(tensors: tuple[Tensor, ...], values: list[Any]) -> bytes:
    """Return the bytes of a row of these values, as a slot holds it."""
    arrays = [
        np.array(value, t.datatype.numpy if t.datatype.fixed else object)
        for t, value in zip(tensors, values, strict=True)
    ]
    data = [joined(a.reshape(-1)) if a.dtype == object else a.tobytes() for a in arrays]
    sizes = tuple(
        size
        for tensor, array in zip(tensors, arrays, strict=True)
        for size, declared in zip(array.shape, tensor.shape, strict=True)
        if declared == ANY
    )
    return framed(Frame(tensors), 1, sizes, data)


def request(prompt: list[bytes], words: list[bytes], points: list[Any], ids: list[int]) -> bytes:
    pairs = np.array(points, "<f4").reshape(-1, 2)
    return laid_out(INPUTS, [np.array(prompt, object), 7, np.array(words, object), pairs, ids])


NUMBERS = st.integers(-1000, 1000)
TEXTS = st.lists(st.binary(max_size=3), max_size=3)
PARTS = st.lists(st.tuples(st.tuples(NUMBERS, NUMBERS), TEXTS, NUMBERS), max_size=6)


@given(TEXTS, PARTS, PARTS)
def test_the_inputs_have_all_parts_in_order(prompt: list[bytes], first: Any, second: Any) -> None:
    found = request(prompt, [], [], [])
    for parts in (first, second):
        written = [
            laid_out(OUTPUTS, [point, np.ones((2, 3)), np.array(words, object), number])
            for point, words, number in parts
        ]
        found = PLAN.extended(found, written)
    every = [*first, *second]
    assert found == request(
        prompt,
        [word for _, words, _ in every for word in words],
        [point for point, _, _ in every],
        [number for _, _, number in every],
    )


def part(number: int = 1) -> bytes:
    return laid_out(OUTPUTS, [(1, 2), np.ones((1, 1)), np.array([b"w"], object), number])


def begun() -> tuple[Resumption, Part]:
    return Resumption(PLAN), Part(1, request([b"p"], [], [], []), 8)


def test_a_request_goes_on_behind_the_parts_since_the_last_time() -> None:
    resumption, sent = begun()
    resumption.keep(part(3))
    once = resumption.resumed(sent)
    assert once == Part(1, request([b"p"], [b"w"], [(1, 2)], [3]), 8)
    resumption.keep(part(4))
    again = resumption.resumed(once)
    assert again == Part(1, request([b"p"], [b"w"] * 2, [(1, 2)] * 2, [3, 4]), 8)


@pytest.mark.parametrize(("made", "left"), [(0, 9), (4, 5), (8, 1), (9, 0), (10, 0)])
def test_a_text_generator_goes_on_with_a_longer_prompt_and_fewer_tokens(
    made: int, left: int
) -> None:
    inputs = Tensor(PROMPT, "INT64", [ANY]), Tensor(MAX_TOKENS, "INT32", [])
    outputs = (Tensor("token", "INT64", [ANY]),)
    generator = Generator("", "", 100, 100, ())
    entry = replace(spec(inputs=inputs, outputs=outputs), generator=generator)
    plan = ResumptionPlan(replace(entry, resumes=(("token", PROMPT),)))
    parts = [laid_out(outputs, [[token]]) for token in range(made)]
    payload = laid_out(inputs, [[70, 71], 9])
    if left:
        assert plan.extended(payload, parts) == laid_out(inputs, [[70, 71, *range(made)], left])
        return
    with pytest.raises(NothingLeft):
        plan.extended(payload, parts)


def test_a_request_is_given_up_that_kills_worker_after_worker() -> None:
    resumption, sent = begun()
    for number in range(MOST_RESUMPTIONS):
        resumption.keep(part(number))
        assert resumption.resumed(sent) is not None
    assert resumption.resumed(sent) is None


def test_a_long_answer_is_kept_up_to_a_bound() -> None:
    resumption, sent = begun()
    own = part()
    for _ in range(MOST_KEPT_BYTES // len(own)):
        resumption.keep(own)
    assert resumption.resumed(sent) is not None
    resumption.keep(own)
    assert resumption.resumed(sent) is None


@pytest.mark.parametrize("spoilt", [b"", b"\xff" * 64], ids=["short", "huge"])
def test_a_spoilt_part_ends_the_answer(spoilt: bytes) -> None:
    resumption, sent = begun()
    resumption.keep(spoilt)
    assert resumption.resumed(sent) is None


class Elsewhere(LazyBytes):
    """A payload that is not in this process."""

    def __init__(self, data: bytes, slot: int | None) -> None:
        self.data = data
        self.of_slot = slot

    def __len__(self) -> int:
        return len(self.data)

    def read_into(self, memory: memoryview) -> None:
        memory[:] = self.data

    @property
    def slot(self) -> int | None:
        return self.of_slot


def test_a_payload_that_only_its_slot_had_is_gone() -> None:
    resumption, sent = begun()
    data = bytes(sent.payload)
    assert resumption.resumed((1, Elsewhere(data, 3), 8)) is None
    assert resumption.resumed((1, Elsewhere(data, None), 8)) == sent
