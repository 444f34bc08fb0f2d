"""Chains in one process: a collector, the workers of every step, and a client, stepped by hand.

The same models, called one after the other, give the expected answers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from segment_fixture import FAR_NS, Array, Client, local_segment, pack, spec, unpack

from ringbatch.engine.collector.collector import Collector
from ringbatch.engine.config.chained import ChainConfig, StepConfig
from ringbatch.engine.models.model import Model, RestartWorker
from ringbatch.engine.supervisor.chains import first_chains
from ringbatch.engine.worker.chain_steps import Steps
from ringbatch.engine.worker.padding import PaddedCodec, Padding, padding
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.engine.worker.tensor_codec import TensorCodec
from ringbatch.engine.worker.worker import Worker
from ringbatch.frontend.codec.result_sizes import MIN_RESULT_BYTES, ResultSizes
from ringbatch.shm.chain import REQUEST
from ringbatch.shm.descriptors import WorkerState, WorkerWords
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.frame import Frame
from ringbatch.shm.layout import PAGE
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.slot import Answer, Status
from ringbatch.shm.tensor import Tensor

Predict = Callable[..., Any]


class Death(RestartWorker):
    """A worker's process ends, which it takes for no failure of its model."""


class Part(NamedTuple):
    """A model that is a step of chains."""

    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    predict: Predict
    workers: int = 1
    more: Mapping[str, Any] = {}
    edges: tuple[int, ...] | None = None


def chain(name: str, *steps: str | StepConfig, returns: Sequence[str] = ()) -> ChainConfig:
    """A chain of steps, each of which may be the name of a model alone."""
    found = (StepConfig(model=step) if isinstance(step, str) else step for step in steps)
    return ChainConfig(name=name, steps=tuple(found), returns=tuple(returns))


def step(model: str, outputs: Mapping[str, str] = {}, **inputs: str) -> StepConfig:
    """A step that says where its inputs come from."""
    return StepConfig(model=model, inputs=tuple(inputs.items()), outputs=tuple(outputs.items()))


def called(
    entries: Sequence[ModelSpec], parts: Mapping[str, Part], of: ModelSpec, given: Any
) -> Any:
    """Return a chain's answer, computed by calling its models one after the other."""
    assert of.chain is not None
    kept: dict[tuple[int, int], Array] = {(REQUEST, n): array for n, array in enumerate(given)}
    outputs: list[Array] = []
    last = len(of.chain.steps) - 1
    for number, at in enumerate(of.chain.steps):
        part = parts[at.model]
        found = part.predict(*(kept[source.step, source.place] for source in at.sources))
        outputs = [*found] if isinstance(found, tuple) else [found]
        for place, output in enumerate(at.keeps):
            kept[number, place] = outputs[output]
    return [
        outputs[source.place] if source.step == last else kept[source.step, source.place]
        for source in of.chain.answers
    ]


class House:
    """Chain of models with its collector, workers and client, in one process.

    Attributes:
        entries: of the model table.
        now_ns: the clock, which only tests move.
        run_ns: time of every run of a model.
    """

    def __init__(
        self, parts: Mapping[str, Part], *chains: ChainConfig, lane_bytes: int = 64 * PAGE
    ) -> None:
        self.parts = dict(parts)
        self.now_ns = 1_000
        self.run_ns = 0
        models, first = [], 0
        self._shaped: dict[str, tuple[Model, Padding | None]] = {}
        self.holders: list[str] = []
        for index, (name, part) in enumerate(parts.items()):
            numbers = tuple(range(first, first + part.workers))
            first += part.workers
            self.holders += [name] * part.workers
            model = Model(tuple(part.inputs), tuple(part.outputs), lambda: None, part.predict)
            shaped = None
            if part.edges is not None:
                model, shaped = padding(model, part.edges, {}, "")
            self._shaped[name] = model, shaped
            own = spec(index, model.inputs, model.outputs, name=name, workers=numbers)
            models.append(replace(own, **part.more))
        self.entries = first_chains(chains, tuple(models))
        self.segment = local_segment(*self.entries, lane_bytes=lane_bytes)
        self.client = Client(self.segment)
        self.collector = self.new_collector()
        self.points: Iterator[bool] = iter(())
        """For each step of a worker, True if the worker dies there."""
        self.batches: list[tuple[str, int]] = []
        """The name of each model that was run, and with how many rows."""
        self.workers = [self.new_worker(number) for number in range(first)]
        self._sent: dict[int, tuple[ModelSpec, int, list[Array]]] = {}
        self.answers: dict[int, list[Array] | tuple[Status, str]] = {}
        """Answers by the number that `send` returned."""
        self.final_answers: dict[int, Answer] = {}
        self._count = 0
        self.step_collector()

    def new_collector(self) -> Collector:
        """Return the next collector, which takes over what the last one has left."""
        # It numbers its batches from there on.
        self.now_ns += 1_000
        self.collector = Collector(self.segment, lambda _: None, lambda _: None, lambda _: None)
        self.collector.start(self.now_ns)
        return self.collector

    def _passes(self) -> None:
        """Pass a point at which a worker may die."""
        if next(self.points, False):
            raise Death

    def new_worker(self, number: int) -> Worker:
        """A process of that number that has loaded its model."""
        name = self.holders[number]
        model, shaped = self._shaped[name]
        engine_slots = Mortal(self, number)

        def predict(*arguments: Any) -> Any:
            self._passes()
            self.batches.append((name, len(arguments[0])))
            found = model.predict(*arguments)
            self.now_ns += self.run_ns
            self._passes()
            return found

        def fresh() -> TensorCodec:
            if shaped is None:
                return TensorCodec(self.segment.memory, model)
            return PaddedCodec(self.segment.memory, model, shaped)

        runner = Runner(
            RunnerSetup(
                replace(model, predict=predict),
                name,
                engine_slots,
                lambda: self.now_ns,
                codec=fresh(),
                place=Steps(self.segment, fresh, engine_slots.store_answer_start).place,
            )
        )
        worker = Worker(
            self.segment, number, runner, engine_slots, self._passes, lambda: self.now_ns
        )
        words = self.segment.layout.worker(number)
        (own,) = (entry for entry in self.entries if number in entry.workers)
        self.segment.words[words + WorkerWords.MODEL] = own.reference
        self.segment.words[words + WorkerWords.STATE] = WorkerState.READY
        points, self.points = self.points, iter(())
        worker.begin()
        self.points = points
        return worker

    def step_collector(self) -> None:
        self.collector.step(self.now_ns)

    def step_worker(self, number: int) -> None:
        """Let a worker take a turn, in which it may die."""
        try:
            self.workers[number].step()
        except Death:
            self.die(number)

    def die(self, number: int, *, killed: bool = True) -> None:
        """Let a worker die, tell the collector, and start another worker."""
        self.segment.worker_ended(number)
        self.collector.worker_died(number, self.now_ns, killed=killed)
        self.workers[number] = self.new_worker(number)

    def model(self, name: str) -> ModelSpec:
        (found,) = (entry for entry in self.entries if entry.name == name)
        return found

    def send(self, name: str, *values: Any, deadline_ns: int = FAR_NS, room: int = 0) -> int:
        """A request to a model or a chain; the number of its answer."""
        of = self.model(name)
        arrays = [np.asarray(v, _dtype(t)) for v, t in zip(values, of.inputs, strict=True)]
        self._count += 1
        self._send(self._count, of, arrays, room or self.room(of, len(arrays[0])), deadline_ns)
        return self._count

    def room(self, of: ModelSpec, rows: int) -> int:
        """Return the bytes that a frontend claims for an answer; many if it cannot know them."""
        frame = Frame(of.outputs)
        sizes = ResultSizes(lambda n: frame.place(n).size if frame.static else None, of.chain)
        return sizes.result_bytes(rows, 0) if sizes.sized else 16 * MIN_RESULT_BYTES

    def _send(
        self, number: int, of: ModelSpec, arrays: list[Array], room: int, deadline_ns: int = FAR_NS
    ) -> None:
        payload, key_bytes = pack(of.inputs, arrays)
        slot = self.client.send(
            payload,
            len(arrays[0]),
            model=of.reference,
            key_bytes=key_bytes,
            result_bytes=room,
            accepted_ns=self.now_ns,
            deadline_ns=deadline_ns,
        )
        self._sent[slot] = of, number, arrays

    def collect(self) -> None:
        """Take the answers that have come; what was too large is sent again."""
        lane = self.client.lane
        for slot in lane.collect():
            if slot not in self._sent:
                lane.release(slot)
                continue
            of, number, arrays = self._sent.pop(slot)
            answer = lane.answer(slot)
            start = lane.result_offset[slot]
            if of.chain is not None:
                start += lane.answer_start(slot)
            data = bytes(self.segment.memory[start : start + answer.size])
            lane.release(slot)
            assert number not in self.answers, "answered twice"
            if answer.status is Status.RESULT_TOO_LARGE:
                self._send(number, of, arrays, answer.size)
                continue
            self.final_answers[number] = answer
            if answer.status is Status.OK:
                self.answers[number] = found = unpack(of.outputs, len(arrays[0]), data)
                self.expect(of, arrays, found)
            else:
                self.answers[number] = answer.status, data.decode(errors="replace")

    def expect(self, of: ModelSpec, arrays: list[Array], found: list[Array]) -> None:
        """Look whether an answer is what the models give, called one after the other."""
        if of.chain is None:
            wanted = self.parts[of.name].predict(*arrays)
            wanted = [*wanted] if isinstance(wanted, tuple) else [wanted]
        else:
            wanted = called(self.entries, self.parts, of, arrays)
        assert [a.tolist() for a in found] == [np.asarray(a).tolist() for a in wanted]

    def cancel(self, number: int) -> None:
        """Cancel a request, as if its client left."""
        (slot,) = (s for s, (_, of, _) in self._sent.items() if of == number)
        del self._sent[slot]
        self.client.lane.cancel(slot)

    def settle(self, turns: int = 200) -> None:
        """Step everybody until every request has its answer."""
        for _ in range(turns):
            self.step_collector()
            for number in range(len(self.workers)):
                self.step_worker(number)
            self.collect()
            if not self._sent and not self.client.lane.in_flight:
                self.step_collector()
                return
        raise AssertionError(f"still without an answer: {[n for _, n, _ in self._sent.values()]}")


class Mortal(EngineSlots):
    """A worker's slots, with points at which its process may end."""

    def __init__(self, house: House, number: int) -> None:
        super().__init__(house.segment, number, lambda _lane: None)
        self._house = house

    def store_first_step_start(self, *arguments: Any) -> None:
        self._house._passes()
        super().store_first_step_start(*arguments)
        self._house._passes()

    def store_answer_start(self, *arguments: Any) -> None:
        self._house._passes()
        super().store_answer_start(*arguments)

    def answer(self, *arguments: Any) -> None:
        self._house._passes()
        super().answer(*arguments)
        self._house._passes()

    def answer_later_step(self, *arguments: Any) -> None:
        self._house._passes()
        super().answer_later_step(*arguments)
        self._house._passes()

    def answer_uniform(self, *arguments: Any) -> None:
        self._house._passes()
        super().answer_uniform(*arguments)

    def flush(self) -> None:
        self._house._passes()
        super().flush()
        self._house._passes()


def _dtype(tensor: Tensor) -> str:
    return "O" if tensor.datatype.name == "BYTES" else tensor.datatype.numpy
