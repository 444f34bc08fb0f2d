"""Frame of a request: offsets and shapes of its tensors in the extent."""

from itertools import pairwise
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.shm.frame import Frame, FrameError
from ringbatch.shm.layout import ALIGNMENT, MAX_BYTES, WORD
from ringbatch.shm.tensor import ANY, DATATYPES, Tensor

tensors = st.builds(
    Tensor,
    name=st.just("t"),
    datatype=st.sampled_from(sorted(DATATYPES)),
    shape=st.lists(st.integers(-1, 20), max_size=3),
)
signatures = st.lists(tensors, min_size=1, max_size=4)


@st.composite
def frames(
    draw: st.DrawFn,
) -> tuple[Frame, int, tuple[int, ...], tuple[int, ...]]:
    frame = Frame(draw(signatures))
    number = st.integers(0, 50)
    opens, lengths = frame.open_dimensions, frame.bytes_tensors
    return (
        frame,
        draw(st.integers(1, 40)),
        tuple(draw(st.lists(number, min_size=opens, max_size=opens))),
        tuple(draw(st.lists(number, min_size=lengths, max_size=lengths))),
    )


@given(frames())
def test_parts_are_aligned_in_order_behind_the_prefix_and_do_not_overlap(
    placed: tuple[Frame, int, tuple[int, ...], tuple[int, ...]],
) -> None:
    frame, rows, dimensions, lengths = placed
    placement = frame.place(rows, dimensions, lengths)
    prefix = frame.prefix(dimensions, lengths)
    assert len(placement.parts) == len(frame.tensors)
    assert placement.parts[0].offset >= len(prefix)
    assert all(part.offset % ALIGNMENT == 0 for part in placement.parts)
    for part, following in pairwise(placement.parts):
        assert part.offset + part.size <= following.offset < part.offset + part.size + ALIGNMENT
    last = placement.parts[-1]
    assert placement.size == last.offset + last.size


@given(frames())
def test_a_part_has_the_shape_of_its_tensor_with_the_open_dimensions_filled_in(
    placed: tuple[Frame, int, tuple[int, ...], tuple[int, ...]],
) -> None:
    frame, rows, dimensions, lengths = placed
    opened, remaining = list(dimensions), list(lengths)
    for tensor, part in zip(frame.tensors, frame.place(*placed[1:]).parts, strict=True):
        assert part.shape[0] == rows
        assert len(part.shape) == len(tensor.shape) + 1
        for size, found in zip(tensor.shape, part.shape[1:], strict=True):
            assert found == (opened.pop(0) if size == ANY else size)
        if tensor.datatype.fixed:
            assert part.size == prod(part.shape) * tensor.datatype.size
        else:
            assert part.size == remaining.pop(0)
    assert opened == remaining == []


@given(frames(), st.integers(0, 100))
def test_the_prefix_is_read_as_it_was_written(
    placed: tuple[Frame, int, tuple[int, ...], tuple[int, ...]], rest_bytes: int
) -> None:
    frame, _, dimensions, lengths = placed
    prefix = frame.prefix(dimensions, lengths)
    memory = memoryview(prefix + b"\xaa" * rest_bytes)
    assert frame.read_prefix(memory) == (dimensions, lengths)


@given(signatures, st.data())
def test_keys_are_equal_exactly_where_the_open_dimensions_are(
    signature: list[Tensor], data: st.DataObject
) -> None:
    frame = Frame([*signature, Tensor("open", "FP32", [ANY])])

    def numbers(count: int) -> tuple[int, ...]:
        return tuple(data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)))

    dimensions, others = numbers(frame.open_dimensions), numbers(frame.open_dimensions)
    key = frame.prefix(dimensions, numbers(frame.bytes_tensors))[: frame.key_bytes]
    other = frame.prefix(others, numbers(frame.bytes_tensors))[: frame.key_bytes]
    assert (key == other) == (dimensions == others)


def test_a_frame_of_fixed_tensors_has_no_prefix() -> None:
    frame = Frame([Tensor("x", "FP32", [16]), Tensor("y", "INT8", [3])])
    assert frame.static
    assert frame.key_bytes == 0
    assert frame.prefix((), ()) == b""
    placement = frame.place(2)
    assert [(part.offset, part.size) for part in placement.parts] == [(0, 128), (128, 6)]
    assert placement.size == 134


def test_open_dimensions_come_first_and_lengths_of_bytes_after_them() -> None:
    frame = Frame([Tensor("s", "BYTES", [1]), Tensor("x", "FP32", [-1, 2, -1])])
    assert not frame.static
    assert frame.key_bytes == 2 * WORD
    placement = frame.place(3, (5, 7), (100,))
    assert [(p.offset, p.size, p.shape) for p in placement.parts] == [
        (64, 100, (3, 1)),
        (192, 3 * 5 * 2 * 7 * 4, (3, 5, 2, 7)),
    ]
    assert frame.prefix((5, 7), (100,)) == b"".join(n.to_bytes(8, "little") for n in (5, 7, 100))


@pytest.mark.parametrize(
    ("dimensions", "lengths"), [((), (1,)), ((1, 2), (1,)), ((1,), ()), ((1,), (1, 1))]
)
def test_a_number_too_few_or_too_many_is_refused(
    dimensions: tuple[int, ...], lengths: tuple[int, ...]
) -> None:
    frame = Frame([Tensor("s", "BYTES", [1]), Tensor("x", "FP32", [-1])])
    with pytest.raises(FrameError, match="other dimensions than the model's signature"):
        frame.place(1, dimensions, lengths)


@pytest.mark.parametrize(
    ("rows", "dimensions", "lengths"),
    [
        (1, (MAX_BYTES,), (0,)),
        (1, ((1 << 64) - 1,), (0,)),
        ((1 << 64) - 1, ((1 << 64) - 1,), (0,)),
        (1, (1,), ((1 << 64) - 1,)),
    ],
)
def test_more_than_memory_can_hold_is_refused(
    rows: int, dimensions: tuple[int, ...], lengths: tuple[int, ...]
) -> None:
    frame = Frame([Tensor("x", "FP32", [-1]), Tensor("s", "BYTES", [1])])
    with pytest.raises(FrameError, match="is too large"):
        frame.place(rows, dimensions, lengths)


def test_placements_do_not_pile_up_for_clients_that_vary_their_shapes() -> None:
    frame = Frame([Tensor("x", "FP32", [-1])])
    for size in range(5000):
        assert frame.place(1, (size,)).parts[0].shape == (1, size)
    assert len(frame._known) <= 1024
