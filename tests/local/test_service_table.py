"""A frontend's models follow the table, and it says so."""

from dataclasses import replace
from typing import Any, cast

import pytest
from frontend_harness import FrontendHarness, predictions, untyped
from segment_fixture import local_segment, spec

from ringbatch.frontend.request.gateway import SWEEP_NS, Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.shm.descriptors import LaneWords
from ringbatch.shm.errors import ModelNotFound
from ringbatch.shm.lane import Lane
from ringbatch.shm.model_spec import LOADING, RETIRING, ModelSpec
from ringbatch.shm.tensor import Tensor

X = (Tensor("x", "FP32", [1]),)
ONE = spec(0, X, X)
TWO = replace(ONE, index=1, account=1, version="2", generation=1, workers=(1,))


class Quiet:
    """A gateway through which nothing goes."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.on_doorbell: Any = None

    def connect(self, on_doorbell: Any, on_answers: Any) -> None:
        """Keep what is called when the doorbell has rung."""
        self.on_doorbell = on_doorbell

    def between_requests(self) -> None:
        """Do nothing, as no answer is half sent."""


class Harness:
    """A service on a segment whose table a test publishes."""

    def __init__(self, *models: ModelSpec) -> None:
        self.segment = local_segment(*models, spare=2)
        self.gateway = Quiet(Lane(self.segment, 0, lambda: None))
        self.service = Service(self.segment, cast(Gateway, self.gateway), lambda: 1)

    def publish(self, *models: ModelSpec) -> None:
        self.segment.model_table.publish(models)

    def seen(self) -> int:
        return int(self.segment.words[self.segment.layout.lane(0) + LaneWords.MODEL_TABLE])

    def status(self, name: str) -> tuple[int, bytes]:
        """Return the status and body of a V1 request that is wrong for every model."""
        answers: list[tuple[int, bytes]] = []
        self.service.predict(name, b"{", lambda answer: answers.append(answer[:2]))
        (answer,) = answers
        return answer


def test_the_next_request_finds_the_table_that_holds() -> None:
    harness = Harness(ONE)
    assert (harness.status("m")[0], harness.status("m/versions/2")[0]) == (400, 404)
    harness.publish(ONE, replace(TWO, state=LOADING))
    assert harness.status("m/versions/2")[0] == 404, "it does not serve yet"
    harness.publish(replace(ONE, state=RETIRING), TWO)
    assert (harness.status("m/versions/1")[0], harness.status("m/versions/2")[0]) == (404, 400)
    assert harness.service.model("m").spec == TWO
    harness.publish()
    text = b'Request for unknown model: there is no model \\"m\\"; there is: none'
    assert harness.status("m") == (404, b'{"error":"%b"}' % text)


def test_a_frontend_says_which_table_it_follows_when_it_does() -> None:
    harness = Harness(ONE)
    assert harness.seen() == harness.segment.model_table.number
    harness.publish(ONE, TWO)
    assert harness.seen() == harness.segment.model_table.number - 1
    harness.gateway.on_doorbell()
    assert harness.seen() == harness.segment.model_table.number, "the doorbell is enough"
    assert list(harness.service.models) == ["m"]


def test_an_unchanged_model_keeps_its_learned_sizes() -> None:
    harness = Harness(ONE)
    known = harness.service.model("m")
    harness.publish(ONE, TWO)
    assert harness.service.model("m", "1") is known
    harness.publish(replace(ONE, max_batch_size=1), TWO)
    assert harness.service.model("m", "1") is not known


def test_versions_are_named_where_one_is_missing() -> None:
    harness = Harness(ONE, TWO)
    assert harness.service.versions("m") == ["1", "2"]
    with pytest.raises(ModelNotFound, match='has version "1" and "2" and no version "3"'):
        harness.service.model("m", "3")


def sending(slots: int = 8) -> FrontendHarness:
    return FrontendHarness(untyped(), slots=slots)


def acknowledged(harness: FrontendHarness) -> bool:
    word = harness.segment.layout.lane(0) + LaneWords.MODEL_TABLE
    return bool(harness.segment.words[word] == harness.segment.model_table.number)


def test_requests_from_before_a_new_table_are_submitted_before_it_is_acknowledged() -> None:
    harness = sending()
    harness.predict(0, [0])
    harness.segment.model_table.publish(harness.segment.models)
    assert (acknowledged(harness), harness.submitted.has_items) == (False, False)
    harness.service.keep_up()
    assert (acknowledged(harness), harness.submitted.has_items) == (True, True)


def test_a_table_is_not_followed_until_earlier_requests_have_room() -> None:
    harness = sending(slots=2)
    for number in range(2):
        harness.predict(number, [number])
    found = [harness.engine_slots.read(ref) for ref, _ in harness.engine_slots.published()]
    harness.answer([request for request in found if request is not None])
    harness.loop.turn()
    harness.gateway.collect()
    harness.predict(2, [2])
    harness.segment.model_table.publish(harness.segment.models)
    harness.service.keep_up()
    assert harness.lane.held_back
    before = acknowledged(harness)
    harness.submitted.take()
    harness.loop.turn()
    harness.loop.advance(SWEEP_NS + 2_000_000)
    assert (before, acknowledged(harness), harness.submitted.has_items) == (False, True, True)
    harness.answer(harness.taken())
    harness.gateway.collect()
    assert predictions(harness, 2) == [2]
