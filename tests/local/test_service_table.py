"""A frontend's models follow the table, and it says so."""

from dataclasses import replace
from typing import Any, cast

import pytest
from rig import local_segment, spec
from stage import Stage as FullStage
from stage import predictions, untyped

from ringbatch.frontend.request.gateway import SWEEP_NS, Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.shm.errors import ModelNotFound
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import LANE_TABLE, WORD
from ringbatch.shm.model_spec import LOADING, RETIRING, ModelSpec
from ringbatch.shm.tensor import Tensor

X = (Tensor("x", "FP32", [1]),)
ONE = spec(0, X, X)
TWO = replace(ONE, index=1, version="2", generation=1, workers=(1,))


class Quiet:
    """A gateway through which nothing goes."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.rung: Any = None

    def between_requests(self) -> None:
        """Nothing is half sent."""


class Stage:
    """A service on a segment whose table a test publishes."""

    def __init__(self, *models: ModelSpec) -> None:
        self.segment = local_segment(*models, spare=2)
        self.gateway = Quiet(Lane(self.segment, 0, lambda: None))
        self.service = Service(self.segment, cast(Gateway, self.gateway), lambda: 1)

    def publish(self, *models: ModelSpec) -> None:
        self.segment.table.publish(models)

    def seen(self) -> int:
        return int(self.segment.words[(self.segment.layout.lane(0) + LANE_TABLE) // WORD])

    def status(self, name: str) -> tuple[int, bytes]:
        """How a V1 request that is wrong for every model ends."""
        answers: list[tuple[int, bytes]] = []
        self.service.predict(name, b"{", lambda status, body, _: answers.append((status, body)))
        (answer,) = answers
        return answer


def test_the_next_request_finds_the_table_that_holds() -> None:
    stage = Stage(ONE)
    assert (stage.status("m")[0], stage.status("m/versions/2")[0]) == (400, 404)
    stage.publish(ONE, replace(TWO, state=LOADING))
    assert stage.status("m/versions/2")[0] == 404, "it does not serve yet"
    stage.publish(replace(ONE, state=RETIRING), TWO)
    assert (stage.status("m/versions/1")[0], stage.status("m/versions/2")[0]) == (404, 400)
    assert stage.service.model("m").spec == TWO
    stage.publish()
    assert stage.status("m") == (404, b'{"error":"there is no model \\"m\\"; there is: none"}')


def test_a_frontend_says_which_table_it_follows_when_it_does() -> None:
    stage = Stage(ONE)
    assert stage.seen() == stage.segment.table.number
    stage.publish(ONE, TWO)
    assert stage.seen() == stage.segment.table.number - 1
    stage.gateway.rung()
    assert stage.seen() == stage.segment.table.number, "the doorbell is enough"
    assert list(stage.service.models) == ["m"]


def test_what_has_not_changed_keeps_what_was_learned() -> None:
    stage = Stage(ONE)
    known = stage.service.model("m")
    stage.publish(ONE, TWO)
    assert stage.service.model("m", "1") is known
    stage.publish(replace(ONE, max_batch_size=1), TWO)
    assert stage.service.model("m", "1") is not known


def test_versions_are_named_where_one_is_missing() -> None:
    stage = Stage(ONE, TWO)
    assert stage.service.versions("m") == ["1", "2"]
    with pytest.raises(ModelNotFound, match='has version "1" and "2" and no version "3"'):
        stage.service.model("m", "3")


def sending(slots: int = 8) -> FullStage:
    return FullStage(untyped(), slots=slots)


def acknowledged(stage: FullStage) -> bool:
    word = (stage.segment.layout.lane(0) + LANE_TABLE) // WORD
    return bool(stage.segment.words[word] == stage.segment.table.number)


def test_what_was_sent_before_a_table_was_followed_is_announced_before_that_is_said() -> None:
    stage = sending()
    stage.predict(0, [0])
    stage.segment.table.publish(stage.segment.models)
    assert (acknowledged(stage), stage.submitted.waiting) == (False, False)
    stage.service.keep_up()
    assert (acknowledged(stage), stage.submitted.waiting) == (True, True)


def test_a_table_is_not_followed_as_long_as_there_is_no_room_to_announce_what_was_sent() -> None:
    stage = sending(slots=2)
    for number in range(2):
        stage.predict(number, [number])
    found = [stage.port.read(ref) for ref, _ in stage.port.published()]
    stage.answer([request for request in found if request is not None])
    stage.loop.turn()
    stage.gateway.collect()
    stage.predict(2, [2])
    stage.segment.table.publish(stage.segment.models)
    stage.service.keep_up()
    assert stage.lane.held_back
    before = acknowledged(stage)
    stage.submitted.take()
    stage.loop.turn()
    stage.loop.advance(SWEEP_NS + 2_000_000)
    assert (before, acknowledged(stage), stage.submitted.waiting) == (False, True, True)
    stage.answer(stage.taken())
    stage.gateway.collect()
    assert predictions(stage, 2) == [2]
