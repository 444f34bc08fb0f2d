"""A runner with a model of the test's, fed with batches of two lanes."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from segment_fixture import Client, Reply, local_segment, pack, spec, unpack

from ringbatch.engine.models.model import Model
from ringbatch.engine.worker.failure_detection import Failing
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.engine_slots import BatchMark, EngineSlots
from ringbatch.shm.layout import WORD
from ringbatch.shm.ring import Consumer
from ringbatch.shm.slot import SLOT_MASK, Reason, Status
from ringbatch.shm.tensor import Tensor

X = Tensor("x", "FP32", [2])
Y = Tensor("y", "FP32", [2])
TEXT = Tensor("x", "BYTES", [])
MARK = BatchMark(batch=77, rows=9, reason=Reason.FULL, dispatched_ns=5)
BEGAN_NS = 6


class Harness:
    """A runner with a model of the test's, and two lanes of clients."""

    def __init__(
        self,
        predict: Callable[..., Any],
        inputs: Sequence[Tensor] = (),
        outputs: Sequence[Tensor] = (),
        *,
        batched: bool = True,
        failing: Failing | None = None,
    ) -> None:
        self.now_ns = 123
        self.calls: list[int] = []
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.segment = local_segment(spec(0, inputs, outputs), lanes=2)
        self.clients = [Client(self.segment, lane) for lane in range(2)]
        self.wakes: list[int] = []
        self.engine_slots = EngineSlots(self.segment, 0, self.wakes.append)
        layout = self.segment.layout
        self.submitted = [
            Consumer(self.segment.words, layout.submission_ring(lane), layout.slots)
            for lane in range(2)
        ]

        def counting(*arguments: Any) -> Any:
            self.calls.append(len(arguments[0]))
            return predict(*arguments)

        model = Model(self.inputs, self.outputs, lambda: None, counting)
        self.runner = Runner(
            RunnerSetup(
                model, "m", self.engine_slots, lambda: self.now_ns, batched=batched, failing=failing
            )
        )

    def send(self, payload: bytes, rows: int = 1, lane: int = 0, **more: Any) -> int:
        """Publish a request, and return its reference."""
        self.clients[lane].send(payload, rows, **more)
        (ref,) = self.submitted[lane].take()
        return ref

    def send_tensor(self, *values: Any, rows: int = 1, lane: int = 0, **more: Any) -> int:
        payload, key_bytes = pack(self.inputs, values)
        return self.send(payload, rows, lane, key_bytes=key_bytes, **more)

    def send_json(self, text: str, rows: int = 1, lane: int = 0, **more: Any) -> int:
        return self.send(text.encode(), rows, lane, **more)

    def spoil(self, ref: int, field: int, value: int) -> None:
        """Overwrite a word of a slot, as a hostile frontend may at any time."""
        start = self.segment.layout.slot(ref & SLOT_MASK)
        self.segment.words[start + field] = value

    def poke(self, ref: int, offset: int, word: int) -> None:
        """Overwrite a word of a slot's payload, as a hostile frontend may."""
        first = self.segment.layout.slot(ref & SLOT_MASK)
        position = self.segment.words[first + SlotWords.REQUEST_OFFSET] + offset
        self.segment.memory[position : position + WORD] = word.to_bytes(WORD, "little")

    def run(self, *references: int) -> list[Reply]:
        """Run the batch; the replies in the order of the references."""
        self.runner.run(list(references), MARK, BEGAN_NS)
        self.engine_slots.flush()
        return self.replies(*references)

    def replies(self, *references: int) -> list[Reply]:
        """The replies that have come, in the order of the references."""
        slots = self.segment.layout.slots
        replies = [client.collect() for client in self.clients]
        found = [
            replies[(ref & SLOT_MASK) // slots].pop((ref & SLOT_MASK) % slots) for ref in references
        ]
        assert replies == [{}, {}], "nobody else got an answer"
        return found

    def value(self, reply: Reply, rows: int = 1) -> Any:
        assert reply.answer.status is Status.OK, reply.data
        if not self.outputs:
            return json.loads(reply.data)
        return unpack(self.outputs, rows, reply.data)[0].tolist()


def identity(x: Any) -> Any:
    """A model that answers what it was given."""
    return x


def failed(reply: Reply, status: Status, words: str) -> bool:
    """Return whether a request has failed with this status and these words."""
    return reply.answer.status is status and words in reply.data.decode()
