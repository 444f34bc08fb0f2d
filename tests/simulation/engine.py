"""The whole engine on a `Machine`: real collector, workers and frontends, a stand-in supervisor.

The processes' own main loops are those of the roles, line for line where they are not the very
same code. Of the supervisor there is what it decides: who is told of a death, who is ended with
whom, and what is started again, each after a while.
"""

import functools
import random
from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
from segment_fixture import local_segment
from simulation.machine import MILLISECOND_NS, Bell, EventLoop, Machine, Process
from simulation.memory import Items, Memory, WordItems, watched
from simulation.on_device import PlayedRun
from simulation.served import FORWARDED, ModelServer
from simulation.stepping import Stepping

from ringbatch.engine.collector.account_limits import LimitTable
from ringbatch.engine.collector.collector import Collector
from ringbatch.engine.collector.loop import Loop
from ringbatch.engine.devices.batch_run import BatchRun
from ringbatch.engine.models.model import Model
from ringbatch.engine.worker.chain_steps import Steps
from ringbatch.engine.worker.device_runner import DeviceRunner
from ringbatch.engine.worker.device_worker import DeviceWorker
from ringbatch.engine.worker.finite_outputs import FiniteCodec
from ringbatch.engine.worker.forwarder import Forwarder
from ringbatch.engine.worker.parts_runner import PartsRunner
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.engine.worker.steps_worker import StepsWorker
from ringbatch.engine.worker.tensor_codec import TensorCodec
from ringbatch.engine.worker.worker import Worker
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.shm.account_limits import AccountLimits
from ringbatch.shm.counters import Counters
from ringbatch.shm.descriptors import (
    SlotWords,
    WorkerState,
    WorkerWords,
)
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import PAGE, WORD
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import FLAG_BITS
from ringbatch.shm.wakeup import Wakeup

FRONTENDS: Final = 2
LANES: Final = 2 * FRONTENDS
"""Lanes: as many again as there are frontends, so that one that starts finds one.

The hostile lane is another.
"""
HOSTILE_LANE: Final = LANES
SLOTS, LANE_BYTES = 8, 32 * PAGE
_DUMP_NS: Final = 500 * MILLISECOND_NS
"""Time from SIGABRT to SIGKILL."""
_SOON_NS: Final = 2 * MILLISECOND_NS
_RESTART_NS: Final = 30 * MILLISECOND_NS
Predict = Callable[..., Any]


@functools.cache
def _memory(specs: tuple[ModelSpec, ...]) -> tuple[Segment, memoryview, bytes]:
    """Return the segment that all schedules share, its memory, and the memory's first contents."""
    segment = local_segment(*specs, lanes=LANES + 1, slots=SLOTS, lane_bytes=LANE_BYTES)
    return segment, segment.memory, bytes(segment.memory[: segment.layout.workers_word * WORD])


class Frontend:
    """A place for a frontend; processes come and go in it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: Process | None = None
        self.lane: Lane | None = None
        self.service: Service | None = None
        self.held_back: tuple[int, int] | None = None
        """The first request that its lane has found no room for, and when that was seen."""
        self.inbox: list[Callable[[Service], object]] = []
        """Requests of clients that the process has not read yet, like bytes in its sockets."""

    def deliver(self, request: Callable[[Service], object]) -> None:
        """Deliver a client's bytes to its frontend."""
        self.inbox.append(request)
        if self.process is not None and self.process.asleep:
            self.process.until_ns = 0


class Engine:
    """Simulated engine: its processes, the memory between them, and their restarts.

    Attributes:
        limits: of every account.

    Args:
        machine: runs them.
        chance: the schedule's random numbers.
        specs: the models that it serves.
        predict: of a model's name, what the model does.
        stepping: of the name of one in steps, the model.
        lost: told of a frontend whose process has ended.
        load_fails: whether the process that is started for a worker ends before it is ready.
        loads: see `simulation.memory.watched`.
        limits: see above.
        lead_ns: how long before the end of a batch workers want the next one, whose models are on a
            device then; 0 if there is no device.
        dies_of, copies_ns: of the values of a batch on a device, see `PlayedRun`.
    """

    def __init__(
        self,
        machine: Machine,
        chance: random.Random,
        specs: tuple[ModelSpec, ...],
        predict: Callable[[str], Predict],
        stepping: Callable[[str], Stepping],
        lost: Callable[[Frontend], object],
        load_fails: Callable[[int], bool],
        *,
        loads: bool,
        limits: AccountLimits,
        lead_ns: int,
        dies_of: Callable[[Any], bool],
        copies_ns: Callable[[Any], int],
    ) -> None:
        self.machine = machine
        self._lead_ns = lead_ns
        self._dies_of, self._copies_ns = dies_of, copies_ns
        self.limits = limits
        self._chance = chance
        self._predict = predict
        self._stepping = stepping
        self._lost = lost
        self._load_fails = load_fails
        self.specs = specs
        self._model_of = {number: model for model in specs for number in model.workers}
        segment, raw, beginning = _memory(specs)
        np.frombuffer(raw, np.uint8)[:] = 0
        raw[: len(beginning)] = beginning
        self.raw = words = raw.cast("Q")
        self._first_slot_word = segment.layout.slots_word
        self._first_done = self._first_slot_word + SlotWords.DONE
        self._honest_words = range(
            self._first_slot_word, self._first_slot_word + LANES * SLOTS * SlotWords.SIZE
        )
        counters = range(segment.layout.counters_word, segment.layout.submissions_word)
        segment.words = watched(machine, words, self._check_store, counters, loads=loads)
        segment.memory = cast(memoryview, Memory.of(machine, raw))
        segment.lock_lane = self._lock_lane  # type: ignore[method-assign]
        self.segment = segment
        segment.read_models()
        self._owners: dict[int, Process | None] = {HOSTILE_LANE: None}
        self.lane_bells = [Bell(machine) for _ in range(LANES + 1)]
        self.worker_bells = [Bell(machine) for _ in self._model_of]
        self.collector_bell = Bell(machine)
        self.collector: Collector | None = None
        self._inbox: list[tuple[int, bool]] = []
        """Deaths that the collector has yet to read, and whether each was by SIGKILL."""
        self._said: list[Callable[[], object]] = []
        """Messages of collectors that the supervisor has yet to read."""
        self._dead_workers: dict[int, bool] = {}
        """Dead workers, until a collector reports that their requests are reclaimed.

        The value says whether SIGKILL ended the worker.
        """
        self._vacant: set[int] = set()
        """Dead workers whose requests are reclaimed, and that are not started again yet."""
        self.workers: dict[int, Process] = {}
        self.slots: dict[int, EngineSlots] = {}
        """Slots as each ready worker holds them."""
        self.parts_runners: dict[int, PartsRunner] = {}
        """Runner of each worker whose model yields, or works in steps."""
        self.stepping: dict[int, Stepping] = {}
        """Model of each worker whose model works in steps."""
        self.most_places = max(model.places for model in specs)
        """Most places of any model so far."""
        self._pending = 0
        self.observer: Callable[[str, int, int, int], object] | None = None
        """Shown the role and the number of a process, and which word is to have which value,
        before it stores that."""
        self.deaths = 0
        """Deaths of workers that a collector has heard of."""
        self.sigkills = 0
        """Workers that were ended with SIGKILL."""
        self.life = 0
        """Number of the present collector, one after the other."""
        self.frontends = [Frontend(number) for number in range(FRONTENDS)]
        for frontend in self.frontends:
            self._start_frontend(frontend)
        self._later(0, self._start_collector)
        for number in self._model_of:
            self._later(0, functools.partial(self._start_worker, number))

    def was_ready(self, number: int) -> bool:
        """Return whether a worker of that number has ended after it was ready."""
        return bool(self.raw[self.segment.layout.worker(number) + WorkerWords.ENDS])

    def publish(self, specs: tuple[ModelSpec, ...]) -> None:
        """Publish another model table, as the supervisor does."""
        self.most_places = max(self.most_places, *(model.places for model in specs))
        self.segment.model_table.publish(specs)
        self.collector_bell.poke()

    def role(self, process: Process) -> str:
        """Return the kind of a process."""
        return process.name.partition(" ")[0]

    def kill(self, process: Process, *, sigkill: bool = True) -> None:
        """End a process, and let the supervisor find out, and whether it was with SIGKILL."""
        if not process.alive:
            return
        self.machine.kill(process)
        self.sigkills += sigkill and self.role(process) == "worker"
        self._dead(process, sigkill)

    def _check_store(self, number: int, value: int) -> None:
        """Check that no answer is written to a slot that does not wait for that very answer."""
        if self.observer is not None:
            process = self.machine.current
            assert process is not None
            own = process.name.split()[1:]
            self.observer(self.role(process), int(own[0]) if own else 0, number, value)
        if number in self._honest_words and (number - self._first_slot_word) % SlotWords.SIZE == (
            SlotWords.DONE
        ):
            asked = self.raw[number - SlotWords.DONE] >> FLAG_BITS
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
            # Mostly another stands by, which has the dead one's lock at once.
            self._later(self._chance.choice([0, _SOON_NS, _RESTART_NS]), self._start_collector)
        else:
            frontend = self.frontends[int(process.name.split()[1])]
            frontend.process = frontend.lane = frontend.service = None
            frontend.inbox.clear()
            self._lost(frontend)
            self._later(_RESTART_NS, lambda: self._start_frontend(frontend))

    def _after(self, most_ns: int, call: Callable[[], object]) -> None:
        self.machine.after(int(self._chance.random() * most_ns), call)

    def _later(self, most_ns: int, call: Callable[[], object]) -> None:
        """Schedule a call as `_after` does; until then nothing is at rest."""
        self._pending += 1

        def due() -> None:
            self._pending -= 1
            call()

        self._after(most_ns, due)

    @property
    def unreclaimed(self) -> int:
        """Deaths that not everybody knows of yet, and what follows them."""
        return self._pending + len(self._dead_workers)

    def _worker_ended(self, number: int, killed: bool) -> None:
        for of_number in (self.workers, self.slots, self.parts_runners, self.stepping):
            of_number.pop(number, None)
        self.segment.worker_ended(number)
        self._dead_workers[number] = killed
        self._send_death(number)

    def _send_death(self, number: int) -> None:
        self.machine.note(f"the collector is told of the death of worker {number}")
        self._inbox.append((number, self._dead_workers[number]))
        self.collector_bell.poke()

    def _heard(self, call: Callable[[], object]) -> None:
        """Deliver a collector's message a while later, in the order of sending."""
        self._said.append(call)
        self._later(_SOON_NS, lambda: self._said.pop(0)())

    def _collector_ready(self, inbox: list[tuple[int, bool]]) -> None:
        self._inbox = inbox
        for number in self._dead_workers:
            self._send_death(number)

    def _reclaimed(self, number: int) -> None:
        if self._dead_workers.pop(number, None) is not None:
            self._vacant.add(number)
            self._later(_RESTART_NS, functools.partial(self._start_worker, number))

    def _hung(self, process: Process | None) -> None:
        if process is not None and process.alive:
            self.machine.note(f"{process.name} is taken for hung")
            stopped = process.stopped_until_ns > self.machine.now_ns
            limit_ns = _DUMP_NS if stopped else _SOON_NS
            self._later(limit_ns, lambda: self.kill(process))

    def _start_collector(self) -> None:
        self.life += 1
        self.machine.spawn("collector", self._collect)

    def _start_worker(self, number: int) -> None:
        self._vacant.discard(number)
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
            self._ring_worker,
            end_worker=self._end_worker,
        )
        collector.gate.set(LimitTable(self.limits))
        collector.start(machine.now_ns)
        self.collector = collector
        counters = Counters(segment.words, segment.layout.collector_counters())
        loop = Loop(collector, cast(Wakeup, self.collector_bell), counters)
        inbox: list[tuple[int, bool]] = []
        self._heard(lambda: self._collector_ready(inbox))
        while True:
            while inbox:
                number, killed = inbox.pop(0)
                self.deaths += 1
                collector.worker_died(number, machine.now_ns, killed=killed)
                machine.step()
                self._heard(functools.partial(self._reclaimed, number))
            loop.turn()

    def _ring_worker(self, number: int) -> None:
        assert number not in self._vacant, f"worker {number} is given something, whom nobody is"
        self.worker_bells[number].wake()

    def _end_worker(self, number: int) -> None:
        process = self.workers.get(number)
        self._heard(lambda: self._hung(process))

    def _work(self, number: int) -> None:
        segment, machine = self.segment, self.machine
        model = self._model_of[number]
        machine.sleep(int(self._chance.random() * 10 * MILLISECOND_NS))
        if self._load_fails(number):
            process = self.workers[number]
            machine.after(0, lambda: self.kill(process, sigkill=False))
            machine.sleep(None)
        engine_slots = EngineSlots(segment, number, lambda lane: self.lane_bells[lane].wake())
        memory = cast(Memory, segment.memory)
        engine_slots._dones = cast(Any, WordItems(segment.words, self._first_done, SlotWords.SIZE))
        engine_slots._details = cast(Any, Items(memory, engine_slots._details))
        runner = self._runner(number, engine_slots, lambda batch: role.runs_again(batch))
        self.slots[number] = engine_slots
        if isinstance(runner, PartsRunner):
            self.parts_runners[number] = runner
        ring, clock_ns = self.collector_bell.wake, machine.monotonic_ns
        make: type[Worker] = StepsWorker if model.places else Worker
        lead_ns = 0
        if isinstance(runner, DeviceRunner):
            make, lead_ns = DeviceWorker, self._lead_ns
        role = make(segment, number, cast(Any, runner), engine_slots, ring, clock_ns)
        bell = self.worker_bells[number]
        offset = segment.layout.worker(number)
        segment.words[offset + WorkerWords.MODEL] = model.reference
        segment.words[offset + WorkerWords.LEAD_NS] = lead_ns
        segment.words[offset + WorkerWords.STATE] = WorkerState.READY
        role.begin()
        while True:
            if isinstance(role, StepsWorker):
                self.stepping[number].go_on(role)
            else:
                role.step()
            bell.wait(role.wait_s())

    def _pause(self, seconds: float) -> None:
        self.machine.sleep(int(seconds * 1e9))

    def _runner(
        self, number: int, engine_slots: EngineSlots, run_again: Callable[[int], object]
    ) -> Runner | Forwarder:
        model, clock_ns = self._model_of[number], self.machine.monotonic_ns
        if model.places:
            stepping = self.stepping[number] = self._stepping(model.name)
            return stepping.runner_of(model, engine_slots, clock_ns, self._pause, run_again)
        predict = self._predict(model.name)
        if model is FORWARDED:
            return Forwarder(ModelServer(predict), model.name, engine_slots, clock_ns, run_again)
        loaded = Model(model.inputs, model.outputs, lambda: None, predict, in_parts=model.in_parts)

        def fresh() -> TensorCodec:
            return TensorCodec(engine_slots.memory, loaded)

        make: Callable[..., Runner] = Runner
        codec: TensorCodec | None = fresh() if model.typed else None
        if model.in_parts:
            make = functools.partial(PartsRunner, pause=self._pause)
        elif self._lead_ns and model.typed:
            device = PlayedRun(self.machine, self._chance, predict, self._dies_of, self._copies_ns)
            make = functools.partial(DeviceRunner, on_device=cast(BatchRun, device))
            codec = FiniteCodec(engine_slots.memory, loaded)
        return make(
            RunnerSetup(
                loaded,
                model.name,
                engine_slots,
                clock_ns,
                codec=codec,
                run_again=run_again,
                place=Steps(self.segment, fresh, engine_slots.store_answer_start).place,
            )
        )

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
