"""GPUs of the workers, for the page and for Prometheus: NVML asked once a second, in a thread.

The thread is there as soon as a worker uses a device. Where NVML does not answer any more, the
figures are left out, and nobody waits for it.
"""

import importlib
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from ringbatch.frontend.metrics.families import Family
from ringbatch.shm.errors import StartupError, how_to_install
from ringbatch.shm.host.background import repeating_thread
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.snapshot.gpus import SLOWED, Gpu, UsedGpu, figures

logger = logging.getLogger("ringbatch.frontend")

LOOK_S: Final = 1.0
STALE_NS: Final = 5_000_000_000
"""The age at which figures are left out."""
_OF_GPU: Final = ("gpu_uuid",)
_FIGURES: Final[tuple[tuple[str, str, Callable[[Gpu], float | None]], ...]] = (
    (
        "utilization",
        "Share of the last period in which the GPU ran anything.",
        lambda gpu: gpu.busy,
    ),
    (
        "memory_used_bytes",
        "Used memory of the GPU, by all processes.",
        lambda gpu: gpu.used_bytes,
    ),
    ("memory_total_bytes", "Memory of the GPU.", lambda gpu: gpu.total_bytes),
    ("temperature_celsius", "Temperature of the GPU.", lambda gpu: gpu.temperature_c),
)


class GpuGauge:
    """Latest figures of GPUs.

    Args:
        start: starts the thread that repeats a turn.
        nvml: imports the module pynvml.
        clock_ns: the monotonic clock.
        sleep: between two turns, in seconds.
    """

    def __init__(
        self,
        start: Callable[[str, Callable[[], bool]], object] = repeating_thread,
        nvml: Callable[[], Any] = lambda: importlib.import_module("pynvml"),
        clock_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._start = start
        self._import = nvml
        self._clock_ns = clock_ns
        self._sleep = sleep
        self._started = False
        self._nvml: Any = None
        self._asked: Collection[int] = ()
        self._latest: tuple[int, Mapping[int, Gpu]] = 0, {}
        """Instant and figures of the latest look, stored at once for the thread that loads them."""

    def latest(self, uuids: Collection[int]) -> Mapping[int, Gpu]:
        """Return the latest figures, of devices that were asked for before; see `Look`."""
        self._asked = uuids
        if not self._started:
            try:
                self._start("the look at GPUs", self._turn)
            except StartupError:
                return {}  # The system has no thread now.
            self._started = True
        found_ns, found = self._latest
        return found if self._clock_ns() - found_ns < STALE_NS else {}

    def _turn(self) -> bool:
        """Look once; return False if NVML cannot be had, for good."""
        if self._nvml is None and not self._opened():
            return False
        asked_ns = self._clock_ns()
        self._latest = asked_ns, figures(self._nvml, self._asked)
        self._sleep(LOOK_S)
        return True

    def _opened(self) -> bool:
        try:
            nvml = self._import()
        except ImportError:
            why = f"the package nvidia-ml-py is not installed; {how_to_install('gpu')}"
            logger.info("figures of GPUs are left out: %s", why)
            return False
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            logger.warning("figures of GPUs are left out: NVML says: %s", error)
            return False
        self._nvml = nvml
        return True


def gpu_metrics(gpus: Collection[UsedGpu], models: Collection[ModelSpec]) -> Iterator[Family]:
    """Yield the metrics of GPUs that workers use; none without one.

    Args:
        gpus: with the workers that use them.
        models: that serve.
    """
    if not gpus:
        return
    for name, help_text, value_of in _FIGURES:
        family = Family("gauge", f"ringbatch_gpu_{name}", help_text, labels=_OF_GPU)
        for own in gpus:
            if (value := value_of(own.gpu)) is not None:
                family.add([own.gpu.uuid], value)
        yield family
    slowed = Family(
        "gauge",
        "ringbatch_gpu_throttled",
        "1 while the GPU runs below its clocks for that reason.",
        labels=[*_OF_GPU, "reason"],
    )
    for own in gpus:
        if own.gpu.slowed is not None:
            for reason in SLOWED:
                slowed.add([own.gpu.uuid, reason], int(reason in own.gpu.slowed))
    yield slowed
    yield _workers(gpus, models)


def _workers(gpus: Collection[UsedGpu], models: Collection[ModelSpec]) -> Family:
    family = Family(
        "gauge",
        "ringbatch_worker_gpu",
        "1 for the GPU of a worker.",
        labels=["model", "version", "worker", *_OF_GPU],
    )
    owners = {number: spec for spec in models for number in spec.workers}
    for own in gpus:
        for number in own.workers:
            if (spec := owners.get(number)) is not None:
                family.add([spec.name, spec.version, str(number), own.gpu.uuid], 1)
    return family
