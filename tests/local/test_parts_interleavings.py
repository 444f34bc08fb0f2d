"""Answers in parts under every order of a frontend's and its workers' steps, deaths included."""

import logging
from collections.abc import Callable

import pytest
from interleave import Scenario, Violation, explore
from memories import TotalStoreOrder
from parts_harness import (
    ONE_PART,
    TWO_PARTS,
    WITH_GAP,
    Frontend,
    TakesBack,
    Wrong,
    asking,
    found_in_slots,
    is_private,
    stepwise,
    streaming,
    take_back,
)
from tiers import exhaustive

from ringbatch.engine.collector.dead_batches import DeadBatches
from ringbatch.engine.collector.models import Batch
from ringbatch.engine.worker.parts_runner import PartsRunner
from ringbatch.shm import engine_slots as holder_module
from ringbatch.shm import lane as lane_module
from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.engine_slots import BatchMark, EngineSlots, Request
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import ALIGNMENT, WORD, aligned
from ringbatch.shm.parts import PartReader, PartWriter
from ringbatch.shm.slot import SLOT_BITS, Status


@pytest.fixture(autouse=True)
def _headers_are_written_word_by_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_module, "_store_header", stepwise.pack_into)
    monkeypatch.setattr(holder_module, "_store_details", stepwise.pack_into)
    # A killed worker's runner takes its death for the model's failure, and its next step ends it.
    monkeypatch.setattr(logging.getLogger("ringbatch.worker"), "disabled", True)


def test_parts_come_whole_and_in_order_and_all_before_the_end() -> None:
    explored = explore(streaming(2, TWO_PARTS), private=is_private(published=True))
    print(explored)
    assert explored.states > 100


@pytest.mark.parametrize("result_bytes", [ONE_PART, WITH_GAP])
def test_the_room_of_a_part_is_used_again(result_bytes: int) -> None:
    scenario = streaming(2, result_bytes, plain=True)
    explored = explore(scenario, private=is_private(published=True))
    print(explored)
    assert explored.states > 100


def test_parts_are_sound_with_store_buffers() -> None:
    scenario = streaming(2, ONE_PART, plain=True)
    explored = explore(scenario, private=is_private(published=True), memory=TotalStoreOrder)
    print(explored)
    assert explored.states > 100


def test_a_part_is_read_though_the_model_takes_long_for_the_next() -> None:
    scenario = streaming(1, TWO_PARTS, plain=True, stalls=True)
    explored = explore(scenario, private=is_private(published=True))
    print(explored)
    assert explored.states > 50


def test_parts_of_an_earlier_request_are_not_this_one_s() -> None:
    scenario = streaming(1, TWO_PARTS, earlier=True)
    explored = explore(scenario, private=is_private(published=True))
    print(explored)
    assert explored.states > 100


@pytest.mark.parametrize("takes_back", [take_back, found_in_slots])
def test_no_second_worker_runs_a_request_of_which_a_part_is_out(takes_back: TakesBack) -> None:
    scenario = streaming(2, TWO_PARTS, takes_back=takes_back)
    explored = explore(scenario, private=is_private(published=True))
    print(explored)
    assert explored.states > 100


def test_a_worker_sees_that_parts_are_wanted() -> None:
    explored = explore(asking(), private=is_private(published=False), memory=TotalStoreOrder)
    print(explored)
    assert explored.states > 50


@exhaustive
def test_a_dead_frontend_s_wish_for_parts_is_not_its_heir_s() -> None:
    explored = explore(asking(dies=True), private=is_private(published=False))
    print(explored)
    assert explored.states > 50


class EndBeforeBytes(PartWriter):
    """Defect: PARTS_END covers a part before its bytes stand there."""

    def write(self, part: bytes) -> bool:
        room = self.first_room()
        if room is None:
            return False
        super()._publish(room.start, WORD, self._end + ALIGNMENT + aligned(WORD))
        self._memory[room.start : room.start + WORD] = part
        return True


class EndBeforeSize(PartWriter):
    """Defect: PARTS_END covers a part before its size stands there."""

    def _publish(self, begin: int, size: int, end: int) -> None:
        self._store_release[self._first + SlotWords.PARTS_END] = end
        super()._publish(begin, size, end)


class NoticeFirst(EngineSlots):
    """Defect: posts a part before it is out."""

    def part_writer(self, request: Request, batch: int) -> PartWriter:
        super().post_part(request.ref)
        self.flush()
        return super().part_writer(request, batch)

    def post_part(self, ref: int) -> None:
        """Do nothing, as the part is posted already."""


class TakesFirst(PartReader):
    """Defect: frees a part's room before the part is copied out."""

    def next(self, slot: int) -> tuple[int, int] | None:
        found = super().next(slot)
        if found is not None:
            super().take(slot, found[1])
        return found

    def take(self, slot: int, size: int) -> bool:
        """Do nothing, as the part is taken already; have the caller look for others."""
        return True


class OpensNothing(PartReader):
    """Defect: leaves PARTS_FROM where the slot's earlier request began."""

    def open(self, slot: int) -> None:
        words, first = self._words, self._first(slot)
        words[first + SlotWords.PARTS_TAKEN] = words[first + SlotWords.PARTS_END]
        words[first + SlotWords.PARTS_OF] = self._lane.next_reference(slot)


class OpensLate(Frontend):
    """Defect: asks for parts once the request is published."""

    def publish(self, result_bytes: int, *, in_parts: bool = True) -> bool:
        return super().publish(result_bytes, in_parts=False)

    def opened(self, slot: int) -> None:
        ref = self.lane.next_reference(slot) - (1 << SLOT_BITS)
        self.world.words[self.world.slot_word + SlotWords.PARTS_OF] = ref


class KeepsTheWish(Lane):
    """Defect: leaves a dead owner's wish for parts where it stands."""

    def _take_over(self) -> None:
        wish = self.words[self.first_word + SlotWords.PARTS_OF]
        super()._take_over()
        self.words[self.first_word + SlotWords.PARTS_OF] = wish


class RunsAllAgain(DeadBatches):
    """Defect: has requests run again of which a part is out."""

    def _unanswered(self, batch: Batch, now_ns: int) -> list[Request]:
        return [request for request in batch.requests if not self._slots.repeat(request.ref)]


class RunsAnything(PartsRunner):
    """Defect: runs a request though a part of its answer is out."""

    def _fail(self, requests: list[Request], status: Status, text: str, mark: BatchMark) -> None:
        if status is not Status.CUT_OFF:
            super()._fail(requests, status, text, mark)


WRONG = [
    pytest.param(
        lambda wrong: streaming(2, TWO_PARTS, plain=True, wrong=wrong),
        Wrong(writer=EndBeforeBytes),
        "not the parts in order",
        id="END before the bytes",
    ),
    pytest.param(
        lambda wrong: streaming(2, TWO_PARTS, plain=True, wrong=wrong),
        Wrong(writer=EndBeforeSize),
        "not the part's size",
        id="END before the size",
    ),
    pytest.param(
        lambda wrong: streaming(1, TWO_PARTS, plain=True, stalls=True, wrong=wrong),
        Wrong(slots=NoticeFirst),
        "never looks at",
        id="notice before END",
    ),
    pytest.param(
        lambda wrong: streaming(2, ONE_PART, plain=True, wrong=wrong),
        Wrong(reader=TakesFirst),
        "not the parts in order",
        id="TAKEN before the copy",
    ),
    pytest.param(
        lambda wrong: streaming(1, TWO_PARTS, earlier=True, wrong=wrong),
        Wrong(reader=OpensNothing),
        "CUT_OFF",
        id="FROM of an earlier request",
    ),
    pytest.param(
        lambda wrong: asking(wrong=wrong),
        Wrong(frontend=OpensLate),
        "another request's",
        id="open after publish",
    ),
    pytest.param(
        lambda wrong: asking(dies=True, wrong=wrong),
        Wrong(lane=KeepsTheWish),
        "another request's",
        id="a dead owner's wish",
        marks=exhaustive,
    ),
    pytest.param(
        lambda wrong: streaming(2, TWO_PARTS, takes_back=take_back, wrong=wrong),
        Wrong(batches=RunsAllAgain, runner=RunsAnything),
        "run though",
        id="nobody looks for parts",
    ),
    pytest.param(
        lambda wrong: streaming(2, TWO_PARTS, takes_back=found_in_slots, wrong=wrong),
        Wrong(runner=RunsAnything),
        "run though",
        id="the worker does not look",
    ),
]


@pytest.mark.parametrize(("scenario", "wrong", "message"), WRONG)
def test_a_wrong_version_is_found(
    scenario: Callable[[Wrong], Scenario],
    wrong: Wrong,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holder_module, "PartWriter", wrong.writer)
    published = wrong.frontend is None and wrong.lane is Lane
    with pytest.raises(Violation, match=message):
        explore(scenario(wrong), private=is_private(published=published))
