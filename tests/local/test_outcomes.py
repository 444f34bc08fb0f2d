"""The end of every request is seen once, before its answer, however it ends."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from frontend_harness import SECOND_NS, TIMEOUT_NS, FrontendHarness, untyped

from ringbatch.frontend.request.gateway import SETTLED_TOGETHER, SWEEP_NS
from ringbatch.frontend.request.outcomes import NO_SLOT, RequestOutcome, RequestOutcomes
from ringbatch.shm.account import NOBODY, PriorityClass, account_word
from ringbatch.shm.descriptors import SLOW_REQUESTS
from ringbatch.shm.engine_slots import BatchMark, Request
from ringbatch.shm.latency_breakdown import Breakdown
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.slow_requests import WINDOW_S, RequestRecord, Slowest
from ringbatch.shm.tallies import CLIENT_GONE, CODE_LABELS, Protocol, Tally, ends_of


class Watched(RequestOutcomes):
    """Outcomes that call `on_record` at each end."""

    on_record: Callable[[RequestOutcome], None]

    def answered(
        self, tally: Tally, accepted_ns: int, instances: int, batch_id: str, slot: int
    ) -> None:
        super().answered(tally, accepted_ns, instances, batch_id, slot)
        self.on_record(self.last())

    def record(
        self,
        tally: Tally,
        code: int,
        accepted_ns: int,
        slot: int = NO_SLOT,
        account: int = NOBODY,
        instances: int = 0,
        deadline_ns: int = 0,
    ) -> None:
        super().record(tally, code, accepted_ns, slot, account, instances, deadline_ns)
        self.on_record(self.last())


class Seen(FrontendHarness):
    """A service whose ends are seen, with how many replies there were by then."""

    def __init__(self, slots: int = 8, **changes: Any) -> None:
        super().__init__(untyped(**changes), slots, slots << 15)
        self.outcomes: list[RequestOutcome] = []
        self.replies_before: list[int] = []
        outcomes = Watched(
            self.lane, Slowest(self.segment, self.lane.index), lambda: self.loop.now_ns
        )
        outcomes.on_record = self._listen
        self.service.engine.outcomes = outcomes
        self.gateway.connect(on_doorbell=self.service.keep_up, on_answers=outcomes.settle)

    def _listen(self, ending: RequestOutcome) -> None:
        self.outcomes.append(ending)
        self.replies_before.append(len(self.replies.got))

    def only(self) -> RequestOutcome:
        (ending,) = self.outcomes
        return ending

    def counts(self) -> dict[tuple[str, Protocol, str], int]:
        """Return the counts of answers by model, protocol and code."""
        nobody = self.segment.layout.models
        found = ends_of(self.segment, [0, nobody])
        return {
            (name, protocol, code): count
            for name, ends in ((self.name, found[0]), ("", found[nobody]))
            for protocol in Protocol
            for code, count in zip(("200", *CODE_LABELS), ends.codes[protocol], strict=True)
            if count
        }


def answered(harness: Seen) -> None:
    harness.predict(0, [1])
    harness.loop.turn()
    harness.loop.now_ns += 70
    harness.answer(harness.taken())
    harness.gateway.collect()


def split(harness: Seen) -> None:
    harness.predict(0, [1, 2, 3, 4, 5])
    harness.loop.turn()
    for request in harness.taken():
        harness.answer([request])
    harness.gateway.collect()


def failed(status: Status) -> Callable[[Seen], None]:
    def act(harness: Seen) -> None:
        harness.predict(0, [1])
        harness.loop.turn()
        harness.answer(harness.taken(), status)
        harness.gateway.collect()

    return act


def a_part_failed(harness: Seen) -> None:
    harness.predict(0, [1, 2, 3, 4, 5])
    harness.loop.turn()
    for request in harness.taken():
        harness.answer([request], Status.MODEL_FAILED)
    harness.gateway.collect()


def expired(harness: Seen) -> None:
    harness.predict(0, [1])
    harness.loop.turn()
    harness.loop.now_ns += TIMEOUT_NS
    harness.gateway.sweep()


def abandoned(instances: list[int]) -> Callable[[Seen], None]:
    def act(harness: Seen) -> None:
        call = harness.predict(0, instances)
        assert call is not None
        call.abandon()
        call.abandon()
        harness.loop.turn()
        harness.answer(harness.taken())
        harness.gateway.collect()

    return act


def of_nobody(harness: Seen) -> None:
    harness.name, own = "nobody", harness.name
    harness.predict(0, [1])
    harness.name = own


def malformed(harness: Seen) -> None:
    harness.service.predict(harness.name, b"{", harness.replies.to(0))


def crowded(harness: Seen) -> None:
    for number in range(1, harness.lane.capacity + 1):
        harness.predict(number, [1])
    harness.predict(0, [1])


def without_instances(harness: Seen) -> None:
    harness.service.predict(harness.name, orjson.dumps({"instances": []}), harness.replies.to(0))


def without_workers(harness: Seen) -> None:
    harness.segment.words[harness.service.model(harness.name).takes_word] = 0
    harness.predict(0, [1])


def malformed_v2(json_bytes: int | None) -> Callable[[Seen], None]:
    def act(harness: Seen) -> None:
        harness.service.infer(harness.name, b"{}", json_bytes, harness.replies.to(0))

    return act


def outside(harness: Seen) -> None:
    harness.service.record_outside(Protocol.V1, 413, harness.name)


@pytest.mark.parametrize(
    ("act", "code", "protocol", "stamped"),
    [
        (answered, "200", Protocol.V1, True),
        (split, "200", Protocol.V1, True),
        (without_instances, "400", Protocol.V1, False),
        (failed(Status.MODEL_FAILED), "500", Protocol.V1, True),
        (failed(Status.INVALID), "400", Protocol.V1, True),
        (failed(Status.WORKER_DIED), "503", Protocol.V1, True),
        (failed(Status.EXPIRED), "504", Protocol.V1, True),
        (a_part_failed, "500", Protocol.V1, True),
        (expired, "504", Protocol.V1, False),
        (abandoned([1]), str(CLIENT_GONE), Protocol.V1, False),
        (abandoned([1, 2, 3, 4, 5]), str(CLIENT_GONE), Protocol.V1, False),
        (malformed, "400", Protocol.V1, False),
        (crowded, "503", Protocol.V1, False),
        (without_workers, "503", Protocol.V1, False),
        (malformed_v2(None), "400", Protocol.V2, False),
        (malformed_v2(2), "400", Protocol.V2_BINARY, False),
        (outside, "413", Protocol.V1, False),
    ],
)
def test_an_end_is_seen_and_counted_once(
    act: Callable[[Seen], None], code: str, protocol: Protocol, stamped: bool
) -> None:
    harness = Seen()
    act(harness)
    ending = harness.only()
    assert harness.counts() == {(harness.name, protocol, code): 1}
    assert (ending.tally.name, ending.tally.protocol, str(ending.code)) == (
        harness.name,
        protocol,
        code,
    )
    assert (ending.stamps is not None) == stamped
    assert ending.ended_ns == harness.loop.now_ns
    assert harness.replies_before == [0]


@pytest.mark.parametrize(
    "act",
    [failed(Status.OVERLOADED), failed(Status.LIMITED), expired, crowded, without_workers],
)
def test_the_writer_of_a_refusal_learns_the_deadline(act: Callable[[Seen], None]) -> None:
    harness = Seen()
    began_ns = harness.loop.now_ns
    act(harness)
    assert harness.service.engine.outcomes.deadline_ns == began_ns + TIMEOUT_NS


@pytest.mark.parametrize("act", [malformed, of_nobody, outside])
def test_a_request_without_a_deadline_leaves_none(act: Callable[[Seen], None]) -> None:
    harness = Seen()
    expired(harness)
    assert harness.service.engine.outcomes.deadline_ns
    harness.replies.got.clear()
    act(harness)
    assert not harness.service.engine.outcomes.deadline_ns


@pytest.mark.parametrize(
    "act",
    [
        answered,
        split,
        failed(Status.MODEL_FAILED),
        a_part_failed,
        expired,
        abandoned([1]),
        abandoned([1, 2, 3, 4, 5]),
        crowded,
        without_workers,
        of_nobody,
    ],
)
def test_an_outcome_has_the_account_of_its_request(act: Callable[[Seen], None]) -> None:
    harness = Seen()
    harness.account = account_word(5, PriorityClass.BULK)
    act(harness)
    assert harness.only().account == harness.account


def test_a_request_for_an_unknown_model_is_counted_without_its_name() -> None:
    harness = Seen()
    of_nobody(harness)
    assert harness.counts() == {("", Protocol.V1, "404"): 1}
    assert harness.only().tally.name == ""


def test_an_outcome_has_the_slots_stamps_and_its_duration() -> None:
    harness = Seen()
    answered(harness)
    ending = harness.only()
    assert ending.stamps is not None
    assert (ending.stamps.batch, ending.stamps.batch_rows) == (1, 1)
    assert ending.ended_ns - ending.accepted_ns == 70
    assert ends_of(harness.segment, [0])[0].answered_ns == 70


def test_the_instances_of_all_parts_are_counted() -> None:
    harness = Seen()
    split(harness)
    assert ends_of(harness.segment, [0])[0].instances == 5


def test_a_failure_that_kserve_answers_with_200_is_counted_as_500() -> None:
    harness = Seen(kserve_errors=True)
    failed(Status.MODEL_FAILED)(harness)
    assert harness.replies.got[0][0] == 200
    assert harness.counts() == {(harness.name, Protocol.V1, "500"): 1}


def test_an_answer_that_cannot_be_put_together_is_logged_and_counted() -> None:
    harness = Seen()
    harness.predict(0, [1, 2, 3, 4, 5])
    harness.loop.turn()
    for request in harness.taken():
        # Nothing at all is no list of predictions.
        mark = BatchMark(1, request.rows, Reason.IDLE, 0)
        harness.engine_slots.answer(request.ref, Status.OK, 0, mark, 0)
    harness.engine_slots.flush()
    harness.gateway.collect()
    assert harness.replies.got[0][0] == 500
    assert harness.counts() == {(harness.name, Protocol.V1, "500"): 1}


def answer_all_but_one(harness: Seen, count: int) -> Request:
    """Answer all but one of so many requests, and return that one, which is under way yet."""
    for each in range(count):
        harness.predict(each, [each])
    harness.loop.turn()
    last, *others = harness.taken()
    harness.answer(others)
    harness.gateway.collect()
    return last


def test_answers_are_counted_with_the_last_that_is_under_way() -> None:
    harness = Seen()
    last = answer_all_but_one(harness, 5)
    assert harness.counts() == {}
    harness.answer([last])
    harness.gateway.collect()
    assert harness.counts() == {(harness.name, Protocol.V1, "200"): 5}


def test_enough_answers_are_counted_though_others_are_under_way() -> None:
    harness = Seen(slots=2 * SETTLED_TOGETHER)
    answer_all_but_one(harness, 1 + SETTLED_TOGETHER)
    assert harness.counts() == {(harness.name, Protocol.V1, "200"): SETTLED_TOGETHER}


def test_answers_are_counted_after_a_while_though_others_are_under_way() -> None:
    harness = Seen()
    answer_all_but_one(harness, 5)
    harness.loop.advance(2 * SWEEP_NS)
    assert harness.counts() == {(harness.name, Protocol.V1, "200"): 4}


def test_answers_are_counted_before_the_lane_is_given_up() -> None:
    harness = Seen()
    answer_all_but_one(harness, 5)
    harness.gateway.close()
    assert harness.counts() == {(harness.name, Protocol.V1, "200"): 4}


def test_a_request_is_notable_where_it_failed_or_was_slow() -> None:
    harness = Seen()
    outcomes = harness.service.engine.outcomes
    answered(harness)
    assert outcomes.must_log, "there is room among the slowest"
    tally = harness.only().tally
    for _ in range(SLOW_REQUESTS):
        harness.loop.now_ns += 50
        now_ns = harness.loop.now_ns
        assert outcomes.may_be_slowest(50, now_ns)
        found = Breakdown(0, 50)
        outcomes.keep(RequestRecord(now_ns, 0, Protocol.V1, 200, 1, found, "", ""))

    def seen_as_notable(took_ns: int) -> bool:
        harness.outcomes.clear()
        outcomes.answered(tally, harness.loop.now_ns - took_ns, 1, "", NO_SLOT)
        return outcomes.must_log

    assert [seen_as_notable(took_ns) for took_ns in (49, 50, 51)] == [False, False, True]
    outcomes.log_slower_than(20)
    assert [seen_as_notable(took_ns) for took_ns in (20, 21)] == [False, True]
    outcomes.record(tally, 400, harness.loop.now_ns)
    assert outcomes.must_log
    harness.loop.now_ns += (WINDOW_S + 2) * SECOND_NS
    outcomes.answered(tally, harness.loop.now_ns, 1, "", NO_SLOT)
    outcomes.settle()
    assert seen_as_notable(0), "those before are too old"


@pytest.mark.parametrize(
    ("act", "counts"),
    [
        (failed(Status.LIMITED), [1, 0]),
        (failed(Status.OVERLOADED), [0, 1]),
        (failed(Status.MODEL_FAILED), [0, 0]),
        (crowded, [0, 1]),
        (without_workers, [0, 1]),
        (expired, [0, 0]),
    ],
)
def test_a_refusal_is_counted_for_its_class(act: Callable[[Seen], None], counts: list[int]) -> None:
    harness = Seen()
    harness.account = account_word(5, PriorityClass.BULK)
    act(harness)
    refused = ends_of(harness.segment, [0])[0].refused
    assert refused == {"normal": [0, 0], "interactive": [0, 0], "bulk": counts}
