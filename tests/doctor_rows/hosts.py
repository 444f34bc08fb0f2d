"""Made-up hosts, and what a row of a table of the doctor's findings says."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ringbatch.engine.config.settings import Config, ModelConfig, ServerConfig
from ringbatch.engine.doctor.case import Case, Check
from ringbatch.engine.doctor.facts import (
    Board,
    CgroupLimit,
    ClockSource,
    ControlGroup,
    Door,
    Engines,
    Facts,
    Features,
    HardLimits,
    HugePages,
    Kernel,
    Login,
    Memory,
    Nvidia,
    Package,
    Processors,
    RunningEngine,
    SharedMemory,
    Software,
    Torch,
    WakeUps,
)
from ringbatch.engine.doctor.findings import Finding, Level
from ringbatch.engine.doctor.needs import needs
from ringbatch.engine.process.cpu_plan import Host

MIB: Final = 1 << 20
GIB: Final = 1 << 30
SHM: Final = SharedMemory(
    filesystem="tmpfs", size_bytes=8 * GIB, free_bytes=8 * GIB, free_files=1_000_000, writable=True
)
LOGIN: Final = Login(user="ringbatch", system=True, removes=True, lingers=False)
USER: Final = replace(LOGIN, user="ada", system=False)
LIMITS: Final = HardLimits(open_files=65536, processes=None, core_bytes=0)
FOUR: Final = Processors(
    host=Host((0, 1, 2, 3), {0: (0, 1, 2, 3)}, 4),
    online=4,
    cores=4,
    governors={"performance": 4},
    driver="intel_pstate",
    virtual=False,
)
TWO_NODES: Final = replace(FOUR, host=Host((0, 1, 2, 3), {0: (0, 1), 1: (2, 3)}, 4))
KERNEL: Final = Kernel(
    system="Linux 6.1",
    machine="x86_64",
    backlog=4096,
    outgoing_ports=(32768, 60999),
    core_pattern="core",
)
PACKAGES: Final = (
    Package(name="gunicorn", version="23.0.0", bounds=">=23.0"),
    Package(name="uvicorn", version="0.54.0", bounds="<0.55,>=0.34"),
    Package(name="grpcio", version=None, bounds=">=1.67.1", extra="grpc"),
)
SOFTWARE: Final = Software(
    ringbatch="0.1.0", compiled=True, python=(3, 12, 1), implementation="CPython", packages=PACKAGES
)
TRIPS: Final = WakeUps(count=900, median_ns=40_000, p99_ns=90_000, busy=0.2, stolen=0.0)
NVIDIA: Final = Nvidia(
    loaded="580.65.06",
    driver="580.65.06",
    nodes={"nvidia-uvm": True, "nvidia0": True, "nvidiactl": True},
    boards=(Board(name="NVIDIA H100", persistence=True),),
    memory_lock=8 * MIB,
    torch=Torch(version="2.11.0", cuda="13.0"),
)
WELL: Final = Facts(
    shared_memory=SHM,
    login=LOGIN,
    limits=LIMITS,
    group=ControlGroup(),
    processors=FOUR,
    memory=Memory(available_bytes=16 * GIB, swap_used_bytes=0, overcommit=0),
    huge_pages=HugePages(enabled="madvise", defrag="madvise"),
    clock=ClockSource(source="tsc", read_ns=50),
    kernel=KERNEL,
    features=Features(),
    doors=(Door(key="port", host="127.0.0.1", port=8080),),
    credentials="",
    exposed=(),
    engines=Engines(),
    software=SOFTWARE,
    wake_ups=TRIPS,
    nvidia=NVIDIA,
)
"""A host with which nothing is wrong."""


def config(server: Mapping[str, Any] | None = None, **model: Any) -> Config:
    model.setdefault("path", Path("m.py"))
    entry = ModelConfig(name="m", **model)
    return Config(server=ServerConfig(**server or {}), models=(entry,))


def findings(
    check: Check, facts: Facts, configured: Config | None = None, *, asked: bool = True
) -> list[Finding]:
    configured = configured or config()
    host = (facts.processors or FOUR).host
    free_bytes = facts.shared_memory.free_bytes if facts.shared_memory else None
    wants = needs(configured, host, free_bytes, facts.environment)
    return list(check(Case(facts=facts, config=configured, asked=asked, needs=wants)))


@dataclass(frozen=True)
class Row:
    """Outcome of a check.

    Attributes:
        check: the function.
        level: of one of its findings.
        words: of what was found.
        do: of what is to be done; empty where nothing is.
        facts: that differ from those of a host that is well.
        configured: the configuration to run.
        asked: whether that was said.
    """

    check: Check
    level: Level
    words: str
    do: str
    facts: Mapping[str, Any]
    configured: Config | None = None
    asked: bool = True


def row(check: Check, level: Level, words: str, do: str = "", **facts: Any) -> Row:
    more = {name: facts.pop(name) for name in ("configured", "asked") if name in facts}
    return Row(check, level, words, do, facts, **more)


OK, NOTE, WARNING, ERROR = Level.OK, Level.NOTE, Level.WARNING, Level.ERROR
SMALL: Final = replace(SHM, size_bytes=64 * MIB, free_bytes=64 * MIB)
TINY: Final = replace(SHM, size_bytes=MIB, free_bytes=MIB)
ENGINE: Final = RunningEngine(
    name="/ringbatch.prod.7.x", engine="prod", pid=7, models=("a", "b"), segment_bytes=GIB
)
GROUP: Final = "/sys/fs/cgroup/a"


def room(limit: int, left: int) -> CgroupLimit:
    return CgroupLimit(limit=limit, left=left, group=GROUP)


TAKEN: Final = Door(
    key="port", host="127.0.0.1", port=8080, refusal="Address already in use", taken=True
)
