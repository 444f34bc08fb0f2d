"""GPUs of the workers: what a played NVML tells of them, and where it is shown."""

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest
from played_nvml import GIB, UUID_A, UUID_B, Board, PlayedNvml, spelled
from samples import FIRST
from segment_fixture import local_segment, spec

from ringbatch.engine.report.frame import page
from ringbatch.engine.report.gpus import look
from ringbatch.engine.report.status import describe
from ringbatch.frontend.metrics.families import encoded
from ringbatch.frontend.metrics.gpus import LOOK_S, STALE_NS, GpuGauge, gpu_metrics
from ringbatch.frontend.page.feed import state
from ringbatch.shm import device_notes
from ringbatch.shm.descriptors import WorkerState, WorkerWords
from ringbatch.shm.errors import StartupError
from ringbatch.shm.segment import Segment
from ringbatch.shm.snapshot.gpus import Gpu, UsedGpu, figures, unseen, used_gpus
from ringbatch.shm.snapshot.sample import sample
from ringbatch.shm.snapshot.status import read

A, B = spelled(UUID_A), spelled(UUID_B)
MIG = spelled(UUID_B, "MIG")
WHOLE = Gpu(A, 0.87, 12 * GIB, 80 * GIB, 61, ())


def engine(*uuids: int) -> Segment:
    """A model with a worker for each UUID, all ready."""
    segment = local_segment(spec(0, name="a", workers=tuple(range(len(uuids)))))
    for number, uuid in enumerate(uuids):
        segment.words[segment.layout.worker(number) + WorkerWords.STATE] = WorkerState.READY
        device_notes.write(segment, number, f"cuda:{number}: a note", uuid)
    return segment


def test_a_uuid_and_a_note_stand_beside_each_other() -> None:
    segment = engine(UUID_A, 0, UUID_B, (1 << 128) - 1)
    read_of = [device_notes.read_uuid(segment, number) for number in range(4)]
    assert read_of == [UUID_A, 0, UUID_B, (1 << 128) - 1]
    assert [device_notes.read(segment, number)[:8] for number in (0, 3)] == ["cuda:0: ", "cuda:3: "]
    device_notes.write(segment, 0, "a" * 2000)
    assert device_notes.read_uuid(segment, 1) == 0
    assert (device_notes.read_uuid(segment, 0), device_notes.read(segment, 1)[:7]) == (0, "cuda:1:")


@pytest.mark.parametrize(
    ("lacks", "found"),
    [
        (set(), WHOLE),
        ({"busy"}, replace(WHOLE, busy=None)),
        ({"memory"}, replace(WHOLE, used_bytes=None, total_bytes=None)),
        ({"celsius"}, replace(WHOLE, temperature_c=None)),
        ({"bits"}, replace(WHOLE, slowed=None)),
        ({"busy", "memory", "celsius", "bits"}, Gpu(A)),
    ],
)
def test_a_figure_that_nvml_lacks_is_left_out_alone(lacks: set[str], found: Gpu) -> None:
    nvml = PlayedNvml({A: Board(lacks=frozenset(lacks))})
    assert figures(nvml, [UUID_A]) == {UUID_A: found}


@pytest.mark.parametrize(
    ("bits", "slowed"),
    [
        (0x1 | 0x2 | 0x100, ()),
        (0x4, ("sw_power_cap",)),
        (0x8 | 0x40, ("hw_slowdown", "hw_thermal_slowdown")),
        (0x10 | 0x20 | 0x80, ("sync_boost", "sw_thermal_slowdown", "hw_power_brake_slowdown")),
    ],
)
def test_idleness_and_chosen_clocks_are_no_throttling(bits: int, slowed: tuple[str, ...]) -> None:
    found = figures(PlayedNvml({A: Board(bits=bits)}), [UUID_A])
    assert found[UUID_A].slowed == slowed


def test_of_a_mig_instance_memory_is_its_own_and_the_rest_its_boards() -> None:
    lacks = frozenset({"busy", "celsius", "bits"})
    instance = Board(used=GIB, total=10 * GIB, parent=A, lacks=lacks)
    nvml = PlayedNvml({A: Board(celsius=70, bits=0x4), MIG: instance})
    found = Gpu(MIG, None, GIB, 10 * GIB, 70, ("sw_power_cap",))
    assert figures(nvml, [UUID_B]) == {UUID_B: found}


def test_a_device_that_is_lost_or_unknown_is_left_out() -> None:
    nvml = PlayedNvml({A: Board()})
    assert figures(nvml, [UUID_A, UUID_B]) == {UUID_A: WHOLE}
    assert nvml.asked[-2:] == [B, MIG]
    gone = PlayedNvml({MIG: Board(parent=A, lacks=frozenset({"parent", "busy", "memory"}))})
    assert figures(gone, [UUID_B]) == {UUID_B: Gpu(MIG)}


def test_every_name_is_one_of_the_packages_own() -> None:
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    names = [name for name in vars(PlayedNvml) if name.lower().startswith("nvml")]
    assert len(names) > 15
    assert [name for name in names if not hasattr(pynvml, name)] == []
    for name in names:
        if name.startswith("nvmlClocks"):
            assert getattr(pynvml, name) == getattr(PlayedNvml, name)


def test_only_devices_of_workers_that_run_are_looked_at() -> None:
    asked: list[list[int]] = []

    def ask(uuids: Collection[int]) -> Mapping[int, Gpu]:
        asked.append([*uuids])
        return figures(PlayedNvml({A: Board(), B: Board()}), uuids)

    segment = engine(UUID_A, 0, UUID_A, UUID_B)
    found = used_gpus(segment, ask)
    assert [(used.gpu.uuid, used.workers) for used in found] == [(A, (0, 2)), (B, (3,))]
    assert used_gpus(segment, unseen) == ()
    segment.words[segment.layout.worker(3) + WorkerWords.STATE] = WorkerState.ABSENT
    assert [used.gpu.uuid for used in used_gpus(segment, ask)] == [A]
    assert asked == [[UUID_A, UUID_B], [UUID_A]]
    assert used_gpus(engine(0, 0), ask) == ()
    assert len(asked) == 2, "NVML is not asked where no worker is on a device"


class Turns:
    """A thread that is played: its turns are taken by the test."""

    def __init__(self, nvml: Any) -> None:
        self.turns: list[Callable[[], bool]] = []
        self.now_ns = 10**12
        self.slept: list[float] = []
        self.nvml = nvml
        self.gauge = GpuGauge(self.start, self.imported, lambda: self.now_ns, self.slept.append)

    def start(self, name: str, turn: Callable[[], bool]) -> None:
        self.turns.append(turn)

    def imported(self) -> Any:
        if isinstance(self.nvml, Exception):
            raise self.nvml
        return self.nvml


def test_the_gauge_has_the_figures_of_its_last_look_and_no_old_ones() -> None:
    nvml = PlayedNvml({A: Board()})
    played = Turns(nvml)
    assert played.gauge.latest([UUID_A]) == {}
    assert played.gauge.latest([UUID_A]) == {}
    (turn,) = played.turns
    assert turn()
    assert played.slept == [LOOK_S]
    assert played.gauge.latest([UUID_A]) == {UUID_A: WHOLE}
    nvml.boards[A] = Board(busy=1)
    assert turn()
    assert played.gauge.latest([UUID_A])[UUID_A].busy == 0.01
    played.now_ns += STALE_NS - 1
    assert played.gauge.latest([UUID_A])
    played.now_ns += 1
    assert played.gauge.latest([UUID_A]) == {}, "as NVML does not answer any more"
    assert turn()
    assert played.gauge.latest([UUID_A])


def test_a_gauge_asks_for_the_devices_of_the_last_question() -> None:
    played = Turns(PlayedNvml({A: Board(), B: Board()}))
    played.gauge.latest([UUID_A])
    (turn,) = played.turns
    turn()
    played.gauge.latest([UUID_B])
    turn()
    assert [*played.gauge.latest([UUID_B])] == [UUID_B]


@pytest.mark.parametrize(
    ("nvml", "words"),
    [
        (ImportError("no"), "the package nvidia-ml-py is not installed; pip install"),
        (PlayedNvml({}, refuses="Driver Not Loaded"), "NVML says: Driver Not Loaded"),
    ],
)
def test_without_nvml_one_line_says_why(
    nvml: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ringbatch.frontend")
    played = Turns(nvml)
    played.gauge.latest([UUID_A])
    (turn,) = played.turns
    assert not turn(), "the thread ends"
    assert played.gauge.latest([UUID_A]) == {}
    assert len(played.turns) == 1, "no other is started"
    (record,) = caplog.records
    assert words in record.getMessage()


def test_a_gauge_without_a_thread_is_empty_and_tries_again() -> None:
    tried = []

    def start(name: str, turn: Callable[[], bool]) -> None:
        tried.append(name)
        if len(tried) == 1:
            raise StartupError("no thread")

    gauge = GpuGauge(start)
    assert [gauge.latest([UUID_A]) for _ in range(3)] == [{}, {}, {}]
    assert len(tried) == 2


def test_a_command_waits_for_nvml_for_a_while_alone() -> None:
    assert look([UUID_A], lambda: PlayedNvml({A: Board()})) == {UUID_A: WHOLE}
    assert look([UUID_A], lambda: None) == {}
    hung = threading.Event()

    def hangs() -> Any:
        hung.wait(60)
        return PlayedNvml({A: Board()})

    assert look([UUID_A], hangs, 0.01) == {}
    hung.set()


GPUS = (
    UsedGpu(replace(WHOLE, slowed=("sw_power_cap", "hw_slowdown")), (0, 2)),
    UsedGpu(Gpu(MIG, used_bytes=GIB), (3,)),
)
IDLE = Gpu(B, 0.0, 0, 1, 0, ())


def test_metrics_have_a_line_for_each_figure_that_is_known() -> None:
    model = spec(0, name="a", workers=(0, 2))
    lines = encoded(gpu_metrics(GPUS, [model]), "")[0].decode().splitlines()
    a, mig = f'gpu_uuid="{A}"', f'gpu_uuid="{MIG}"'
    assert [line for line in lines if line[0] != "#" and "throttled" not in line] == [
        f"ringbatch_gpu_utilization{{{a}}} 0.87",
        f"ringbatch_gpu_memory_used_bytes{{{a}}} {12 * GIB}",
        f"ringbatch_gpu_memory_used_bytes{{{mig}}} {GIB}",
        f"ringbatch_gpu_memory_total_bytes{{{a}}} {80 * GIB}",
        f"ringbatch_gpu_temperature_celsius{{{a}}} 61",
        f'ringbatch_worker_gpu{{model="a",version="1",worker="0",{a}}} 1',
        f'ringbatch_worker_gpu{{model="a",version="1",worker="2",{a}}} 1',
    ]
    slowed = [line for line in lines if line.startswith("ringbatch_gpu_throttled")]
    assert [line.rpartition('reason="')[2] for line in slowed] == [
        'sw_power_cap"} 1',
        'hw_slowdown"} 1',
        'sync_boost"} 0',
        'sw_thermal_slowdown"} 0',
        'hw_thermal_slowdown"} 0',
        'hw_power_brake_slowdown"} 0',
    ]
    assert [*gpu_metrics((), [model])] == []
    zeros = encoded(gpu_metrics([UsedGpu(IDLE, ())], [model]), "")[0].decode()
    assert f'ringbatch_gpu_utilization{{gpu_uuid="{B}"}} 0.0\n' in zeros
    assert f'ringbatch_gpu_temperature_celsius{{gpu_uuid="{B}"}} 0\n' in zeros


def test_status_and_top_and_the_page_show_them() -> None:
    segment = engine(UUID_A)
    lines = describe(read(segment), GPUS).splitlines()
    assert lines[-2:] == [
        f"GPU {A} of workers 0, 2: busy 87%, memory 12.0 GiB of 80.0 GiB, 61 °C, "
        "throttled: sw_power_cap, hw_slowdown",
        f"GPU {MIG} of worker 3: memory 1.0 GiB",
    ]
    quiet = describe(read(segment), [UsedGpu(WHOLE, (0,)), UsedGpu(Gpu(B), (1,))]).splitlines()
    assert [line.rpartition(", ")[2] for line in quiet[-2:]] == [
        "not throttled",
        f"GPU {B} of worker 1: no figures",
    ]
    shown = [line.text for line in page(None, replace(FIRST, gpus=GPUS), 140)]
    (head,) = [number for number, text in enumerate(shown) if text.startswith("GPU ")]
    assert [text.split() for text in shown[head : head + 3]] == [
        ["GPU", "OF", "BUSY", "MEMORY", "TEMP", "THROTTLED"],
        [A, "0,", "2", "87%", "12.0G/80.0G", "61C", "sw_power_cap,", "hw_slowdown"],
        [MIG, "3", "-", "1.0G/-", "-", "-"],
    ]
    assert state(None, replace(FIRST, gpus=GPUS), {}, {})["gpus"] == [
        {
            "uuid": A,
            "workers": (0, 2),
            "busy": 0.87,
            "used": 12 * GIB,
            "total": 80 * GIB,
            "celsius": 61,
            "slowed": ("sw_power_cap", "hw_slowdown"),
        },
        {
            **{"uuid": MIG, "workers": (3,), "busy": None, "used": GIB, "total": None},
            **{"celsius": None, "slowed": None},
        },
    ]


def test_without_gpus_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Segment, "engine", "prod")
    segment = engine(0)
    assert "GPU" not in describe(read(segment))
    assert not any("GPU" in line.text for line in page(None, FIRST, 140))
    assert state(None, FIRST, {}, {})["gpus"] == []


def test_a_sample_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Segment, "engine", "prod")
    monkeypatch.setattr(Segment, "pid", 1)
    segment = engine(UUID_A)
    nvml = PlayedNvml({A: Board()})
    found = sample(segment, 1, lambda uuids: figures(nvml, uuids))
    assert found.gpus == (UsedGpu(WHOLE, (0,)),)
    assert sample(segment, 1).gpus == ()
