"""Frontend, workers and collector of answers in parts, for `interleave`.

The lane, its reader, the worker's runner and the collector's hand for dead batches are the real
ones. Each part is one word, a number. So a frontend that reads a part before its bytes, or bytes of
a later part, gets a wrong number.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

from interleave import Actor, Scenario, Watch

from ringbatch.engine.collector.dead_batches import DeadBatches
from ringbatch.engine.collector.dispatcher import Dispatcher
from ringbatch.engine.collector.models import Batch, Worker
from ringbatch.engine.collector.quarantine import Quarantine
from ringbatch.engine.models.model import Model
from ringbatch.engine.worker.codec import Codec
from ringbatch.engine.worker.parts_runner import PATIENCE_NS, PartsRunner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.engine_slots import BatchMark, EngineSlots, Request
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import ALIGNMENT, PAGE, WORD, Layout
from ringbatch.shm.model_spec import ModelSpec, dumps
from ringbatch.shm.parts import PartReader, PartWriter
from ringbatch.shm.ring import Consumer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Reason, State, Status

MODEL = ModelSpec(0, "m", "python", (), (), 1, 0, 1, "eager", (0,))
MARK = BatchMark(7, 1, Reason.IDLE, 1)
WORKER, COLLECTOR = 0, 1
DEADLINE_NS = 1 << 62
ONE_PART = 2 * ALIGNMENT
"""Result memory for one part."""
WITH_GAP = 3 * ALIGNMENT
"""Result memory with a rest too small for another part, so that a gap is skipped before each."""
TWO_PARTS = 4 * ALIGNMENT


class Stepwise:
    """Stand-in for a `Struct`: one store for each of its words."""

    words: memoryview

    def pack_into(self, memory: memoryview, offset: int, *values: int) -> None:
        for number, value in enumerate(values, offset // WORD):
            self.words[number] = value


stepwise = Stepwise()


class WholeWords:
    """Stand-in for a segment's bytes: a store of a part is one of its word."""

    def __setitem__(self, where: slice, part: bytes) -> None:
        if part:
            stepwise.words[where.start // WORD] = int.from_bytes(part, "little")


@cache
def layout() -> Layout:
    table_bytes = len(dumps((MODEL,)))
    return Layout(
        lanes=1, slots=2, lane_bytes=PAGE, workers=1, models=1, model_table_bytes=table_bytes
    )


def is_private(*, published: bool) -> Callable[[int], bool]:
    """Return a test for words that are no steps: counters, and those without a role for parts.

    If the request is `published` before the actors begin, nobody stores to its header any more, so
    that loads of it are no steps either.
    """
    where = layout()
    slot = where.slot(0)
    steps = {SlotWords.PARTS_TAKEN, SlotWords.PARTS_END, SlotWords.DONE}
    if not published:
        steps |= {SlotWords.CONTROL, SlotWords.ROWS, SlotWords.PARTS_OF, SlotWords.PARTS_FROM}
    private = {slot + word for word in range(SlotWords.SIZE) if word not in steps}
    private |= {*range(where.counters_word, where.submissions_word)}
    return private.__contains__


@dataclass
class Wrong:
    """The parts of a world that a wrong version replaces."""

    reader: type[PartReader] = PartReader
    lane: type[Lane] = Lane
    slots: type[EngineSlots] = EngineSlots
    runner: type[PartsRunner] = PartsRunner
    batches: type[DeadBatches] = DeadBatches
    writer: type[PartWriter] = PartWriter
    frontend: "type[Frontend] | None" = None


@dataclass
class World:
    """The memory of one run, and a record of its actors' deeds."""

    watch: Watch
    wrong: Wrong
    read: list[int] = field(default_factory=list)
    """Numbers that the frontend has read, of the latest request."""
    written: int = 0
    """Parts that the model has yielded."""
    ends: list[Status] = field(default_factory=list)
    ran_again: bool = False
    """True if a run began for a request of which a part was out."""

    def __post_init__(self) -> None:
        self.segment = Segment.local(layout(), (MODEL,))
        self.raw = self.segment.words
        self.segment.words = stepwise.words = self.watch(self.segment.words)
        self.words = self.segment.words
        self.slot_word = self.segment.layout.slot(0)

    def slots(self, producer: int) -> EngineSlots:
        slots = self.wrong.slots(self.segment, producer, lambda lane: None)
        slots.memory = cast(memoryview, WholeWords())
        return slots

    def frontend(self) -> "Frontend":
        return (self.wrong.frontend or Frontend)(self)

    def part_is_out(self) -> bool:
        """Return what stands in memory, without a step."""
        first = self.slot_word
        return self.raw[first + SlotWords.PARTS_END] != self.raw[first + SlotWords.PARTS_FROM]


class Frontend:
    """A lane, its reader of parts, and the request in its one slot."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lane = world.wrong.lane(world.segment, 0, lambda: None)
        self.reader = world.wrong.reader(self.lane)
        self.waits = False

    def publish(self, result_bytes: int, *, in_parts: bool = True) -> bool:
        slot = self.lane.claim(WORD, result_bytes, 0)
        if slot is None:
            return False
        self.world.read.clear()
        if in_parts:
            self.reader.open(slot)
        self.lane.publish(slot, 0, 1, 0, DEADLINE_NS, WORD)
        self.opened(slot)
        self.lane.submit()
        self.waits = True
        return True

    def opened(self, slot: int) -> None:
        """Do nothing more for a request that is published."""

    def collect(self) -> None:
        """Read what is out, as the gateway has its waiters do."""
        found = self.lane.collect()
        for slot in found:
            assert self.waits, "an answer that nobody waits for"
            self.waits = False
            self.read_parts(slot)
            status, _, _ = self.lane.outcome(slot)
            self.lane.release(slot)
            self.world.ends.append(status)
            if status is Status.OK:
                assert len(self.world.read) == self.world.written, "the end without all parts"
        slots = [*self.lane.parted]
        self.lane.parted.clear()
        for slot in slots:
            self.read_parts(slot)

    def read_parts(self, slot: int) -> None:
        read = self.world.read
        while (part := self.reader.next(slot)) is not None:
            start, size = part
            assert size == WORD, "not the part's size"
            number = self.world.words[start // WORD]
            self.reader.take(slot, size)
            read.append(number)
            assert number == len(read), "not the parts in order"


class Numbers:
    """Codec whose answers are one word: the number that the model yields."""

    uniform = False

    def __init__(self, world: World) -> None:
        self._words = world.words

    def read(self, requests: list[Request]) -> tuple[list[Request], list[Request], Any]:
        return requests, [], (len(requests),)

    def check(self, returned: object, rows: list[int], spare: int = 0) -> Any:
        return returned

    def kept(self, results: Any) -> Any:
        return results

    def joined(self, parts: Sequence[Any]) -> Any:
        return parts[-1]

    def parts(self, results: int, requests: list[Request]) -> list[bytes]:
        return [results.to_bytes(WORD, "little")] * len(requests)

    def write(self, results: Any, requests: list[Request]) -> list[int]:
        for request in requests:
            if request.result_capacity >= WORD:
                self._words[request.result_offset // WORD] = results
        return [WORD] * len(requests)


class Held:
    """The rest of a collector, for `DeadBatches`."""

    def __init__(self, slots: EngineSlots) -> None:
        self._slots = slots
        self.limits = SimpleNamespace(drop=lambda number: None)
        self.again: list[Request] = []

    def fail(
        self, request: Request, status: Status, text: str, mark: BatchMark, now_ns: int
    ) -> None:
        self._slots.fail(request, status, text, mark, now_ns)

    def forget(self, requests: list[Request]) -> None:
        """Do nothing, as there are no queues."""

    def answer_cancelled(self, references: list[int], now_ns: int) -> None:
        """Do nothing, as no request is cancelled."""

    def run_again(self, groups: list[list[Request]]) -> None:
        self.again += [request for group in groups for request in group]


class Process:
    """A worker process with a model that yields 1, 2 and so on."""

    def __init__(self, world: World, parts: int) -> None:
        self._now_ns = 1
        self.slots = world.slots(WORKER)

        def predict(rows: int) -> Iterator[int]:
            world.ran_again |= world.part_is_out()
            world.written = 0
            for number in range(1, parts + 1):
                world.written = number
                yield number

        self._runner = world.wrong.runner(
            RunnerSetup(
                Model((), (), lambda: None, predict, in_parts=True),
                "m",
                self.slots,
                lambda: self._now_ns,
                codec=cast(Codec, Numbers(world)),
            ),
            pause=self._pause,
        )

    def _pause(self, _seconds: float) -> None:
        self._now_ns += PATIENCE_NS

    def run(self, references: list[int]) -> None:
        self._runner.run(references, MARK, 1)
        self.slots.flush()


def take_back(world: World, references: list[int]) -> list[int]:
    """Take a dead worker's batch back as the collector does; return what is to run again."""
    slots = world.slots(COLLECTOR)
    held = Held(slots)
    requests = slots.read_all(references, MARK, lambda: 1)
    model = SimpleNamespace(
        run_again=held.run_again,
        times=SimpleNamespace(cycle_ns=1),
        spec=SimpleNamespace(batch_timeout_ns=1),
    )
    worker = SimpleNamespace(
        number=WORKER, model=model, places=0, lead_ns=0, batches=[Batch(MARK, requests)]
    )
    batches = world.wrong.batches(
        slots, {}, Quarantine(world.segment.memory), cast(Dispatcher, held)
    )
    batches.take_back(cast(Worker, worker), 1, hung=False, killed=True)
    slots.flush()
    return [request.ref for request in held.again]


def found_in_slots(world: World, references: list[int]) -> list[int]:
    """Do as a new collector that knows no dead worker: dispatch again what has no answer."""
    slots = world.slots(COLLECTOR)
    again = [ref for ref in references if not slots.repeat(ref)]
    slots.flush()
    return again


TakesBack = Callable[[World, list[int]], list[int]]


def submitted(world: World) -> list[int]:
    """Take what the frontend has submitted."""
    where = world.segment.layout
    return Consumer(world.words, where.submission_ring(0), where.slots).take()


def write_plainly(world: World, slots: EngineSlots, batch: list[int], parts: int) -> None:
    """Write the parts that find room at once, in as few steps as can be."""
    world.ran_again |= world.part_is_out()
    (request,) = slots.read_all(batch, MARK, lambda: 1)
    writer = slots.part_writer(request, MARK.batch)
    for number in range(1, parts + 1):
        if not writer.write(number.to_bytes(WORD, "little")):
            break
        world.written = number
        slots.post_part(request.ref)
        slots.flush()


def end_plainly(slots: EngineSlots, batch: list[int]) -> None:
    """Write the end of a request's parts."""
    (ref,) = batch
    slots.answer(ref, Status.OK, 0, MARK, 1)
    slots.flush()


def finish(world: World, frontend: Frontend) -> None:
    """Collect the rest, and check that the slot comes back."""
    for _ in range(3):
        frontend.collect()
    assert not frontend.waits, "lost"
    assert frontend.lane.in_flight == 0, "a slot is lost"
    assert frontend.lane.claim(PAGE // 2, 0, 0) is not None, "memory is lost"


def streaming(
    parts: int,
    result_bytes: int,
    *,
    takes_back: TakesBack | None = None,
    wrong: Wrong | None = None,
    earlier: bool = False,
    plain: bool = False,
    stalls: bool = False,
) -> Scenario:
    """A worker that runs one request, beside its frontend.

    Args:
        parts: parts that the model yields.
        result_bytes: of the request.
        takes_back: what the collector does once the worker is killed; None if it never is. The
            frontend then looks once, and beside a real runner only at the end.
        wrong: versions that replace the real ones.
        earlier: whether the slot had another request with a part before.
        plain: whether a few lines stand for the runner, as store buffers have many orders.
        stalls: whether the model stops behind these parts, and goes on once they are read.
    """

    def scenario(watch: Watch) -> tuple[list[Actor], Callable[[], None]]:
        world = World(watch, wrong or Wrong())
        frontend = world.frontend()
        if earlier:
            frontend.publish(TWO_PARTS)
            Process(world, 1).run(submitted(world))
            frontend.collect()
            assert world.ends.pop() is Status.OK
        frontend.publish(result_bytes)
        batch = submitted(world)
        process = Process(world, parts)

        def run() -> None:
            if plain:
                write_plainly(world, process.slots, batch, parts)
                if not stalls:
                    end_plainly(process.slots, batch)
            else:
                process.run(batch)

        def replace() -> None:
            assert takes_back is not None
            again = takes_back(world, batch)
            if again and plain:
                write_plainly(world, world.slots(WORKER), again, parts)
                end_plainly(world.slots(WORKER), again)
            elif again:
                Process(world, parts).run(again)

        def ask() -> None:
            if takes_back and not plain:
                return
            for _ in range(1 if takes_back else 2):
                frontend.collect()

        def check() -> None:
            if stalls:
                frontend.collect()
                assert len(world.read) == world.written, "a part that the frontend never looks at"
                end_plainly(process.slots, batch)
            finish(world, frontend)
            assert not world.ran_again, "run though a part is out"
            (end,) = world.ends
            # A frontend that does not come in time gets the parts that found room.
            expected = {Status.OK, Status.CORRUPT, *([Status.CUT_OFF] if takes_back else [])}
            assert end in expected, f"ended with {end.name}"

        actors = [Actor("worker", run, replace if takes_back else None), Actor("frontend", ask)]
        return actors, check

    return scenario


def asking(*, wrong: Wrong | None = None, dies: bool = False) -> Scenario:
    """A frontend that asks for parts, beside a worker that looks whether it does.

    If it `dies`, its lane's next owner asks for a whole answer.
    """

    def scenario(watch: Watch) -> tuple[list[Actor], Callable[[], None]]:
        world = World(watch, wrong or Wrong())
        owners = [world.frontend()]
        slots = world.slots(WORKER)
        wishes: list[bool] = []

        def ask() -> None:
            owners[0].publish(TWO_PARTS)

        def ask_for_all() -> None:
            owners.append(world.frontend())
            owners[-1].publish(TWO_PARTS, in_parts=False)

        def serve() -> None:
            # A new collector finds requests in their slots, even before they are submitted.
            for ref, state in slots.published():
                if state is State.PUBLISHED:
                    wishes.append(slots.wants_parts(ref))
                if state is not State.FREE:
                    slots.answer(ref, Status.OK, 0, MARK, 1)
            slots.flush()

        def check() -> None:
            owners[-1].collect()
            for _ in range(2):
                serve()
                owners[-1].collect()
            finish(world, owners[-1])
            assert wishes, "nothing asked"
            assert wishes[-1] is (len(owners) == 1), "the wish is another request's"

        actors = [Actor("frontend", ask, ask_for_all if dies else None), Actor("worker", serve)]
        return actors, check

    return scenario
