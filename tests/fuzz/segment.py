"""A lane in wrong hands beside an honest one, in one engine.

The hostile owner writes anything anywhere in what is its own: its slots, the holder's half of them
as well, its rings with both their positions, its payload memory. The collector and the worker must
go on, and every request of the honest lane must get its own answer.
"""

import random
from typing import Final

from segment_fixture import Client, local_segment, pack, spec, unpack
from simulation.hostile import HostileLane

from ringbatch.engine.collector.collector import Collector
from ringbatch.engine.models.model import Model
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.engine.worker.worker import Worker
from ringbatch.shm import layout as at
from ringbatch.shm.descriptors import CounterWords, SlotWords
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.layout import PAGE, WORD, ring_size
from ringbatch.shm.slot import Status
from ringbatch.shm.tensor import Tensor

HONEST, HOSTILE = 0, 1
SLOTS: Final = 8
_X: Final = Tensor("x", "INT64", [])
_SPEC: Final = spec(0, [_X], [_X], max_batch_size=8)
_STEP_NS: Final = 1_000_000
_ROUNDS: Final = 6


def live_beside_hostility(seed: int) -> int:
    """A few rounds of both; how many honest requests were answered.

    Raises:
        AssertionError: one was not, or not with its own values.
        Exception: the engine gave in.
    """
    chance = random.Random(seed)
    segment = local_segment(_SPEC, lanes=2, slots=SLOTS, lane_bytes=4 * PAGE)
    client = Client(segment, HONEST)
    hostile = HostileLane(segment, segment.words, HOSTILE, chance)
    collector = Collector(
        segment,
        lambda _lane: None,
        lambda _worker: None,
        end_worker=lambda _worker: None,
    )
    collector.start(1)
    model = Model((_X,), (_X,), lambda: None, lambda x: x + 1)
    engine_slots = EngineSlots(segment, 0, lambda _lane: None)
    runner = Runner(RunnerSetup(model, "m", engine_slots, lambda: 0))
    worker = Worker(segment, 0, runner, engine_slots, lambda: None, lambda: 0)
    worker.begin()
    spans = _own_words(segment.layout)
    now_ns = _STEP_NS
    answered = 0
    for _ in range(_ROUNDS):
        now_ns += _STEP_NS
        sent = {}
        for _ in range(chance.randrange(SLOTS)):
            number = chance.getrandbits(40)
            payload, _ = pack([_X], [[number]])
            sent[client.send(payload, accepted_ns=now_ns)] = number
        for _ in range(chance.randrange(1, 6)):
            hostile.act(now_ns)
        for _ in range(chance.randrange(6)):
            span = chance.choice(spans)
            segment.words[chance.choice(span)] = chance.choice(
                [0, 1, 1 << 63, (1 << 64) - 1, chance.getrandbits(64)]
            )
        for _ in range(2 * SLOTS):
            collector.step(now_ns)
            worker.step()
        for slot, reply in client.collect().items():
            assert reply.answer.status is Status.OK, reply.answer
            ((value,),) = unpack([_X], 1, reply.data)
            assert value == sent.pop(slot) + 1, "the answer is another's"
            answered += 1
        assert not sent, f"not answered: {sent}"
    return answered


def _own_words(layout: at.Layout) -> list[range]:
    """The words of the hostile lane, by what they are."""
    size = ring_size(layout.slots)
    answers = ring_size(layout.completion_words)
    starts = [
        (layout.submission_ring(HOSTILE), size),
        (layout.lane_counters(HOSTILE), CounterWords.SIZE),
        (layout.lane_payload_byte(HOSTILE) // WORD, layout.lane_bytes // WORD),
        *((layout.completion_ring(HOSTILE, n), answers) for n in range(layout.workers + 1)),
        *((layout.slot(HOSTILE * SLOTS + slot), SlotWords.SIZE) for slot in range(SLOTS)),
    ]
    return [range(start, start + length) for start, length in starts]
