"""What the doctor says of made-up hosts: every line of its checks, with its level."""

import ast
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from ringbatch.engine.config.settings import Config, ModelConfig, ServerConfig
from ringbatch.engine.doctor import (
    cpu_checks,
    credential_checks,
    engine_checks,
    kernel_checks,
    limit_checks,
    memory_checks,
    software_checks,
)
from ringbatch.engine.doctor.case import Case, Check
from ringbatch.engine.doctor.examination import CHECKS, judge
from ringbatch.engine.doctor.facts import (
    Clock,
    ControlGroup,
    Door,
    Engines,
    Facts,
    Features,
    HugePages,
    Kernel,
    Limits,
    Login,
    Memory,
    Package,
    Processors,
    Room,
    RunningEngine,
    SharedMemory,
    Software,
    WakeUps,
)
from ringbatch.engine.doctor.findings import Finding, Level
from ringbatch.engine.doctor.needs import needs
from ringbatch.engine.process.plan import Host

MIB: Final = 1 << 20
GIB: Final = 1 << 30
MODULES: Final = (
    cpu_checks,
    credential_checks,
    engine_checks,
    kernel_checks,
    limit_checks,
    memory_checks,
    software_checks,
)

SHM: Final = SharedMemory(
    filesystem="tmpfs",
    size_bytes=8 * GIB,
    free_bytes=8 * GIB,
    free_files=1_000_000,
    writable=True,
)
LOGIN: Final = Login(user="ringbatch", system=True, removes=True, lingers=False)
USER: Final = replace(LOGIN, user="ada", system=False)
LIMITS: Final = Limits(open_files=65536, processes=None, core_bytes=0)
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
    ringbatch="0.1.0",
    compiled=True,
    python=(3, 12, 1),
    implementation="CPython",
    packages=PACKAGES,
)
TRIPS: Final = WakeUps(count=900, median_ns=40_000, p99_ns=90_000, busy=0.2, stolen=0.0)
WELL: Final = Facts(
    shared_memory=SHM,
    login=LOGIN,
    limits=LIMITS,
    group=ControlGroup(),
    processors=FOUR,
    memory=Memory(available_bytes=16 * GIB, swap_used_bytes=0, overcommit=0),
    huge_pages=HugePages(enabled="madvise", defrag="madvise"),
    clock=Clock(source="tsc", read_ns=50),
    kernel=KERNEL,
    features=Features(),
    doors=(Door(key="port", host="127.0.0.1", port=8080),),
    credentials="",
    engines=Engines(),
    software=SOFTWARE,
    wake_ups=TRIPS,
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
    """One outcome of one check.

    Attributes:
        check: the function.
        level: of one of its findings.
        words: of what was found.
        do: of what is to be done; empty where nothing is.
        facts: that differ from those of a host that is well.
        configured: what is to run.
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
M, L, C, K, S, E, D = (
    memory_checks,
    limit_checks,
    cpu_checks,
    kernel_checks,
    software_checks,
    engine_checks,
    credential_checks,
)
SMALL: Final = replace(SHM, size_bytes=64 * MIB, free_bytes=64 * MIB)
TINY: Final = replace(SHM, size_bytes=MIB, free_bytes=MIB)
ENGINE: Final = RunningEngine(
    name="/ringbatch.prod.7.x", engine="prod", pid=7, models=("a", "b"), segment_bytes=GIB
)
GROUP: Final = "/sys/fs/cgroup/a"


def room(limit: int, left: int) -> Room:
    return Room(limit=limit, left=left, group=GROUP)


TAKEN: Final = Door(
    key="port",
    host="127.0.0.1",
    port=8080,
    refusal="Address already in use",
    taken=True,
)

ROWS: Final = (
    # memory_checks
    row(M.dev_shm, ERROR, "there is no /dev/shm", "mount a tmpfs", shared_memory=None),
    row(
        M.dev_shm,
        ERROR,
        "cannot make files",
        "chmod 1777",
        shared_memory=replace(SHM, writable=False),
    ),
    row(
        M.dev_shm,
        WARNING,
        "is a ext4",
        "mount a tmpfs",
        shared_memory=replace(SHM, filesystem="ext4"),
    ),
    row(
        M.dev_shm,
        ERROR,
        "takes 3 more files",
        "nr_inodes",
        shared_memory=replace(SHM, free_files=3),
    ),
    row(
        M.dev_shm,
        OK,
        "no limit of its own",
        shared_memory=replace(SHM, size_bytes=None, free_bytes=None),
    ),
    row(M.dev_shm, ERROR, "1.0 MiB free of 1.0 MiB", "docker run --shm-size", shared_memory=TINY),
    row(
        M.dev_shm,
        ERROR,
        "64 MiB free of 64 MiB; the segment takes",
        "lower [server] max_request_bytes",
        shared_memory=SMALL,
        configured=config({"lane_bytes": 64 * MIB}),
    ),
    row(
        M.dev_shm,
        WARNING,
        "engines that run hold 1024 MiB",
        "stop the running engine first",
        shared_memory=SMALL,
        configured=config({"lane_bytes": 64 * MIB}),
        engines=Engines(running=(ENGINE,)),
    ),
    row(
        M.dev_shm,
        NOTE,
        "requests of at most 4.0 MiB",
        "or set max_request_bytes",
        shared_memory=SMALL,
    ),
    row(
        M.dev_shm,
        WARNING,
        "requests of at most",
        "or set max_request_bytes",
        shared_memory=replace(SHM, size_bytes=10 * MIB, free_bytes=10 * MIB),
        configured=config({"max_in_flight": 64}),
    ),
    row(M.dev_shm, OK, "8192 MiB free of 8192 MiB; the segment takes 19"),
    row(
        M.logout,
        NOTE,
        "systemd-logind removes the files of ada in /dev/shm once ada has logged out",
        "loginctl enable-linger ada",
        login=USER,
    ),
    row(M.logout, OK, "ada lingers", login=replace(USER, lingers=True)),
    row(M.logout, OK, "users who log out", login=replace(USER, removes=False)),
    row(M.logout, OK, "the files of ringbatch, a system user, alone"),
    row(
        M.memory,
        ERROR,
        f"10 MiB are left of the 100 MiB of control group {GROUP}",
        "MemoryMax=",
        group=ControlGroup(memory=room(100 * MIB, 10 * MIB)),
    ),
    row(
        M.memory,
        WARNING,
        "300 MiB are left",
        "container's memory limit",
        group=ControlGroup(memory=room(GIB, 300 * MIB)),
    ),
    row(M.memory, OK, "4096 MiB are left", group=ControlGroup(memory=room(8 * GIB, 4 * GIB))),
    row(
        M.memory,
        WARNING,
        "300 MiB are left below memory.high",
        "MemoryHigh=",
        group=ControlGroup(memory_high=room(GIB, 300 * MIB)),
    ),
    row(M.memory, NOTE, "cannot be known", "another user", memory=None),
    row(M.memory, OK, "are left", memory=None, group=ControlGroup(memory=room(GIB, GIB))),
    row(
        M.memory,
        WARNING,
        "the host has 100 MiB available",
        "free memory",
        memory=Memory(available_bytes=100 * MIB, swap_used_bytes=0, overcommit=0),
    ),
    row(M.memory, OK, "the host has 16 GiB available"),
    row(
        M.memory,
        NOTE,
        "overcommit_memory is 2",
        "leave it",
        memory=Memory(available_bytes=16 * GIB, swap_used_bytes=0, overcommit=2),
    ),
    row(
        M.swap,
        NOTE,
        "4096 MiB of the host's memory",
        "MemorySwapMax=0",
        memory=Memory(available_bytes=16 * GIB, swap_used_bytes=4 * GIB, overcommit=0),
    ),
    row(M.swap, OK, "nothing is swapped out"),
    row(M.huge_pages, OK, "has no transparent huge pages", huge_pages=None),
    row(
        M.huge_pages,
        NOTE,
        "always, defrag: always",
        "defer+madvise",
        huge_pages=HugePages(enabled="always", defrag="always"),
    ),
    row(
        M.huge_pages,
        OK,
        "always, defrag: madvise",
        huge_pages=HugePages(enabled="always", defrag="madvise"),
    ),
    # limit_checks
    row(L.open_files, NOTE, "cannot be known", "another user", limits=None),
    row(L.open_files, OK, "any number of", limits=replace(LIMITS, open_files=None)),
    row(L.open_files, OK, "16640", limits=replace(LIMITS, open_files=16640)),
    row(
        L.open_files,
        WARNING,
        "serves 768 connections and not 16384",
        "LimitNOFILE=",
        limits=replace(LIMITS, open_files=1024),
    ),
    row(
        L.open_files,
        ERROR,
        "at most 256 open files",
        "allow 16640",
        limits=replace(LIMITS, open_files=256),
    ),
    row(
        L.processes,
        ERROR,
        "5 more fit into control group",
        "TasksMax=",
        group=ControlGroup(tasks=room(20, 5)),
    ),
    row(
        L.processes,
        ERROR,
        "may have 8 processes",
        "LimitNPROC=",
        limits=replace(LIMITS, processes=8),
    ),
    row(L.processes, OK, "and may", group=ControlGroup(tasks=room(1000, 900))),
    row(L.core_dumps, NOTE, "cannot be known", "another user", kernel=None),
    row(L.core_dumps, OK, "are off"),
    row(
        L.core_dumps,
        NOTE,
        "of 100 MiB go to core",
        "LimitCORE=0",
        limits=replace(LIMITS, core_bytes=100 * MIB),
    ),
    row(
        L.core_dumps,
        NOTE,
        "of any size go to |/bin/x",
        "LimitCORE=0",
        kernel=replace(KERNEL, core_pattern="|/bin/x"),
    ),
    row(
        L.core_dumps,
        WARNING,
        "shared memory with them",
        "coredump_filter",
        limits=replace(LIMITS, core_bytes=None),
        kernel=replace(KERNEL, dumps_shared=True),
    ),
    row(L.backlog, NOTE, "cannot be known", "another user", kernel=replace(KERNEL, backlog=None)),
    row(L.backlog, NOTE, "is 128", "somaxconn=2048", kernel=replace(KERNEL, backlog=128)),
    row(L.backlog, OK, "is 4096"),
    # cpu_checks
    row(C.cpus, NOTE, "cannot be known", "another user", processors=None),
    row(
        C.cpus,
        WARNING,
        "1 CPU may be used (2) of 4",
        "two CPUs or more",
        processors=replace(FOUR, host=Host((2,), {}, 1)),
    ),
    row(
        C.cpus,
        NOTE,
        "9 frontends are configured",
        "no more frontends than CPUs",
        configured=config({"frontends": 9}),
    ),
    row(C.cpus, OK, "4 CPUs may be used (0-3) of 4"),
    row(C.cpu_quota, NOTE, "cannot be known", "another user", group=None),
    row(C.cpu_quota, OK, "there is none"),
    row(C.cpu_quota, OK, "not below", group=ControlGroup(cpus=4.0)),
    row(
        C.cpu_quota,
        NOTE,
        "a quota of 1.5 CPUs, with 4 to be seen",
        "CPUAffinity=",
        group=ControlGroup(cpus=1.5, throttled=0.01),
    ),
    row(
        C.cpu_quota,
        WARNING,
        "stopped the group in 30% of all periods",
        "CPUQuota=",
        group=ControlGroup(cpus=1.5, throttled=0.3),
    ),
    row(
        C.cpu_quota,
        WARNING,
        "divides nothing under a quota",
        "frontend_cpus",
        group=ControlGroup(cpus=1.5),
        configured=config({"placement": "auto"}),
    ),
    row(C.threads, NOTE, "cannot be known", "another user", processors=None),
    row(
        C.threads,
        OK,
        "no worker computes",
        configured=config(path="http://127.0.0.1:1", runtime="http"),
    ),
    row(
        C.threads,
        OK,
        "2 workers, threads of each: 2, 4 in all, on 4 CPUs",
        configured=config(workers=2),
    ),
    row(
        C.threads,
        NOTE,
        "8 workers, threads of each: 1, 8 in all, on 4 CPUs",
        "workers = 4",
        configured=config(workers=8),
    ),
    row(
        C.threads,
        WARNING,
        "2 workers, threads of each: 8, 16 in all, on 4 CPUs",
        "threads = 2",
        configured=config(workers=2, threads=8),
    ),
    row(
        C.threads,
        WARNING,
        "MKL_NUM_THREADS of the environment decides",
        "take MKL_NUM_THREADS out",
        environment={"MKL_NUM_THREADS": "32", "OMP_NUM_THREADS": "2"},
    ),
    row(C.cpu_sets, NOTE, "cannot be known", "another user", processors=None),
    row(
        C.cpu_sets,
        ERROR,
        'the configuration names CPUs "7"',
        "name CPUs that this process may use",
        configured=config(cpus=("7",)),
    ),
    row(
        C.cpu_sets,
        WARNING,
        "CPU sets 1-2 lie across",
        "node 1 has 2-3",
        processors=TWO_NODES,
        configured=config(cpus=("1-2",)),
    ),
    row(
        C.cpu_sets,
        WARNING,
        "CPU sets 0-3 lie across",
        "node 0 has 0-1",
        processors=TWO_NODES,
        configured=config({"frontend_cpus": "0-3"}, cpus=("0-1",)),
    ),
    row(C.cpu_sets, NOTE, "2 NUMA nodes", 'placement = "auto"', processors=TWO_NODES),
    row(C.cpu_sets, OK, "2 NUMA nodes", processors=TWO_NODES, configured=config(cpus=("0-1",))),
    row(C.cpu_sets, OK, "one NUMA node"),
    row(C.governor, OK, "not shown", processors=replace(FOUR, governors={})),
    row(C.governor, OK, "performance on 4 CPUs (intel_pstate)"),
    row(
        C.governor,
        WARNING,
        "powersave on 4 CPUs (acpi-cpufreq)",
        "cpupower",
        processors=replace(FOUR, governors={"powersave": 4}, driver="acpi-cpufreq"),
    ),
    row(
        C.governor,
        NOTE,
        "powersave on 4 CPUs (intel_pstate)",
        "cpupower",
        processors=replace(FOUR, governors={"powersave": 4}),
    ),
    row(C.smt, OK, "not shown", processors=replace(FOUR, cores=0)),
    row(C.smt, OK, "a core of its own"),
    row(
        C.smt,
        NOTE,
        "4 CPUs are 2 cores; workers have 4 threads",
        "2 in all",
        processors=replace(FOUR, cores=2),
    ),
    row(
        C.smt,
        OK,
        "4 CPUs are 2 cores",
        processors=replace(FOUR, cores=2),
        configured=config(threads=2),
    ),
    row(C.clock, NOTE, "cannot be known", "another user", clock=None),
    row(C.clock, OK, "a look takes 50 ns, clock source tsc"),
    row(C.clock, WARNING, "hpet", "choose tsc", clock=Clock(source="hpet", read_ns=90)),
    row(C.clock, WARNING, "900 ns", "choose tsc", clock=Clock(source="tsc", read_ns=900)),
    row(C.wake_ups, NOTE, "cannot be known", "another user", wake_ups=None),
    row(C.wake_ups, OK, "take 40 µs (median of 900), one in a hundred 90 µs"),
    row(
        C.wake_ups,
        NOTE,
        "slower than usual: two wake-ups and back take 300 µs",
        "sleep states",
        wake_ups=replace(TRIPS, median_ns=300_000),
    ),
    row(
        C.wake_ups,
        WARNING,
        "slower than usual",
        "the CPUs were 99% busy",
        wake_ups=replace(TRIPS, median_ns=3_000_000, busy=0.99),
    ),
    row(
        C.wake_ups,
        WARNING,
        "slower than usual",
        "gave 10% of the CPUs' time to others",
        wake_ups=replace(TRIPS, p99_ns=30_000_000, stolen=0.1),
    ),
    row(
        C.wake_ups,
        NOTE,
        "slower than usual",
        "the CPU quota stopped the group in 40%",
        wake_ups=replace(TRIPS, median_ns=300_000),
        group=ControlGroup(cpus=1.0, throttled=0.4),
    ),
    row(
        C.wake_ups,
        NOTE,
        "slower than usual",
        "governor is not performance; on a virtual machine",
        wake_ups=replace(TRIPS, median_ns=300_000),
        processors=replace(FOUR, governors={"powersave": 4}, virtual=True),
    ),
    row(
        C.wake_ups,
        NOTE,
        "slower than usual",
        "look for what runs beside it",
        wake_ups=replace(TRIPS, median_ns=300_000),
        processors=None,
    ),
    # kernel_checks
    row(K.platform, NOTE, "cannot be known", "another user", kernel=None),
    row(
        K.platform,
        ERROR,
        "Linux 6.1 on aarch64",
        "x86-64",
        kernel=replace(KERNEL, machine="aarch64", orders_stores=False),
    ),
    row(K.platform, OK, "Linux 6.1 on x86_64"),
    row(K.proc, ERROR, "not mounted", "mount /proc", kernel=replace(KERNEL, proc=False)),
    row(
        K.proc,
        WARNING,
        "/proc/net/tcp cannot be read",
        "with net",
        kernel=replace(KERNEL, sees_connections=False),
    ),
    row(K.proc, NOTE, "hidepid=invisible", "nothing", kernel=replace(KERNEL, hidepid="invisible")),
    row(K.proc, OK, "shows processes"),
    row(K.features, NOTE, "SO_REUSEPORT cannot be known", "another user", features=None),
    row(K.features, OK, "SO_REUSEPORT: fine"),
    row(K.features, ERROR, "POSIX semaphores: no", "/dev/shm", features=Features(semaphores="no")),
    row(
        K.features, ERROR, "named pipes in /dev/shm: no", "/dev/shm", features=Features(pipes="no")
    ),
    row(K.features, ERROR, "pidfd_open and", "Linux 5.3", features=Features(pidfd="no")),
    row(K.features, ERROR, "locks of open files", "mount /proc", features=Features(locks="no")),
    row(K.features, ERROR, "memfd_create: no", "seccomp", features=Features(memory_files="no")),
    row(K.features, ERROR, "PR_SET_PDEATHSIG: no", "seccomp", features=Features(parent_death="no")),
    row(K.features, ERROR, "SO_REUSEPORT: no", "seccomp", features=Features(shared_ports="no")),
    row(K.features, WARNING, "newcomers", "CAP_NET_ADMIN", features=Features(turning_away="no")),
    row(
        K.features,
        NOTE,
        "SCHED_BATCH: no",
        "sched_setscheduler",
        features=Features(batch_scheduling="no"),
    ),
    row(K.features, NOTE, "monotonic clock: no", "glibc", features=Features(monotonic_waits="no")),
    # software_checks
    row(S.python, NOTE, "cannot be known", "another user", software=None),
    row(
        S.python, ERROR, "CPython 3.10.2", "3.11 to", software=replace(SOFTWARE, python=(3, 10, 2))
    ),
    row(
        S.python, ERROR, "PyPy 3.12.1", "CPython", software=replace(SOFTWARE, implementation="PyPy")
    ),
    row(S.python, NOTE, "3.15.0", "tested", software=replace(SOFTWARE, python=(3, 15, 0))),
    row(S.python, OK, "CPython 3.12.1"),
    row(
        S.packages,
        NOTE,
        "not installed as a distribution",
        "pip install",
        software=replace(SOFTWARE, packages=()),
    ),
    row(S.packages, OK, "gunicorn 23.0.0, uvicorn 0.54.0"),
    row(
        S.packages,
        ERROR,
        "grpcio is not installed",
        "pip install 'ringbatch[grpc]', or in a clone '.[grpc]'",
        configured=config({"grpc_port": 0}),
    ),
    row(
        S.packages,
        ERROR,
        "opentelemetry-proto is not installed",
        "pip install 'ringbatch[otel]', or in a clone '.[otel]'",
        software=replace(
            SOFTWARE,
            packages=(
                Package(name="opentelemetry-proto", version=None, bounds=">=1", extra="otel"),
            ),
        ),
        configured=config({"control_port": 0, "trace_endpoint": "http://127.0.0.1:1"}),
    ),
    row(
        S.packages,
        ERROR,
        "aiohttp is not installed",
        "pip install 'ringbatch[http]', or in a clone '.[http]'",
        software=replace(
            SOFTWARE,
            packages=(Package(name="aiohttp", version=None, bounds=">=3.10", extra="http"),),
        ),
        configured=config({"pass_through": "http://127.0.0.1:1"}),
    ),
    row(
        S.packages,
        ERROR,
        "onnxruntime is not installed",
        "pip install 'ringbatch[onnx]', or in a clone '.[onnx]'",
        software=replace(
            SOFTWARE,
            packages=(Package(name="onnxruntime", version=None, bounds=">=1.20", extra="onnx"),),
        ),
        configured=config(path=Path("m.onnx")),
    ),
    row(
        S.packages,
        ERROR,
        "gunicorn is not installed",
        "install ringbatch again",
        software=replace(SOFTWARE, packages=(replace(PACKAGES[0], version=None),)),
    ),
    row(
        S.packages,
        ERROR,
        "uvicorn 0.55.0 is installed, and <0.55,>=0.34 is asked for",
        "pip install 'uvicorn<0.55,>=0.34'",
        software=replace(SOFTWARE, packages=(replace(PACKAGES[1], version="0.55.0"),)),
    ),
    row(S.compiled, OK, "ringbatch 0.1.0, compiled"),
    row(
        S.compiled,
        NOTE,
        "ringbatch 0.1.0, not compiled",
        "RINGBATCH_COMPILE=1",
        software=replace(SOFTWARE, compiled=False),
    ),
    # engine_checks
    row(E.ports, NOTE, "cannot be known", "another user", doors=None),
    row(E.ports, OK, "8080 is free"),
    row(
        E.ports,
        NOTE,
        "40000 is free now, and among the ports 32768 to 60999",
        "below 32768",
        doors=(Door(key="grpc_port", host="a", port=40000),),
    ),
    row(
        E.ports,
        OK,
        "40000 is free",
        doors=(Door(key="grpc_port", host="a", port=40000),),
        asked=False,
    ),
    row(
        E.ports,
        ERROR,
        "cannot listen on 127.0.0.1:80: Permission denied",
        "below 1024 need a privilege",
        doors=(Door(key="port", host="127.0.0.1", port=80, refusal="Permission denied"),),
    ),
    row(
        E.ports,
        ERROR,
        "process 12 (nginx: master) has it",
        "stop what has it",
        doors=(replace(TAKEN, holders=((12, "nginx: master"),)),),
    ),
    row(E.ports, ERROR, "who has it cannot be seen", "stop what has it", doors=(TAKEN,)),
    row(E.ports, NOTE, "who has it cannot be seen", "stop", doors=(TAKEN,), asked=False),
    row(
        E.ports,
        NOTE,
        "process 12 (ringbatch: supervisor) has it",
        "stop it before another",
        doors=(replace(TAKEN, holders=((12, "ringbatch: supervisor"),)),),
    ),
    row(
        E.ports,
        NOTE,
        "process 7 (ringbatch: supervisor) has it",
        "stop it before another",
        doors=(replace(TAKEN, holders=((7, "ringbatch: supervisor"),)),),
        engines=Engines(running=(ENGINE,)),
        configured=config({"name": "prod"}),
    ),
    row(
        E.ports,
        ERROR,
        "process 7 (ringbatch: supervisor) has it",
        "stop what has it",
        doors=(replace(TAKEN, holders=((7, "ringbatch: supervisor"),)),),
        engines=Engines(running=(ENGINE,)),
        configured=config({"name": "other"}),
    ),
    row(D.credentials, NOTE, "cannot be known", "another user", credentials=None),
    row(D.credentials, OK, "can be used"),
    row(
        D.credentials,
        ERROR,
        "/k.pem: cannot be read: Permission denied",
        "let the engine's user read it",
        credentials="/k.pem: cannot be read: Permission denied",
    ),
    row(E.engines, NOTE, "which engines run cannot be known", "another user", engines=None),
    row(E.engines, OK, "none of this user runs"),
    row(
        E.engines,
        OK,
        "prod (process 7) serves a, b with 1024 MiB",
        engines=Engines(running=(ENGINE,)),
    ),
    row(
        E.engines,
        NOTE,
        "of another version of ringbatch: /ringbatch.8.x",
        "that version's commands",
        engines=Engines(of_other_versions=("/ringbatch.8.x",)),
    ),
    row(
        E.engines,
        NOTE,
        "6 of other users: /0, /1, /2, /3, /4 and 1 more",
        "as those users",
        engines=Engines(of_others=tuple(f"/{n}" for n in range(6))),
    ),
    row(E.leftovers, OK, "none"),
    row(
        E.leftovers,
        WARNING,
        "2 files in /dev/shm, 20 MiB: ringbatch.9.x, sem.ringbatch.9.x.c",
        "the next start removes them",
        engines=Engines(left=("ringbatch.9.x", "sem.ringbatch.9.x.c"), left_bytes=20 * MIB),
    ),
)


def outcome(given: Row) -> list[Finding]:
    facts = replace(WELL, **given.facts)
    return findings(given.check, facts, given.configured, asked=given.asked)


def named(given: Row) -> str:
    return f"{given.check.__name__}-{given.level}-{given.words[:30]}"


@pytest.mark.parametrize("given", ROWS, ids=named)
def test_a_check_says_what_it_found_why_and_what_to_do(given: Row) -> None:
    said = outcome(given)
    (finding,) = [f for f in said if f.level is given.level and given.words in f.found]
    assert finding.why
    assert given.do in finding.do
    assert bool(given.do) == bool(finding.do)


def test_the_table_has_every_outcome() -> None:
    """Every `yield` and `return` of every check was come by."""
    reached: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            reached.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for given in ROWS:
            outcome(given)
    finally:
        sys.settrace(before)
    missed = []
    for module in MODULES:
        file = inspect.getsourcefile(module) or ""
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            says = isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield)
            returns = isinstance(node, ast.Return) and node.value is not None
            if isinstance(node, ast.stmt) and (says or returns):
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                if not any((file, line) in reached for line in lines):
                    missed.append(f"{module.__name__} line {node.lineno}")
    assert missed == []


def test_with_a_host_that_is_well_nothing_is_wrong() -> None:
    said = [finding for check in CHECKS for finding in findings(check, WELL)]
    assert [finding for finding in said if finding.level is not OK] == []
    assert len(said) >= len(CHECKS)


def test_what_dead_engines_have_left_counts_as_free() -> None:
    """The start removes it before it looks."""
    large = config({"lane_bytes": 64 * MIB})
    left = Engines(left=("ringbatch.9.x",), left_bytes=2 * GIB)
    for engines, wants, level in (
        (Engines(), large, ERROR),
        (left, large, OK),
        (Engines(), config(), NOTE),
        (left, config(), OK),
    ):
        facts = replace(WELL, shared_memory=SMALL, engines=engines)
        (found,) = [f for f in judge(facts, wants, asked=True) if f.check == "dev-shm"]
        assert found.level is level


def test_of_a_host_that_nothing_is_known_of_the_checks_say_so() -> None:
    said = judge(Facts(), config(), asked=True)
    assert [finding for finding in said if finding.check == "doctor"] == []
    assert {finding.found for finding in said if finding.level is ERROR} == {"there is no /dev/shm"}


def test_a_fault_of_one_check_costs_no_other() -> None:
    broken = replace(WELL, clock="no clock")  # type: ignore[arg-type]
    said = judge(broken, config(), asked=True)
    (fault,) = [finding for finding in said if finding.check == "doctor"]
    assert "clock could not be examined: AttributeError" in fault.found
    assert {"wake-ups", "leftovers"} <= {finding.check for finding in said}


@pytest.mark.parametrize(
    ("version", "bounds", "inside"),
    [
        ("0.34", ">=0.34,<0.55", True),
        ("0.54.9", "<0.55,>=0.34", True),
        ("0.55.0", "<0.55,>=0.34", False),
        ("0.33.9", ">=0.34", False),
        ("23", ">=23.0.0", True),
        ("1.67.1rc1", ">=1.67.1", True),
        ("2!1.0", "<1.1", True),
        ("1.0", "!=1.0", False),
        ("1.0", "", True),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, bounds: str, inside: bool) -> None:
    assert software_checks.within(version, bounds) is inside
