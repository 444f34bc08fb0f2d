"""Nobody starves: not behind a lane that floods, not behind another shape, not behind a model."""

from collector_harness import CollectorHarness, eager

SLOTS = 64
CAP = 4
CROWD = 1_000_000


def test_a_lane_that_floods_delays_another_by_what_it_may_have_in_flight_and_no_more() -> None:
    harness = CollectorHarness(eager(max_batch_size=CAP), slots=SLOTS).begin()
    flooder, other = harness.clients
    for _ in range(SLOTS):
        flooder.send(b"%d" % CROWD)
    harness.step(1_000)
    other.send(b"7")
    worker, batches = harness.workers[0], 0
    while True:
        task = worker.task()
        if 7 in harness.payloads(task):
            break
        batches += 1
        # What comes in the same turn may be taken in first.
        assert batches <= SLOTS // CAP + 1, "whoever came later was served before"
        worker.finish(task)
        for _ in flooder.collect():
            flooder.send(b"%d" % CROWD)
        harness.step(1_000 + batches)


def test_a_shape_that_floods_does_not_keep_another_waiting() -> None:
    harness = CollectorHarness(eager(max_batch_size=CAP), slots=SLOTS).begin()
    flooder, other = harness.clients
    for _ in range(SLOTS):
        flooder.send(b"11111111", key_bytes=8)
    harness.step(1_000)
    other.send(b"22222222", key_bytes=8, accepted_ns=1_000)
    worker, batches = harness.workers[0], 0
    while 22222222 not in harness.payloads(task := worker.task()):
        batches += 1
        assert batches <= SLOTS // CAP + 1, "whoever came later was served before"
        worker.finish(task)
        for _ in flooder.collect():
            flooder.send(b"11111111", key_bytes=8, accepted_ns=1_000 + batches)
        harness.step(1_000 + batches)


def test_a_model_that_is_flooded_and_stuck_costs_another_nothing() -> None:
    flooded = eager(max_batch_size=CAP, name="flooded", workers=(0,))
    other = eager(max_batch_size=CAP, index=1, name="other", workers=(1,))
    harness = CollectorHarness(flooded, other, slots=SLOTS).begin()
    for _ in range(SLOTS):
        harness.clients[0].send(b"%d" % CROWD, model=0)
    harness.step(1_000)
    assert len(harness.workers[0].task().references) == CAP
    for number in range(10):
        harness.clients[1].send(b"%d" % number, model=1)
        harness.step(2_000 + number)
        task = harness.workers[1].task()
        assert harness.payloads(task) == [number]
        harness.workers[1].finish(task)
        harness.step(2_000 + number)
        harness.clients[1].collect()
    assert harness.workers[0].tasks() == []
