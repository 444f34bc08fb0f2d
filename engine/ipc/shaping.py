"""Shape that a batch is run in: a function of its requests and of the configuration. Pure.

Two things can be padded, and both are cut off the answer again.

Rows. A model that is fast at some batch sizes only has `allowed_batch_sizes`. A batch of 5 rows is
run as one of 8. Its last row is repeated, because the model can take a row that a client sent. If
the time of each size has been measured, a batch closes at the size below instead if a row costs
less there.

Lengths. Requests whose open dimensions differ cannot share a batch. With `pad_variable_length` they
can. Each open dimension of the inputs is padded to its goal, the least of `length_buckets` that is
not below it. Requests with different goals wait in different queues, so none is padded beyond its
own bucket. Without buckets, and for a request that is beyond the last one, the goal is open: it is
padded to the longest of its batch.

An open dimension of an output is as long as the first open dimension at the same axis of an input.
It is cut back to its size in the request. One that declares a padding has lengths of its own, and
is not cut. If several inputs have an open dimension at that axis, and they differ within a request,
its meaning is unknown. Such a request is not padded at all and shares batches with those of exactly
its own shape.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod

from ringbatch.shm.tensor import ANY, Tensor

Dimensions = tuple[int, ...]
"""The open dimensions of one request's inputs, in the order of the signature."""


class Unfit(ValueError):
    """A signature that cannot be shaped as configured; the text says why."""


def padded_rows(rows: int, sizes: Sequence[int]) -> int:
    """Return how many rows a batch is run with: the least allowed size that takes it.

    Args:
        rows: that the requests hold.
        sizes: ascending; none if every size is allowed. A batch beyond the last is run as it is.
    """
    return next((size for size in sizes if size >= rows), rows)


def worthwhile_rows(rows: int, sizes: Sequence[int], costs_ns: Sequence[int]) -> int:
    """Return how many waiting rows to take into a batch: all, or the allowed size below.

    The size below is right if a row costs less in a full batch of that size than in a padded
    one of the size above; those left over are the first of the next batch.

    Args:
        rows: that wait; not more than the largest size.
        sizes: ascending; none if every size is allowed.
        costs_ns: how long a batch of each size runs; none if that was not measured, and then
            everything is taken.
    """
    if not costs_ns:
        return rows
    above = next((index for index, size in enumerate(sizes) if size >= rows), None)
    if not above or sizes[above] == rows:
        return rows
    size, cost_ns = sizes[above - 1], costs_ns[above - 1]
    return size if cost_ns * rows < costs_ns[above] * size else rows


@dataclass(frozen=True, slots=True)
class _Axis:
    """Open dimension of an output: its axis, and the input's dimension that it is as long as.

    The batch's axis is 0. The input's dimension is given by its place among the open ones.
    """

    axis: int
    dimension: int


class Lengths:
    """The open dimensions of one model: what they are padded to, and what is cut off again.

    Args:
        inputs: as requests carry them.
        outputs: the model's.
        edges: of the buckets, ascending; none if everything is padded to the longest.

    Raises:
        Unfit: there is nothing to pad, or nobody could say what to cut off.
    """

    def __init__(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], edges: Sequence[int] = ()
    ) -> None:
        self._edges = tuple(edges)
        self._shapes = [tensor.shape for tensor in inputs]
        by_axis: dict[int, list[int]] = {}
        """Open dimensions of the inputs, by axis."""
        count = 0
        for tensor in inputs:
            for axis, size in enumerate(tensor.shape, start=1):
                if size == ANY:
                    by_axis.setdefault(axis, []).append(count)
                    count += 1
        if not count:
            raise Unfit("no input has a dimension of any size (-1), so there is nothing to pad")
        self._cuts = [_axes(tensor, by_axis) for tensor in outputs]
        axes = {cut.axis for cuts in self._cuts for cut in cuts}
        self._alike = [by_axis[axis] for axis in sorted(axes) if len(by_axis[axis]) > 1]
        """Dimensions that must be equal within a request, so that it is clear what to cut."""

    def goal(self, dimensions: Dimensions) -> Dimensions:
        """Return the dimensions that a request is padded to; -1 for the longest of its batch.

        Requests may share a batch if their goals are equal.
        """
        for group in self._alike:
            if len({dimensions[index] for index in group}) > 1:
                return dimensions
        edges = self._edges
        if not edges or max(dimensions) > edges[-1]:
            return (ANY,) * len(dimensions)
        return tuple(next(edge for edge in edges if edge >= size) for size in dimensions)

    def least(self, dimensions: Dimensions) -> Dimensions:
        """Return the least dimensions that a request is padded to, in any batch."""
        return tuple(map(max, dimensions, self.goal(dimensions)))

    def met(self, goal: Dimensions, requests: Iterable[Dimensions]) -> Dimensions:
        """Return the dimensions of a batch of requests that have this goal."""
        longest = (max(sizes) for sizes in zip(*requests, strict=True))
        return tuple(
            most if size == ANY else size for size, most in zip(goal, longest, strict=True)
        )

    def elements(self, dimensions: Dimensions) -> int:
        """Return how many elements one row has in the largest of the inputs."""
        return elements(self._shapes, dimensions)

    def sizes(self, output: int, dimensions: Dimensions) -> list[tuple[int, int]]:
        """Return the open axes of an output, and the size of each for inputs of these dimensions.

        They are those of the whole batch for its dimensions, and of a request's answer for its own.
        """
        return [(cut.axis, dimensions[cut.dimension]) for cut in self._cuts[output]]


def _axes(output: Tensor, by_axis: dict[int, list[int]]) -> list[_Axis]:
    found: list[_Axis] = []
    if output.padding is not None:
        return found
    for axis, size in enumerate(output.shape, start=1):
        if size == ANY:
            if axis not in by_axis:
                raise Unfit(
                    f"output {output.name!r} has a dimension of any size (-1) at place {axis}, and "
                    "no input has one there, so nobody could say how much of it is padding"
                )
            found.append(_Axis(axis, by_axis[axis][0]))
    return found


def elements(shapes: Iterable[Sequence[int]], dimensions: Iterable[int]) -> int:
    """Return how many elements one row has in the largest of some tensors.

    Args:
        shapes: of the tensors.
        dimensions: for each -1 in them, in order.
    """
    sizes = iter(dimensions)
    return max(prod(next(sizes) if size == ANY else size for size in shape) for shape in shapes)


class Budget:
    """Budget of elements for one batch: it limits how many waiting requests fit.

    Args:
        max_elements: of the largest input in one batch, padding included; 0 for no limit.
        sizes: the allowed batch sizes, ascending; none if every size is allowed.
        elements: of one row, by its open dimensions.
    """

    def __init__(
        self, max_elements: int, sizes: Sequence[int], elements: Callable[[Dimensions], int]
    ) -> None:
        self._max_elements = max_elements
        self._sizes = tuple(sizes)
        self._elements = elements

    def fitting(self, requests: Iterable[tuple[int, Dimensions]]) -> int:
        """Return how many of the oldest requests a batch may take; at least the first.

        Args:
            requests: of each, oldest first, its rows and the least open dimensions that it is run
                with.
        """
        count = rows = 0
        longest: Dimensions = ()
        for own, dimensions in requests:
            rows += own
            longest = tuple(map(max, longest, dimensions)) if count else dimensions
            wanted = padded_rows(rows, self._sizes) * self._elements(longest)
            if count and wanted > self._max_elements:
                break
            count += 1
        return count

    def share(self, rows: int, dimensions: Dimensions) -> float:
        """Return the part that one request takes of a batch's elements, 1 if it takes them all.

        Args:
            rows: its rows.
            dimensions: the least that it is run with.
        """
        wanted = padded_rows(rows, self._sizes) * self._elements(dimensions)
        return min(wanted / self._max_elements, 1.0)
