"""Life of the real supervisor with many models that have no worker until a request comes.

The question is whether each request is served in its turn.

Each model is asked again and again, by one client that waits for its answer and pauses. Meanwhile
its worker is let go. Nothing goes wrong.
"""

import random
import signal
import statistics
from functools import partial
from pathlib import Path
from typing import Final

from simulation.house import House, PlayedSignals
from simulation.kernel import S, Violation
from simulation.mutation import Mutant
from simulation.played import Cast, WorkerProcess

from ringbatch.engine.config.settings import Config, ModelConfig, ServerConfig
from ringbatch.engine.supervisor import autoscaler
from ringbatch.engine.supervisor.autoscaler import LEAST_PLACES, LOOK_NS, Autoscaler
from ringbatch.engine.supervisor.scaling import MOST_TIMES
from ringbatch.engine.supervisor.supervisor import Supervisor
from ringbatch.shm.counters import ModelCounter
from ringbatch.shm.descriptors import ModelWords

MUTANTS: Final = {
    "the first of the file wins": Mutant(
        autoscaler, "in_turn", "(not queued.starts, queued.since_ns)", "not queued.starts"
    ),
    "the longest wait comes last": Mutant(
        autoscaler, "in_turn", "queued.since_ns)", "-queued.since_ns)"
    ),
    "each look begins to wait anew": Mutant(Autoscaler, "_queued", "lasts else", "False else"),
    "downs before ups": Mutant(
        autoscaler,
        "in_turn",
        "not queued.starts, queued.since_ns",
        "queued.starts, queued.since_ns",
    ),
    "no downs beside as many ups as there are places": Mutant(
        autoscaler, "in_turn", "elif let_go and free <= 0", "elif free <= 0"
    ),
    "one at a time": Mutant(Autoscaler, "step", "self._places", "1"),
    "a place that is free is noticed by the next look": Mutant(
        Autoscaler, "_conclude", "self.next_ns = now_ns", "pass"
    ),
}
"""The autoscaler with one thing wrong at a time, which the life of 64 models must find."""
TIMES_THE_MEDIAN: Final = 3
"""Bound on a request's wait for a worker, as a multiple of the median."""
_LOOK_S: Final = LOOK_NS / S
_NOTICED_NS: Final = 3 * LOOK_NS // 2
"""A request has been seen by then."""
_FILLED_NS: Final = S // 10
"""And a place that is free is taken by then."""
_POLL_S: Final = 0.05
_DOWN_AFTER_S: Final = 0.5
_PAUSES_S: Final = (2.0, 3.0)


class Crowd:
    """Life of many such models, which `run` lets pass.

    Attributes:
        waits_s: of the requests that waited for a worker.

    Args:
        seed: decides everything.
        models: number of models.
        lasts_s: time for which requests come, from when the engine serves.
    """

    def __init__(self, seed: int, models: int, lasts_s: float) -> None:
        self.waits_s: list[float] = []
        self._lasts_s = lasts_s
        self._chance = chance = random.Random(f"crowd {seed}")
        self._cast = cast = Cast(chance)
        cast.haste = 0.2
        self._kernel = cast.kernel
        self._house = House(cast)
        self._house.has_room = True
        self._config = config_of(models)
        self._models = models
        self._since_ns: dict[int, int] = {}
        """Instant since when a request waits for a worker, by model."""
        self._unused_ns = [0] * models
        """Since when each model has had nothing to do; 0 while it is asked."""
        self._begun_ns = self._free_ns = 0

    def run(self) -> None:
        """Play the life.

        Raises:
            Violation: a request waits too long, or a worker that nobody needs stays.
        """
        with self._house.installed():
            supervisor = Supervisor(self._config, lambda: self._config)
            self._kernel.after(_POLL_S, self._await_start)
            try:
                supervisor.run()
            finally:
                supervisor.frontends.close()
        self._house.leave()
        assert len(self.waits_s) > self._models, "hardly any request waits"
        most_s = TIMES_THE_MEDIAN * statistics.median(self.waits_s)
        if (longest_s := max(self.waits_s)) > most_s:
            raise Violation(f"a request waits {longest_s:.2f} s, and half of all {most_s / 3:.2f}")

    def _await_start(self) -> None:
        """Wait until all first workers are let go, so that no request finds a worker at first."""
        if self._house.orders is None or any(self._ready(n) for n in range(self._models)):
            self._kernel.after(_POLL_S, self._await_start)
            return
        self._begun_ns = self._kernel.now_ns
        for number in range(self._models):
            self._kernel.after(self._chance.uniform(0.0, _PAUSES_S[1]), partial(self._ask, number))
        self._kernel.after(_POLL_S, self._look)

    @property
    def _passed_s(self) -> float:
        return (self._kernel.now_ns - self._begun_ns) / S

    def _ask(self, number: int) -> None:
        """Send a request for a model."""
        if self._passed_s > self._lasts_s:
            return
        self._unused_ns[number] = 0
        segment = self._cast.segment
        assert segment is not None
        segment.words[segment.layout.model_counters(number) + ModelCounter.ROWS] += 1
        if self._ready(number):
            self._pause(number)
        else:
            self._since_ns[number] = self._kernel.now_ns

    def _pause(self, number: int) -> None:
        """End a request's wait, and schedule the client's next request."""
        self._unused_ns[number] = self._kernel.now_ns
        self._kernel.after(self._chance.uniform(*_PAUSES_S), partial(self._ask, number))

    def _look(self) -> None:
        """Answer requests whose model has a worker now, and look whether any waits in vain."""
        now_ns = self._kernel.now_ns
        for number, since_ns in list(self._since_ns.items()):
            if self._ready(number):
                del self._since_ns[number]
                self.waits_s.append((now_ns - since_ns) / S)
                self._pause(number)
        self._expect_places_used()
        self._expect_workers_let_go()
        settled = self._passed_s > self._lasts_s and not any(map(self._ready, range(self._models)))
        if settled and not self._since_ns:
            signals = self._house.signals
            assert isinstance(signals, PlayedSignals)
            signals.come(signal.SIGTERM)
        else:
            self._kernel.after(_POLL_S, self._look)

    def _expect_places_used(self) -> None:
        """Assert that, if requests wait, as many workers are being started as may be at once."""
        processes = self._cast.living(WorkerProcess)
        starting = sum(not process.serves for process in processes)
        held = {process.path for process in processes}
        now_ns = self._kernel.now_ns
        waiting = [
            number
            for number, since_ns in self._since_ns.items()
            if now_ns - since_ns > _NOTICED_NS and str(_path(number)) not in held
        ]
        if starting >= LEAST_PLACES or not waiting:
            self._free_ns = now_ns
        elif now_ns - self._free_ns > _FILLED_NS:
            raise Violation(
                f"requests for {len(waiting)} models wait, and {starting} workers are being started"
            )

    def _expect_workers_let_go(self) -> None:
        """Check that unused models lose their workers, at least one at each look.

        A model that is used again soon afterwards is kept for longer the next time.
        """
        most_s = MOST_TIMES * _DOWN_AFTER_S + _LOOK_S * (self._models + 4)
        for number, since_ns in enumerate(self._unused_ns):
            unused_s = (self._kernel.now_ns - since_ns) / S if since_ns else 0.0
            if unused_s > most_s and self._ready(number):
                raise Violation(f"nobody has asked model {number} for {unused_s:.1f} s")

    def _ready(self, number: int) -> bool:
        """Return whether the model of that index has a ready worker."""
        segment = self._cast.segment
        assert segment is not None
        return segment.words[segment.layout.model(number) + ModelWords.READY] > 0


def _path(number: int) -> Path:
    return Path(f"/m{number}.py")


def config_of(models: int) -> Config:
    server = ServerConfig(
        port=0,
        hang_timeout_s=24,
        frontends=1,
        client_lanes=0,
        max_request_bytes=4096,
        lane_bytes=1 << 16,
        max_in_flight=64,
    )
    found = [
        ModelConfig(
            name=f"m{number}",
            path=_path(number),
            runtime="python",
            workers=(0, 1),
            scale_down_after_s=_DOWN_AFTER_S,
        )
        for number in range(models)
    ]
    return Config(server=server, models=tuple(found))
