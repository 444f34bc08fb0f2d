"""Overtaken requests: their answers say so, and no other answers do."""

from collector_harness import CollectorHarness, eager
from segment_fixture import FAR_NS, Reply

from ringbatch.shm.account import PriorityClass, account_word
from ringbatch.shm.latency_breakdown import breakdown
from ringbatch.shm.slot import Status

CAP = 4
FLOODER, POLITE = 7, 8
POLITE_NUMBER = 99
FULL = eager(max_batch_size=CAP, timeout_ns=FAR_NS)


def flooded(account: int = POLITE, *, deadline_ns: int = FAR_NS) -> CollectorHarness:
    """Return a harness with a flood of two batches, and behind it a request of one account."""
    harness = CollectorHarness(FULL, slots=16).begin()
    for number in range(2 * CAP):
        harness.send(number, account=FLOODER, deadline_ns=deadline_ns, accepted_ns=1)
    harness.step(1_000)
    harness.send(POLITE_NUMBER, lane=1, account=account, accepted_ns=2)
    harness.step(1_000)
    return harness


def answered(harness: CollectorHarness, now_ns: int) -> dict[int, Reply]:
    """Run the batch under way until then; the answers of both lanes, by slot."""
    worker = harness.workers[0]
    worker.finish(worker.task())
    harness.step(now_ns)
    first, second = (client.collect() for client in harness.clients)
    return first | {-1 - slot: reply for slot, reply in second.items()}


def overtaken(harness: CollectorHarness, turns: int) -> list[list[int]]:
    """The instants in the answers of one batch after the other, without zeros."""
    found = [answered(harness, 2_000 + 1_000 * turn) for turn in range(turns)]
    return [sorted(filter(None, [r.answer.overtaken_ns for r in each.values()])) for each in found]


def test_only_requests_that_a_later_one_passes_are_marked() -> None:
    # The first batch is under way when the polite request comes, which goes with the second.
    harness = flooded()
    assert overtaken(harness, 3) == [[], [], [2_000]]


def test_of_one_account_nobody_is_marked() -> None:
    assert overtaken(flooded(FLOODER), 3) == [[], [], []]


def test_classes_overtake_too() -> None:
    harness = flooded(account_word(FLOODER, PriorityClass.INTERACTIVE))
    assert overtaken(harness, 3) == [[], [], [2_000]]


def test_a_slot_that_is_used_again_says_nothing_of_its_last_request() -> None:
    harness = flooded()
    overtaken(harness, 3)
    for number in range(2 * CAP):
        harness.send(number, account=FLOODER, accepted_ns=1)
    harness.step(6_000)
    assert overtaken(harness, 2) == [[], []]


def test_a_request_that_expires_behind_others_is_marked() -> None:
    harness = flooded(deadline_ns=5_000)
    answered(harness, 2_000)
    harness.step(5_000)
    late = [r for r in harness.clients[0].collect().values() if r.answer.status is Status.EXPIRED]
    assert [reply.answer.overtaken_ns for reply in late] == [2_000]
    found = breakdown(0, 1_000, late[0].answer, 5_000)
    assert (found.queue, found.share, found.cause(1)) == (4_000, 3_000, "share")
