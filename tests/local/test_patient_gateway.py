"""When requests that come one by one are announced: at once, or with the next answer."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from rig import FAR_NS, local_segment, spec

from ringbatch.frontend import patient_gateway
from ringbatch.frontend.gateway import BUNCH
from ringbatch.frontend.patient_gateway import IN_VAIN, PatientGateway
from ringbatch.shm.bell import Bell
from ringbatch.shm.holder import BatchMark, Holder, Request
from ringbatch.shm.lane import Lane
from ringbatch.shm.ring import Consumer
from ringbatch.shm.slot import Reason, Status

SLOTS = 256
NEVER_S = 3600.0


class Waiter:
    """Counts its answers."""

    def __init__(self, stage: "Stage") -> None:
        self._stage = stage
        self.answers = 0

    def answered(self, slot: int) -> None:
        self.answers += 1
        self._stage.gateway.lane.release(slot)

    def expired(self, slot: int) -> None:
        raise AssertionError("there are no deadlines here")


class Stage:
    """A patient gateway, and the engine's end of its lane."""

    def __init__(self, folder: Path) -> None:
        segment = local_segment(spec(), slots=SLOTS, lane_bytes=1 << 20)
        self.gateway = PatientGateway(
            Lane(segment, 0, lambda: None), asyncio.get_running_loop(), lambda: 0
        )
        Bell.create(str(folder / "bell"))
        self.gateway.listen(Bell.attach(str(folder / "bell")))
        self._bell = Bell.attach(str(folder / "bell"))
        self.waiter = Waiter(self)
        self._holder = Holder(segment, 0, lambda _lane: None)
        self._submitted = Consumer(segment.words, segment.layout.submission_ring(0), SLOTS)
        self.in_engine: list[Request] = []

    async def submit(self, count: int = 1) -> None:
        """So many requests, each in a turn of the loop of its own."""
        for _ in range(count):
            self.gateway.between_requests()
            self.gateway.submit(self.waiter, 0, 1, b"x", 0, 64, 0, FAR_NS)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    def announced(self) -> int:
        """How many more have come to the engine since the last look."""
        found = [self._holder.read(ref) for ref in self._submitted.take()]
        self.in_engine += [request for request in found if request is not None]
        return len(found)

    async def answer(self, count: int = 1) -> None:
        """Answer so many, ring, and wait until the answers are there."""
        wanted = self.waiter.answers + count
        for request in self.in_engine[:count]:
            mark = BatchMark(1, 1, Reason.IDLE, 0)
            self._holder.answer(request.ref, Status.OK, 0, mark, 0)
        del self.in_engine[:count]
        self._holder.flush()
        self._bell.wake()
        while self.waiter.answers < wanted:
            await asyncio.sleep(0)

    def close(self) -> None:
        self.gateway.close()
        self._bell.close()


OnLoop = Callable[[Callable[[Stage], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def on_loop(tmp_path: Path) -> OnLoop:
    """`on_loop(test)`: runs a test with a stage of its own."""

    def run(test: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
        async def with_stage() -> None:
            stage = Stage(tmp_path)
            try:
                await test(stage)
            finally:
                stage.close()

        asyncio.run(with_stage())

    return run


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait ends with an answer and not otherwise."""
    monkeypatch.setattr(patient_gateway, "HOLD_S", NEVER_S)


@pytest.mark.usefixtures("endless")
def test_a_lone_request_waits_for_nothing(on_loop: OnLoop) -> None:
    async def test(stage: Stage) -> None:
        for _ in range(3):
            await stage.submit()
            assert stage.announced() == 1
            await stage.answer()

    on_loop(test)


@pytest.mark.usefixtures("endless")
def test_what_comes_while_one_is_under_way_goes_with_its_answer(on_loop: OnLoop) -> None:
    async def test(stage: Stage) -> None:
        await stage.submit()
        assert stage.announced() == 1
        await stage.submit(5)
        assert stage.announced() == 0
        await stage.answer()
        assert stage.announced() == 5
        # These five are under way now, and any of their answers will do.
        await stage.submit(2)
        assert stage.announced() == 0
        await stage.answer()
        assert stage.announced() == 2
        await stage.answer(6)
        await stage.submit()
        assert stage.announced() == 1

    on_loop(test)


def test_an_answer_is_not_waited_for_longer_than_the_limit(on_loop: OnLoop) -> None:
    async def test(stage: Stage) -> None:
        await stage.submit()
        assert stage.announced() == 1
        await stage.submit(3)
        found = 0
        while found < 3:
            await asyncio.sleep(0)
            found += stage.announced()
        assert found == 3

    on_loop(test)


def test_after_a_wait_in_vain_nothing_waits_for_a_while(
    on_loop: OnLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(stage: Stage) -> None:
        await stage.submit()
        await stage.submit()
        while len(stage.in_engine) < 2:
            await asyncio.sleep(0)
            stage.announced()
        monkeypatch.setattr(patient_gateway, "HOLD_S", NEVER_S)
        for _ in range(IN_VAIN):
            await stage.submit()
            assert stage.announced() == 1
        await stage.submit()
        assert stage.announced() == 0

    on_loop(test)


@pytest.mark.usefixtures("endless")
def test_a_bunch_that_is_large_enough_goes_and_what_follows_waits_again(on_loop: OnLoop) -> None:
    """However a held turn ends, the next request has one."""

    async def test(stage: Stage) -> None:
        await stage.submit()
        assert stage.announced() == 1
        await stage.submit(BUNCH + 1)
        assert stage.announced() == BUNCH
        await stage.answer()
        assert stage.announced() == 1
        await stage.submit(2)
        assert stage.announced() == 0
        await stage.answer(2)
        assert stage.announced() == 2

    on_loop(test)


@pytest.mark.usefixtures("endless")
def test_closing_ends_a_wait(on_loop: OnLoop) -> None:
    async def test(stage: Stage) -> None:
        await stage.submit(2)
        stage.gateway.close()
        stage.gateway.lane.announce()
        assert stage.announced() == 2

    on_loop(test)
