"""Parts of many streams over one connection, written at once.

Tests frontend/grpc/part_sheet.py and frontend/request/parts_together.py.
"""

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, cast

from grpc_harness import STREAM, Call
from grpc_service_harness import IDENTITY, Harness, message, on_loop, streamed
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.engine_slots import BatchMark, Request
from ringbatch.shm.frame import Frame
from ringbatch.shm.many_parts import FEW
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.tallies import ends_of
from ringbatch.shm.tensor import Tensor

MARK: Final = BatchMark(1, 1, Reason.IDLE, 0)
OPEN: Final = replace(IDENTITY, in_parts=True, outputs=(Tensor("y", "FP32", [-1]),))
STREAMS: Final = FEW + 2


def of_floats(*numbers: float) -> bytes:
    """Return a part of `OPEN` with one row of these."""
    data = struct.pack(f"<{len(numbers)}f", *numbers)
    return Frame(OPEN.outputs).prefix((len(numbers),), ()).ljust(64, b"\0") + data


class Streams:
    """Streams over one connection, and the worker that answers them.

    Args:
        count: how many there are.
        model: that they ask.

    Attributes:
        parted: of each stream, the parts that the worker has written.
        now_ns: the time, which goes on with each step.
    """

    def __init__(self, count: int = STREAMS, **model: Any) -> None:
        self.now_ns = 1_000_000
        self.harness = Harness(replace(OPEN, **model), clock=lambda: self.now_ns)
        self._count = count
        self.calls: list[Call] = []
        self.requests: list[Request] = []
        self.parted: list[list[tuple[float, ...]]] = []
        self._writers: list[Any] = []

    async def begin(self, *names: str, part: bytes = b"") -> None:
        """Have all streams begin, each with two parts; the first goes behind its head."""
        for number in range(self._count):
            name = names[number % len(names)] if names else f"{number:03}"
            call = self.harness.call(message(1, id=name), path=STREAM, metadata=(), end=False)
            (request,) = await self.harness.taken(1)
            self.calls.append(call)
            self.requests.append(request)
            self._writers.append(self.harness.engine_slots.part_writer(request, 1))
            self.parted.append([])
        for number in range(2):
            if part:
                self.step_with([[part]] * self._count)
            else:
                self.step([[(float(number),)]] * self._count)

    def step(self, parts: Sequence[Sequence[tuple[float, ...]]]) -> int:
        """Write parts for each stream, and have them looked for.

        Returns:
            The pieces of output: one for all that go together, and one for each other.
        """
        for place, own in enumerate(parts):
            self.parted[place] += own
        return self.step_with([[of_floats(*part) for part in own] for own in parts])

    def step_with(self, parts: Sequence[Sequence[bytes]]) -> int:
        """As `step`, with the bytes of the parts."""
        slots = self.harness.engine_slots
        out = self.harness.client.connection.core._out
        before = len(out)
        for place, own in enumerate(parts):
            for part in own:
                assert self._writers[place].write(part)
            if own:
                slots.post_part(self.requests[place].ref)
        slots.flush()
        self.now_ns += 1_000
        self.harness.gateway.collect()
        return len(out) - before

    def end(self, place: int) -> None:
        slots = self.harness.engine_slots
        slots.answer(self.requests[place].ref, Status.OK, 0, MARK, 0)
        slots.flush()
        self.harness.gateway.collect()

    async def expect_all(self) -> None:
        """Check that each client has the parts that were written for it."""
        await self.harness.quiet()
        self.harness.client.absorb()
        for call, wanted in zip(self.calls, self.parted, strict=True):
            raw = [one.infer_response.raw_output_contents[0] for one in streamed(call)]
            assert [struct.unpack(f"<{len(own) // 4}f", own) for own in raw] == wanted


def test_parts_of_one_step_are_one_piece_of_output() -> None:
    async def test() -> None:
        streams = Streams()
        await streams.begin()
        pieces = [streams.step([[(float(number),)]] * STREAMS) for number in range(5)]
        assert pieces == [1] * 5
        await streams.expect_all()

    on_loop(test)


NUMBERS = st.lists(st.sampled_from([(1.0,), (2.5,), (1.0, 2.0)]), max_size=3)


@given(steps=st.lists(st.lists(NUMBERS, min_size=STREAMS, max_size=STREAMS), max_size=6))
def test_every_client_gets_its_own_parts_in_order(steps: list[list[Any]]) -> None:
    async def test() -> None:
        streams = Streams()
        await streams.begin()
        for number, parts in enumerate(steps):
            streams.step(parts)
            streams.step([[(float(number), float(place))] for place in range(STREAMS)])
        await streams.expect_all()
        for place in range(STREAMS):
            streams.end(place)
        await streams.expect_all()
        assert streams.harness.lane.in_flight == 0

    on_loop(test)


def test_rings_end_at_different_times() -> None:
    async def test() -> None:
        streams = Streams()
        await streams.begin()
        streams.harness.client.connection.core._widen(1 << 20)
        streams.step([[(1.0,) * 17] * place for place in range(STREAMS)])
        pieces = [streams.step([[(float(number),)]] * STREAMS) for number in range(200)]
        # In most rings a gap is left before the end, behind which the part is left to its request.
        assert 200 < sum(pieces) <= 200 + 3 * STREAMS
        await streams.expect_all()

    on_loop(test)


def test_requests_of_other_names_have_lines_of_other_lengths() -> None:
    async def test() -> None:
        streams = Streams(2 * FEW)
        await streams.begin("a", "longer")
        assert streams.step([[(3.0,)]] * 2 * FEW) == 2
        await streams.expect_all()
        ids = [{one.infer_response.id for one in streamed(call)} for call in streams.calls]
        assert ids == [{"a"}, {"longer"}] * FEW

    on_loop(test)


def test_a_stream_without_room_waits_alone() -> None:
    async def test() -> None:
        streams = Streams()
        await streams.begin()
        connection = streams.harness.client.connection
        slow = connection.core.streams[streams.calls[3].number]
        window, slow.window = slow.window, 0
        for number in range(3):
            assert streams.step([[(float(number),)]] * STREAMS) == 1
        await streams.harness.quiet()
        streams.harness.client.absorb()
        assert len(streams.calls[3].messages) == 2
        assert connection.core.waiting_bytes > 0
        connection.core._widen_stream(slow, window)
        connection._flush()
        await streams.expect_all()
        assert connection.core.waiting_bytes == 0

    on_loop(test)


def test_a_connection_without_room_for_all_parts_sends_some() -> None:
    async def test() -> None:
        streams = Streams()
        await streams.begin()
        await streams.harness.quiet()
        streams.harness.client.absorb()
        connection = streams.harness.client.connection
        size = 5 + len(streams.calls[0].messages[1])
        window, connection.core._window = connection.core._window, 3 * size
        assert streams.step([[(7.0,)]] * STREAMS) > 2
        await streams.harness.quiet()
        streams.harness.client.absorb()
        assert sum(len(call.messages) for call in streams.calls) == 2 * STREAMS + 3
        connection.core._widen(window)
        connection._flush()
        await streams.expect_all()

    on_loop(test)


def test_a_client_that_takes_nothing_loses_its_row_alone() -> None:
    async def test() -> None:
        streams = Streams(stream_stall_ns=3_000_000_000)
        await streams.begin()
        connection = streams.harness.client.connection
        connection.core.streams[streams.calls[3].number].window = 0
        for number in range(6):
            streams.step([[(float(number),)]] * STREAMS)
            await streams.harness.quiet()
            connection.tick()
        wanted = [streams.harness.engine_slots.wanted(one.ref) for one in streams.requests]
        assert wanted == [place != 3 for place in range(STREAMS)]
        assert streams.harness.lane.counters[LaneCounter.STALLED] == 1

    on_loop(test)


def test_the_windows_shrink_by_the_sent_bytes() -> None:
    async def test() -> None:
        streams = Streams()
        await streams.begin()
        await streams.harness.quiet()
        core = streams.harness.client.connection.core
        before, windows = core._window, {one.window for one in core.streams.values()}
        (window,) = windows
        assert streams.step([[(7.0,)]] * STREAMS) == 1
        await streams.harness.quiet()
        streams.harness.client.absorb()
        size = 5 + len(streams.calls[0].messages[2])
        assert core._window == before - STREAMS * size
        assert {one.window for one in core.streams.values()} == {window - size}
        assert {one.sent_bytes for one in core.streams.values()} == {3 * size}

    on_loop(test)


def test_a_stream_of_which_a_piece_waits_takes_none() -> None:
    async def test() -> None:
        streams = Streams()
        await streams.begin()
        connection = streams.harness.client.connection
        outlet = connection._serving[streams.calls[0].number].outlet
        assert outlet.takes(1)
        connection.core._window = 0
        streams.step([[(7.0,)]] * STREAMS)
        assert outlet.stream.window > 0
        assert not outlet.takes(1)

    on_loop(test)


def test_a_cancelled_call_gets_nothing_and_others_go_on() -> None:
    async def test() -> None:
        streams = Streams()
        await streams.begin()
        await streams.harness.quiet()
        streams.calls[0].cancel()
        for number in range(2):
            assert streams.step([[(float(number),)]] * STREAMS) == 1
            await streams.harness.quiet()
        streams.harness.client.absorb()
        assert len(streams.calls[0].messages) == 2
        del streams.calls[0], streams.parted[0]
        await streams.expect_all()

    on_loop(test)


def test_the_time_of_each_part_is_counted() -> None:
    async def test() -> None:
        streams = Streams()
        await streams.begin()
        for number in range(3):
            streams.step([[(float(number),)]] * STREAMS)
        ends = ends_of(streams.harness.segment, [OPEN.account])[OPEN.account]
        assert (sum(ends.first_parts), sum(ends.gaps)) == (STREAMS, 4 * STREAMS)
        assert ends.gaps_ns == 4 * STREAMS * 1_000

    on_loop(test)


def test_the_bytes_of_parts_are_counted_as_if_alone() -> None:
    counted = []
    for count in (STREAMS, 1):

        async def test(count: int = count) -> None:
            streams = Streams(count)
            await streams.begin()
            assert streams.step([[(3.0,)]] * count) == 1
            waiting = [one for one in streams.harness.gateway._waiting if one is not None]
            pending = [cast(Any, one)._in_parts.on_part.__self__ for one in waiting]
            counted.append({one.parts_bytes for one in pending})

        on_loop(test)
    assert counted[0] == counted[1]


def test_parts_of_one_size_and_other_shapes_are_not_on_one_sheet() -> None:
    async def test() -> None:
        model = (Tensor("y", "FP32", [-1, -1]),)
        streams = Streams(2 * FEW, outputs=model)
        frame = Frame(model)
        wide, tall = (
            frame.prefix(shape, ()).ljust(64, b"\0") + struct.pack("<2f", 1, 2)
            for shape in ((1, 2), (2, 1))
        )
        await streams.begin(part=wide)
        for parts in ([wide] * 2 * FEW, [wide] * FEW + [tall] * FEW, [tall, wide] * FEW):
            streams.step_with([[part] for part in parts])
        await streams.harness.quiet()
        streams.harness.client.absorb()
        for place, call in enumerate(streams.calls):
            shapes = [[*one.infer_response.outputs[0].shape][1:] for one in streamed(call)[2:]]
            second = [1, 2] if place < FEW else [2, 1]
            assert shapes == [[1, 2], second, [1, 2] if place % 2 else [2, 1]]

    on_loop(test)


def test_limits_of_gaps_keep_each_part_to_itself() -> None:
    async def test() -> None:
        streams = Streams(part_gap_timeout_ns=10**12)
        await streams.begin()
        assert streams.step([[(5.0,)]] * STREAMS) == STREAMS
        await streams.expect_all()

    on_loop(test)


def test_an_ended_connection_keeps_no_sheet() -> None:
    async def test() -> None:
        streams = Streams()
        await streams.begin()
        streams.step([[(5.0,)]] * STREAMS)
        connection = streams.harness.client.connection
        assert connection.sheets._known
        connection.connection_lost(None)
        assert not connection.sheets._known

    on_loop(test)
