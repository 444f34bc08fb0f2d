"""A model whose requests wait, or whose worker is stuck, leaves other models their own slots."""

from dataclasses import replace

import orjson
from frontend_harness import SECOND_NS, FrontendHarness, typed, untyped

from ringbatch.frontend.grpc.inference import Inference
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.model_spec import RETIRING, ModelSpec

SLOTS = 16
OWN = 4
MOST = 12
"""Slots of one of two models: its own, and the half that is for both."""
SLOW, IDLE = untyped("slow"), untyped("idle", index=1, account=1)
BOTH = "[server] max_in_flight = 16 is used up"
SET_ASIDE = f"{BOTH} but for what is set aside for other models"


class Case(FrontendHarness):
    """Lane with two models, and requests by number."""

    def __init__(self, slow: ModelSpec = SLOW, idle: ModelSpec = IDLE) -> None:
        super().__init__(slow, SLOTS, others=(idle,))
        self.asked = 0

    def ask(self, model: ModelSpec, rows: int = 1) -> int:
        """Send a request; its status, 0 while it waits."""
        self.asked += 1
        instances = [[1, 2]] * rows if model.typed else [0] * rows
        body = orjson.dumps({"instances": instances})
        self.service.predict(model.name, body, self.replies.to(self.asked))
        self.loop.turn()
        return self.replies.got.get(self.asked, (0,))[0]

    def text(self) -> str:
        """The words of the answer to the last request."""
        words: str = self.replies.got[self.asked][1]["error"]
        return words


def test_an_idle_model_is_never_refused_because_of_another_that_waits() -> None:
    case = Case()
    assert [case.ask(SLOW) for _ in range(60)] == [0] * MOST + [503] * (60 - MOST)
    assert SET_ASIDE in case.text()
    waiting = case.taken()
    for _ in range(60):
        assert case.ask(IDLE) == 0
        case.answer(case.taken())
        case.gateway.collect()
        assert case.replies.got[case.asked][0] == 200
    assert case.count(LaneCounter.REFUSED) == case.count(LaneCounter.REFUSED_AT_SHARE) == 60 - MOST
    case.answer(waiting)
    case.gateway.collect()
    assert case.lane.in_flight == 0


def test_the_words_say_whether_all_slots_are_used_up_or_the_share_of_a_model() -> None:
    case = Case()
    for model, count in ((SLOW, MOST), (IDLE, OWN)):
        assert [case.ask(model) for _ in range(count)] == [0] * count
    for model in (SLOW, IDLE):
        assert case.ask(model) == 503
        assert case.text() == f"too many requests are waiting, {BOTH}; try again later"
    assert case.count(LaneCounter.REFUSED) == 2
    assert case.count(LaneCounter.REFUSED_AT_SHARE) == 0


def test_an_abandoned_request_keeps_a_slot_of_its_own_model_only() -> None:
    case = Case()
    for _ in range(MOST):
        assert case.ask(SLOW) == 0
    stuck = case.taken()
    case.loop.advance(SLOW.timeout_ns + SECOND_NS)
    assert [case.replies.got[number][0] for number in range(1, MOST + 1)] == [504] * MOST
    assert case.ask(SLOW) == 503, "the worker still holds them"
    assert [case.ask(IDLE) for _ in range(OWN)] == [0] * OWN
    case.answer(stuck)
    case.gateway.collect()
    assert case.lane.in_flight == OWN
    assert [case.ask(SLOW) for _ in range(MOST)] == [0] * MOST


def test_a_request_in_parts_finds_the_share_of_one_model_and_no_more() -> None:
    case = Case(typed(), IDLE)
    double = case.service.model("double").spec
    cap = double.max_batch_size
    assert case.ask(double, MOST * cap + 1) == 413
    assert case.text().endswith(
        f"which make {MOST + 1} batches; at most {MOST} of [server] max_in_flight = {SLOTS} are "
        "for one model at once"
    )
    assert case.ask(double, MOST * cap) == 0
    assert len(case.taken()) == MOST
    assert case.ask(IDLE) == 0


def test_two_streams_fit_into_the_share_of_one_model() -> None:
    case = Case()
    inference = Inference(case.service)
    aside = case.lane.lane_bytes // 8
    assert inference.lane_holds == (MOST, case.lane.lane_bytes - aside // 2)
    case.segment.model_table.publish((SLOW,))
    case.service.keep_up()
    assert inference.lane_holds == (SLOTS, case.lane.lane_bytes)


def test_models_that_come_and_go_divide_the_slots_anew() -> None:
    case = Case()
    publish = case.segment.model_table.publish
    publish((SLOW,))
    assert [case.ask(SLOW) for _ in range(SLOTS + 1)] == [0] * SLOTS + [503]
    assert case.text() == f"too many requests are waiting, {BOTH}; try again later"
    publish((SLOW, IDLE))
    waiting = case.taken()
    assert case.ask(IDLE) == 503, "all slots are the other's still"
    case.answer(waiting[:1])
    case.gateway.collect()
    assert case.ask(IDLE) == 0
    publish((IDLE,))
    case.answer(waiting[1:])
    case.gateway.collect()
    assert [case.ask(IDLE) for _ in range(SLOTS)] == [0] * (SLOTS - 1) + [503]
    assert case.count(LaneCounter.REFUSED_AT_SHARE) == 0


def test_a_model_loaded_in_anothers_place_has_no_more_slots() -> None:
    case = Case()
    assert [case.ask(SLOW) for _ in range(MOST)] == [0] * MOST
    again = replace(SLOW, generation=1)
    case.segment.model_table.publish((replace(SLOW, state=RETIRING), again, IDLE))
    stuck = case.taken()
    assert case.ask(again) == 503
    assert SET_ASIDE in case.text()
    assert [case.ask(IDLE) for _ in range(OWN)] == [0] * OWN
    case.answer(stuck)
    case.gateway.collect()
    assert [case.ask(again) for _ in range(MOST)] == [0] * MOST
