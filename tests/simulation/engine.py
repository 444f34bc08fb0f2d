"""The whole engine on a `Machine`: real collector, workers and frontends, a stand-in supervisor.

The processes' own main loops are those of the roles, line for line where they are not the very
same code. Of the supervisor there is what it decides: who is told of a death, who is ended with
whom, and what is started again, each after a while.
"""

import functools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final, cast
from unittest.mock import patch

import numpy as np
from rig import local_segment, spec
from simulation.machine import MILLISECOND_NS, SECOND_NS, Bell, EventLoop, Machine, Process

from ringbatch.engine import collector_loop, tensors, worker
from ringbatch.engine.collector import Collector
from ringbatch.engine.collector_loop import Loop
from ringbatch.engine.model import Model
from ringbatch.engine.runner import Runner
from ringbatch.engine.worker import RETRY_S, Worker
from ringbatch.frontend import service as service_module
from ringbatch.frontend.gateway import Gateway
from ringbatch.frontend.service import Service
from ringbatch.frontend.v1 import V1Codec
from ringbatch.shm import alike
from ringbatch.shm.counters import Counters
from ringbatch.shm.holder import Holder
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import DONE, PAGE, SLOT_SIZE, WORD
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import FLAG_BITS
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.wakeup import Wakeup

FRONTENDS: Final = 2
LANES: Final = 2 * FRONTENDS
"""As many again as there are frontends, so that one that starts finds one; the hostile one is
another."""
HOSTILE_LANE: Final = LANES
SLOTS, LANE_BYTES = 8, 32 * PAGE
X: Final = Tensor("x", "INT64", [])
TYPED: Final = spec(
    0,
    [X],
    [X],
    name="typed",
    max_batch_size=8,
    workers=(0, 1),
    timeout_ns=2 * SECOND_NS,
    batch_timeout_ns=300 * MILLISECOND_NS,
)
UNTYPED: Final = spec(
    1,
    name="untyped",
    max_batch_size=3,
    max_latency_ns=5 * MILLISECOND_NS,
    policy="fixed",
    workers=(2,),
    timeout_ns=3 * SECOND_NS,
    batch_timeout_ns=400 * MILLISECOND_NS,
)
SPECS: Final = (TYPED, UNTYPED)
MODEL_OF: Final = {number: model for model in SPECS for number in model.workers}
_DUMP_NS: Final = 500 * MILLISECOND_NS
"""From SIGABRT to SIGKILL."""
_SOON_NS: Final = 2 * MILLISECOND_NS
_RESTART_NS: Final = 30 * MILLISECOND_NS
_FEW: Final = 3
"""Requests up to which a worker looks at each; batches here are small, and it must do both."""
_DONE_WORD: Final = DONE // WORD
_SLOT_WORDS: Final = SLOT_SIZE // WORD

Predict = Callable[..., Any]


@functools.cache
def _memory() -> tuple[Segment, memoryview, bytes]:
    """One segment for all schedules, its words, and how it begins."""
    segment = local_segment(*SPECS, lanes=LANES + 1, slots=SLOTS, lane_bytes=LANE_BYTES)
    return segment, segment.words, bytes(segment.memory[: segment.layout.workers_offset])


class Host:
    """The machine that the engine's modules believe to run on."""

    machine: Machine


host = Host()


@contextmanager
def installed() -> Iterator[None]:
    """The engine's modules have the host's time and processes, instead of this process's."""
    time = SimpleNamespace(monotonic_ns=lambda: host.machine.now_ns)
    system = SimpleNamespace(getpid=lambda: host.machine.getpid())
    with (
        patch.object(collector_loop, "time", time),
        patch.object(worker, "os", system),
        patch.object(alike, "FEW", _FEW),
        patch.object(tensors, "FEW", _FEW),
        patch.object(service_module, "V1Codec", _v1_codec),
        patch.object(service_module, "V2Codec", lambda _spec, _regions: None),
    ):
        yield


_v1_codec = functools.cache(V1Codec)
"""They are pure, and take longer to make than a schedule to run."""


class Frontend:
    """A place for a frontend; processes come and go in it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: Process | None = None
        self.lane: Lane | None = None
        self.service: Service | None = None
        self.inbox: list[Callable[[Service], object]] = []
        """What clients want of the process, as bytes that wait in its sockets."""

    def deliver(self, request: Callable[[Service], object]) -> None:
        """A client's bytes have come."""
        self.inbox.append(request)
        if self.process is not None and self.process.asleep:
            self.process.until_ns = 0


class Engine:
    """The processes, the memory between them, and who starts whom again.

    Args:
        machine: runs them.
        chance: the schedule's random numbers.
        predict: of a model's spec, what the model does.
        lost: told of a frontend whose process has ended.
    """

    def __init__(
        self,
        machine: Machine,
        chance: random.Random,
        predict: Callable[[str], Predict],
        lost: Callable[[Frontend], object],
    ) -> None:
        self.machine = machine
        self._chance = chance
        self._lost = lost
        segment, words, beginning = _memory()
        np.frombuffer(segment.memory, np.uint8)[:] = 0
        segment.memory[: len(beginning)] = beginning
        self.raw = words
        self._first_slot_word = segment.layout.slots_offset // WORD
        self._honest_words = range(
            self._first_slot_word, self._first_slot_word + LANES * SLOTS * _SLOT_WORDS
        )
        segment.words = machine.watched(words, self._check_store)
        segment.lock_lane = self._lock_lane  # type: ignore[method-assign]
        self.segment = segment
        self._owners: dict[int, Process | None] = {HOSTILE_LANE: None}
        self.lane_bells = [Bell(machine) for _ in range(LANES + 1)]
        self.worker_bells = [Bell(machine) for _ in MODEL_OF]
        self.collector_bell = Bell(machine)
        self.collector: Collector | None = None
        self.collector_process: Process | None = None
        self._deaths: list[tuple[int, bool]] = []
        self.workers: dict[int, Process] = {}
        self.unburied = 0
        """Deaths that not everybody knows of yet."""
        self.deaths = 0
        """Of workers, as far as a collector has heard of them."""
        self.life = 0
        """Which of the collectors, one after the other, it is."""
        self._models = {
            model.name: Model(model.inputs, model.outputs, lambda: None, predict(model.name))
            for model in SPECS
        }
        self.frontends = [Frontend(number) for number in range(FRONTENDS)]
        for frontend in self.frontends:
            self._start_frontend(frontend)
        self._start_engine(0)

    def role(self, process: Process) -> str:
        """What kind of process it is."""
        return process.name.partition(" ")[0]

    def kill(self, process: Process, *, sigkill: bool = True) -> None:
        """End a process, and let the supervisor find out, and whether it was with SIGKILL."""
        if not process.alive:
            return
        self.machine.kill(process)
        self._dead(process, sigkill)

    def _check_store(self, number: int, value: int) -> None:
        """No answer is written to a slot that does not wait for that very answer."""
        if number in self._honest_words and (number - self._first_slot_word) % _SLOT_WORDS == (
            _DONE_WORD
        ):
            asked = self.raw[number - _DONE_WORD] >> FLAG_BITS
            known = self.raw[number] >> FLAG_BITS
            given = value >> FLAG_BITS
            assert known < given, f"generation {given} is answered again"
            assert given == asked, f"generation {given} is answered in a slot that has {asked}"

    def _lock_lane(self, lane: int) -> bool:
        owner = self._owners.get(lane)
        if lane == HOSTILE_LANE or (owner is not None and owner.alive):
            return False
        self._owners[lane] = self.machine.current
        return True

    # The supervisor's decisions

    def _dead(self, process: Process, killed: bool) -> None:
        role = self.role(process)
        if role == "worker":
            number = int(process.name.split()[1])
            self._later(_SOON_NS, lambda: self._worker_ended(number, killed))
        elif role == "collector":
            self.collector = None
            life = self.life
            self.unburied += 1
            self._after(_SOON_NS, lambda: self._collector_ended(life))
        else:
            frontend = self.frontends[int(process.name.split()[1])]
            frontend.process = frontend.lane = frontend.service = None
            frontend.inbox.clear()
            self._lost(frontend)
            self.unburied += 1
            self._after(_RESTART_NS, lambda: self._frontend_ended(frontend))

    def _after(self, most_ns: int, call: Callable[[], object]) -> None:
        self.machine.after(int(self._chance.random() * most_ns), call)

    def _later(self, most_ns: int, call: Callable[[], object]) -> None:
        """As `_after`, unless a new collector is started before that."""
        life = self.life
        self.unburied += 1

        def due() -> None:
            if life == self.life:
                self.unburied -= 1
                call()

        self._after(most_ns, due)

    def _worker_ended(self, number: int, killed: bool) -> None:
        self.workers.pop(number, None)
        if self.collector_process is None:
            self._later(_RESTART_NS, functools.partial(self._start_worker, number))
        elif self.collector_process.alive:
            self.machine.note(f"the collector is told of the death of worker {number}")
            self._deaths.append((number, killed))
            self.unburied += 1
            self.collector_bell.poke()

    def _collector_ended(self, life: int) -> None:
        assert life == self.life, "only its death begins another"
        self.collector_process = None
        for process in self.workers.values():
            if process.alive:
                self.machine.kill(process)
        self._start_engine(_RESTART_NS)

    def _frontend_ended(self, frontend: Frontend) -> None:
        self.unburied -= 1
        self._start_frontend(frontend)

    def _hung(self, number: int) -> None:
        process = self.workers.get(number)
        if process is not None and process.alive:
            self.machine.note(f"worker {number} is taken for hung")
            stopped = process.stopped_until_ns > self.machine.now_ns
            limit_ns = _DUMP_NS if stopped else _SOON_NS
            self._later(limit_ns, lambda: self.kill(process))

    def _start_engine(self, most_ns: int) -> None:
        self.life += 1
        self._deaths.clear()
        self.workers.clear()
        self.unburied = sum(frontend.process is None for frontend in self.frontends)
        self._later(most_ns, self._start_collector)
        for number in MODEL_OF:
            self._later(most_ns, functools.partial(self._start_worker, number))

    def _start_collector(self) -> None:
        self.collector_process = self.machine.spawn("collector", self._collect)

    def _start_worker(self, number: int) -> None:
        self.workers[number] = self.machine.spawn(
            f"worker {number}", functools.partial(self._work, number)
        )

    def _start_frontend(self, frontend: Frontend) -> None:
        frontend.process = self.machine.spawn(
            f"frontend {frontend.number}", functools.partial(self._serve, frontend)
        )

    # What the processes do

    def _collect(self) -> None:
        segment, machine = self.segment, self.machine
        collector = Collector(
            segment,
            lambda lane: self.lane_bells[lane].wake(),
            lambda number: self.worker_bells[number].wake(),
            first_batch=machine.now_ns,
            alive=lambda pid: any(process.pid == pid for process in machine.processes),
            end_worker=lambda number: self._later(_SOON_NS, lambda: self._hung(number)),
        )
        self.collector = collector
        counters = Counters(segment.words, segment.layout.collector_counters())
        loop = Loop(collector, cast(Wakeup, self.collector_bell), counters)
        while True:
            while self._deaths:
                number, killed = self._deaths.pop(0)
                self.deaths += 1
                collector.worker_died(number, machine.now_ns, killed=killed)
                self.unburied -= 1
                self._later(_RESTART_NS, functools.partial(self._start_worker, number))
            loop.turn()

    def _work(self, number: int) -> None:
        segment, machine = self.segment, self.machine
        model = MODEL_OF[number]
        machine.sleep(int(self._chance.random() * 10 * MILLISECOND_NS))
        holder = Holder(segment, number, lambda lane: self.lane_bells[lane].wake())
        holder._dones = _OneByOne(holder._dones, segment, machine)  # type: ignore[assignment]
        runner = Runner(
            self._models[model.name],
            model.name,
            holder,
            machine.monotonic_ns,
            run_again=lambda batch: role.runs_again(batch),
        )
        ring, clock_ns = self.collector_bell.wake, machine.monotonic_ns
        role = Worker(segment, number, runner, holder, ring, clock_ns)
        bell = self.worker_bells[number]
        role.begin()
        while True:
            role.step()
            bell.wait(RETRY_S if holder.delayed else None)

    def _serve(self, frontend: Frontend) -> None:
        segment, machine = self.segment, self.machine
        lane = Lane.attach(segment, self.collector_bell.wake)
        bell = self.lane_bells[lane.index]
        loop = EventLoop(machine, bell)
        gateway = Gateway(lane, cast(Any, loop), machine.monotonic_ns)
        gateway.listen(cast(Any, bell))
        frontend.service = service = Service(segment, gateway, machine.monotonic_ns)
        frontend.lane = lane
        while True:
            while frontend.inbox:
                frontend.inbox.pop(0)(service)
            loop.run_once()
            if not frontend.inbox:
                loop.sleep()


class _OneByOne:
    """DONE words of many slots, stored one after the other, so that a death can come between."""

    def __init__(self, dones: Any, segment: Segment, machine: Machine) -> None:
        self._dones = dones
        self._words = segment.words
        self._first = segment.layout.slots_offset // WORD + _DONE_WORD

    def __setitem__(self, slots: Any, values: Any) -> None:
        for slot, value in zip(slots.tolist(), values.tolist(), strict=True):
            self._words[self._first + slot * _SLOT_WORDS] = value
