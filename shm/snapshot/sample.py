"""Samples of an engine: its state and counters at one instant. Two samples show what happened."""

from dataclasses import dataclass, field
from typing import Final

from ringbatch.shm.account import PriorityClass
from ringbatch.shm.model_counters import Counted
from ringbatch.shm.model_spec import SERVING, ModelSpec, titled
from ringbatch.shm.restarts import Role, restarts_of
from ringbatch.shm.scalings import Scalings
from ringbatch.shm.segment import Segment
from ringbatch.shm.snapshot.gpus import Look, UsedGpu, unseen, used_gpus
from ringbatch.shm.snapshot.occupancy import Occupancy, OfModel
from ringbatch.shm.snapshot.slow_requests import SlowRequest, slow_requests
from ringbatch.shm.snapshot.status import EngineStatus, read
from ringbatch.shm.tallies import CODE_LABELS, Ends, ends_of

_OK: Final = "200"
_NORMAL: Final = PriorityClass.NORMAL.name.lower()
_ROLES: Final = {
    Role.COLLECTOR: "a collector",
    Role.FRONTEND: "a frontend",
    Role.ARBITER: "Gunicorn's arbiter",
    Role.GRPC_FRONTEND: "a frontend for gRPC",
    Role.CONTROL: "the control process",
}
"""Names of the roles for people."""
_SCALED: Final = {
    "up": "more workers: ",
    "down": "fewer workers: ",
    "held": "no more workers: ",
}
"""Words for a decision, before its reason."""


@dataclass(frozen=True, slots=True)
class ClassSample:
    """Requests of one class for one model, counted since the engine started.

    Attributes:
        parts: the requests, or parts of requests, that were dispatched.
        wait_ns: their time in the queue, summed.
        run_ns: their time inside the model.
        refused: the requests that were answered with 429 or 503.
    """

    parts: int
    wait_ns: int
    run_ns: int
    refused: int


NO_REQUESTS: Final = ClassSample(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ModelSample:
    """Sample of one version of a model. Counts are since the engine started.

    Attributes:
        title: its name and version for people.
        state: of its entry.
        ready: workers that take batches.
        running: workers that are configured to run.
        spares: configured beside these.
        limits: as of `ModelSpec`.
        scalings: decisions on the number of workers, by what was decided and why.
        under_way: requests without an answer.
        answer_ms: what a request that comes now is expected to take; 0 if nothing waits.
        reasons: batches by what they were closed for.
        failed: batches in which the model failed for a request.
        retried: requests that were run again.
        codes: ends of requests by their status; empty for one that does not serve, whose name and
            version may be counted for another that does.
        times: ends with status 200, by the buckets of `ringbatch.shm.tallies`.
        sizes: batches by the instances in them, by what such sizes are called.
        deaths: workers that ended and were started again, by why they ended.
        classes: its requests by class, if any has another class than normal; empty as `codes`.
        in_parts: whether it answers in parts.
        firsts: first parts by the time to them, in buckets as `times`.
        gaps: further parts by the time since the one before.
    """

    title: str
    state: str
    ready: int
    running: int
    spares: int
    under_way: OfModel
    answer_ms: float
    reasons: dict[str, int]
    failed: int
    retried: int
    codes: dict[str, int]
    times: tuple[int, ...]
    sizes: dict[str, int]
    deaths: dict[str, int]
    limits: tuple[int, int] | None = None
    scalings: dict[str, int] = field(default_factory=dict)
    classes: dict[str, ClassSample] = field(default_factory=dict)
    in_parts: bool = False
    firsts: tuple[int, ...] = ()
    gaps: tuple[int, ...] = ()

    @property
    def parts(self) -> int:
        """Parts of answers that were passed on."""
        return sum(self.firsts) + sum(self.gaps)


@dataclass(frozen=True, slots=True)
class WorkerSample:
    """Sample of a worker. Counts are since the engine started.

    Attributes:
        number: its number.
        model: the title of what it holds.
        state: the state that it has published, with its process.
        pid: id of the process; 0 without one.
        batches, rows, run_ns: run, in them, and meanwhile inside the model.
    """

    number: int
    model: str
    state: str
    pid: int
    batches: int
    rows: int
    run_ns: int


@dataclass(frozen=True, slots=True)
class LaneSample:
    """Sample of a lane: its use of slots and payload memory.

    Attributes:
        slots: slots of requests without an answer.
        memory_bytes: memory of these requests and of their answers.
    """

    slots: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Sample:
    """Sample of an engine at one instant.

    Attributes:
        at_ns: when, on the monotonic clock.
        segment: the name of its memory, which no other engine ever has.
        engine: its name.
        pid: of its supervisor.
        ready_ns: since when it is ready; 0 if it starts or stops.
        stops: whether it is to stop.
        models: those of its table.
        workers: those that these have.
        counts: of the engine as a whole, by what they are called.
        restarts: of processes other than workers, by what they were and why they ended.
        collectors: how many processes were the collector, one after the other.
        lanes: all of them, those of clients last.
        client_lanes: how many of them are for clients.
        slots: of each lane.
        lane_bytes: of payload memory, of each.
        slowest: the requests that took longest lately, the longest first.
        gpus: the GPUs that workers use and NVML sees.
    """

    at_ns: int
    segment: str
    engine: str
    pid: int
    ready_ns: int
    stops: bool
    models: tuple[ModelSample, ...]
    workers: tuple[WorkerSample, ...]
    counts: dict[str, int]
    restarts: dict[str, int]
    collectors: int
    lanes: tuple[LaneSample, ...]
    client_lanes: int
    slots: int
    lane_bytes: int
    slowest: tuple[SlowRequest, ...]
    gpus: tuple[UsedGpu, ...] = ()


def sample(segment: Segment, now_ns: int, look: Look = unseen) -> Sample:
    """Return a sample of an attached segment.

    Args:
        segment: attached.
        now_ns: the time on the monotonic clock.
        look: at GPUs.
    """
    status = read(segment)
    specs = titled(segment.models)
    occupancy = Occupancy(segment, now_ns)
    ends = ends_of(segment, {s.account for s in specs.values() if s.state == SERVING})
    models = tuple(
        _model(segment, title, spec, status, occupancy.of(spec), ends.get(spec.account))
        for title, spec in specs.items()
    )
    titles = {number: title for title, spec in specs.items() for number in spec.workers}
    workers = tuple(
        WorkerSample(
            number, titles[number], status.states[number], status.pids[number], *_counted(counts)
        )
        for number, counts in status.workers.items()
        if number in titles
    )
    counts = {
        "workers died": status.collector["worker_deaths"],
        "hung": status.collector["workers_hung"],
        "quarantined": status.collector["quarantined"],
        "refused": status.frontends["refused"],
        "late": status.frontends["timeouts"],
        "given up": status.frontends["cancelled"],
    }
    return Sample(
        at_ns=now_ns,
        segment=segment.name,
        engine=segment.engine,
        pid=segment.pid,
        ready_ns=segment.ready_ns,
        stops=segment.stopping or segment.draining,
        models=models,
        workers=workers,
        counts=counts,
        restarts={
            f"{_ROLES[role]} {reason.name.lower()}": count
            for (role, reason), count in restarts_of(segment).items()
        },
        collectors=status.collector["starts"],
        lanes=tuple(
            LaneSample(slots, int(memory_bytes))
            for slots, memory_bytes in zip(occupancy.slots, occupancy.memory_bytes, strict=True)
        ),
        client_lanes=segment.layout.client_lanes,
        slots=segment.layout.slots,
        lane_bytes=segment.layout.lane_bytes,
        slowest=slow_requests(segment, now_ns),
        gpus=used_gpus(segment, look),
    )


def _model(
    segment: Segment,
    title: str,
    spec: ModelSpec,
    status: EngineStatus,
    own: OfModel,
    ends: Ends | None,
) -> ModelSample:
    serves = spec.state == SERVING and ends is not None
    counted = status.models[title]
    by_code: dict[str, int] = {}
    if serves and ends is not None:
        sums = [sum(column) for column in zip(*ends.codes, strict=True)]
        by_code = dict(zip((_OK, *CODE_LABELS), sums, strict=True))
    return ModelSample(
        title=title,
        state=spec.state,
        ready=counted.ready,
        running=counted.workers,
        spares=counted.spares,
        under_way=own,
        answer_ms=counted.answer_ms,
        reasons=counted.batches,
        failed=counted.failed,
        retried=counted.retried,
        codes=by_code,
        times=tuple(ends.times) if serves and ends is not None else (),
        sizes=counted.batch_rows,
        deaths=counted.deaths,
        limits=spec.limits,
        scalings=_scalings(segment, spec) if serves and spec.most else {},
        classes=_classes(segment, spec, ends) if serves and ends is not None else {},
        in_parts=spec.in_parts,
        firsts=tuple(ends.first_parts) if serves and ends is not None else (),
        gaps=tuple(ends.gaps) if serves and ends is not None else (),
    )


def _classes(segment: Segment, spec: ModelSpec, ends: Ends) -> dict[str, ClassSample]:
    counted = Counted(segment.words, segment.layout, spec.account).classes
    found = {
        name: ClassSample(own.parts, own.wait_ns, own.run_ns, sum(ends.refused[name]))
        for name, own in counted.items()
    }
    used = [name for name, own in found.items() if own.parts or own.refused]
    return {} if used in ([], [_NORMAL]) else found


def _scalings(segment: Segment, spec: ModelSpec) -> dict[str, int]:
    counts = Scalings(segment.words, segment.layout, spec.account).counts()
    return {_SCALED[cause.direction] + cause.words: count for cause, count in counts.items()}


def _counted(counts: dict[str, int]) -> tuple[int, int, int]:
    return counts["batches"], counts["rows"], counts["run_ns"]
