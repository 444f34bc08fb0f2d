"""Nobody starves: not behind a lane that floods, not behind another shape, not behind a model."""

from stand import Stand, eager

SLOTS = 64
CAP = 4
CROWD = 1_000_000


def test_a_lane_that_floods_delays_another_by_what_it_may_have_in_flight_and_no_more() -> None:
    stand = Stand(eager(max_batch_size=CAP), slots=SLOTS).begin()
    flooder, other = stand.clients
    for _ in range(SLOTS):
        flooder.send(b"%d" % CROWD)
    stand.step(1_000)
    other.send(b"7")
    worker, batches = stand.workers[0], 0
    while True:
        task = worker.task()
        if 7 in stand.payloads(task):
            break
        batches += 1
        # What comes in the same turn may be taken in first.
        assert batches <= SLOTS // CAP + 1, "whoever came later was served before"
        worker.finish(task)
        for _ in flooder.collect():
            flooder.send(b"%d" % CROWD)
        stand.step(1_000 + batches)


def test_a_shape_that_floods_does_not_keep_another_waiting() -> None:
    stand = Stand(eager(max_batch_size=CAP), slots=SLOTS).begin()
    flooder, other = stand.clients
    for _ in range(SLOTS):
        flooder.send(b"11111111", key_bytes=8)
    stand.step(1_000)
    other.send(b"22222222", key_bytes=8, accepted_ns=1_000)
    worker, batches = stand.workers[0], 0
    while 22222222 not in stand.payloads(task := worker.task()):
        batches += 1
        assert batches <= SLOTS // CAP + 1, "whoever came later was served before"
        worker.finish(task)
        for _ in flooder.collect():
            flooder.send(b"11111111", key_bytes=8, accepted_ns=1_000 + batches)
        stand.step(1_000 + batches)


def test_a_model_that_is_flooded_and_stuck_costs_another_nothing() -> None:
    flooded = eager(max_batch_size=CAP, name="flooded", workers=(0,))
    other = eager(max_batch_size=CAP, index=1, name="other", workers=(1,))
    stand = Stand(flooded, other, slots=SLOTS).begin()
    for _ in range(SLOTS):
        stand.clients[0].send(b"%d" % CROWD, model=0)
    stand.step(1_000)
    assert len(stand.workers[0].task().references) == CAP
    for number in range(10):
        stand.clients[1].send(b"%d" % number, model=1)
        stand.step(2_000 + number)
        task = stand.workers[1].task()
        assert stand.payloads(task) == [number]
        stand.workers[1].finish(task)
        stand.step(2_000 + number)
        stand.clients[1].collect()
    assert stand.workers[0].tasks() == []
