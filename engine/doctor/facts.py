"""Facts of a host, as values; None for unknown ones.

Sizes are bytes, limits are None if there is none. Nothing here says what is good or bad.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ringbatch.engine.process import cpu_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedMemory:
    """/dev/shm.

    Attributes:
        filesystem: its type; empty if it is not a mount of its own, or nobody tells.
        size_bytes: None if it has no limit of its own.
        free_bytes: the same.
        free_files: how many more files it takes; None if there is no limit.
        writable: whether this user can make files there.
    """

    filesystem: str
    size_bytes: int | None
    free_bytes: int | None
    free_files: int | None
    writable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HardLimits:
    """Hard limits of this process (ulimit -H), and the soft one of core dumps."""

    open_files: int | None
    processes: int | None
    core_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupLimit:
    """Limit of a control group for one resource, and the rest of it.

    Attributes:
        limit: that it sets.
        left: the rest of the limit now.
        group: its folder.
    """

    limit: int
    left: int
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroup:
    """The tightest limits of this process's control groups and of all above them.

    Attributes:
        memory: beyond which the kernel ends processes (memory.max).
        memory_high: beyond which it slows them down (memory.high).
        tasks: processes and threads (pids.max).
        cpus: the CPU quota, in CPUs.
        throttled: the share of periods in which the quota stopped the group, so far.
    """

    memory: CgroupLimit | None = None
    memory_high: CgroupLimit | None = None
    tasks: CgroupLimit | None = None
    cpus: float | None = None
    throttled: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Processors:
    """CPUs.

    Attributes:
        host: those that this process may use, as the engine sees them.
        online: how many the host has.
        cores: physical ones among those that may be used; 0 if nobody tells.
        governors: of frequencies, with the number of CPUs that each has; empty if none is shown.
        driver: of frequencies.
        virtual: whether this is a virtual machine.
    """

    host: cpu_plan.Host
    online: int
    cores: int
    governors: Mapping[str, int]
    driver: str
    virtual: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The host's memory; `overcommit` is vm.overcommit_memory."""

    available_bytes: int
    swap_used_bytes: int
    overcommit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HugePages:
    """Settings of transparent huge pages: each is a word of the kernel's, or empty."""

    enabled: str
    defrag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSource:
    """The kernel's clock source, empty if it is not shown; and what one look at it takes."""

    source: str
    read_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """Settings of the kernel.

    Attributes:
        system: its name and release.
        machine: kind of processor.
        needed: what ringbatch needs in its place; empty if it runs on it.
        backlog: net.core.somaxconn; None if it cannot be read.
        outgoing_ports: the first and the last of those that it gives to outgoing connections.
        proc: whether /proc is mounted.
        hidepid: the option of that mount, such as ``invisible`` or ``2``; empty if it is off.
        sees_connections: whether /proc/net/tcp can be read.
        core_pattern: where core dumps go.
        dumps_shared: whether core dumps have mapped shared memory in them.
    """

    system: str
    machine: str
    needed: str = ""
    backlog: int | None = None
    outgoing_ports: tuple[int, int] | None = None
    proc: bool = True
    hidepid: str = ""
    sees_connections: bool = True
    core_pattern: str = ""
    dumps_shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Features of the kernel, tried: each is empty if it works, or says why not.

    Attributes:
        semaphores: a POSIX semaphore in /dev/shm.
        pipes: a named pipe in /dev/shm.
        pidfd: pidfd_open and pidfd_send_signal.
        locks: of open files.
        memory_files: memfd_create.
        parent_death: a signal at the end of the parent (PR_SET_PDEATHSIG).
        shared_ports: SO_REUSEPORT.
        refusing_connections: a listening socket that refuses new connections.
        batch_scheduling: SCHED_BATCH.
        monotonic_waits: sem_clockwait of the C library.
    """

    semaphores: str = ""
    pipes: str = ""
    pidfd: str = ""
    locks: str = ""
    memory_files: str = ""
    parent_death: str = ""
    shared_ports: str = ""
    refusing_connections: str = ""
    batch_scheduling: str = ""
    monotonic_waits: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A port or a Unix socket of the configuration.

    Attributes:
        key: that sets it, in ``[server]``.
        home: key of its address, in ``[server]``.
        host: address to listen on.
        port: its number.
        path: of the Unix socket; empty if it is a port.
        refusal: why it cannot be had now; empty if it can.
        holders: processes that have it, as far as this user may know: process id and title.
    """

    key: str
    home: str = "host"
    host: str = ""
    port: int = 0
    path: str = ""
    refusal: str = ""
    taken: bool = False
    holders: tuple[tuple[int, str], ...] = ()

    @property
    def is_for_http(self) -> bool:
        """True if systemd may hold it, as it holds those for HTTP."""
        return self.key in ("port", "host", "unix_socket")

    @property
    def place(self) -> str:
        """The address, as a person reads it."""
        return self.path or f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningEngine:
    """An engine of this user that runs: its segment, its own name, its supervisor, its models."""

    name: str
    engine: str
    pid: int
    models: tuple[str, ...]
    segment_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Treatment of this user's files in /dev/shm by systemd-logind after a logout.

    Attributes:
        user: its name.
        system: True if it is a system user, whose files are left alone.
        removes: True if those of others are removed.
        lingers: True if the user counts as logged in without being so.
    """

    user: str
    system: bool
    removes: bool
    lingers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """Engines on this host.

    Attributes:
        running: those of this user.
        of_other_versions: names of segments of this user's that run and cannot be read.
        of_others: names of segments of other users, alive or not.
        left: names in /dev/shm that dead engines of this user have left.
        left_bytes: memory that these take.
    """

    running: tuple[RunningEngine, ...] = ()
    of_other_versions: tuple[str, ...] = ()
    of_others: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    left_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package that ringbatch needs.

    Attributes:
        name: as pip knows it.
        version: the installed one; None if there is none.
        bounds: of versions, such as ``>=0.34,<0.55``.
        extra: of ringbatch that it belongs to; empty if it is always needed.
    """

    name: str
    version: str | None
    bounds: str
    extra: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Software that ringbatch runs on.

    Attributes:
        ringbatch: its version; empty if it is not installed as a distribution.
        compiled: True if the hot path is.
        python: its version.
        implementation: such as ``CPython``.
        packages: with bounds; empty if it is not installed as a distribution.
    """

    ringbatch: str
    compiled: bool
    python: tuple[int, int, int]
    implementation: str
    packages: tuple[Package, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeUps:
    """Round trips between two processes that sleep at doorbells, each after a pause.

    Attributes:
        count: of round trips; two wake-ups each.
        median_ns: of a round trip.
        p99_ns: exceeded by one in a hundred.
        busy: share of the host's CPU time that was used meanwhile, by all processes.
        stolen: share of it that a hypervisor gave to others.
    """

    count: int
    median_ns: int
    p99_ns: int
    busy: float | None = None
    stolen: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A GPU as NVML tells of it.

    Attributes:
        name: of the product.
        mig: whether it is divided into instances.
        persistence: whether the driver keeps it while nobody uses it; None if NVML does not tell.
    """

    name: str
    mig: bool = False
    persistence: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Torch:
    """PyTorch, as its files tell without running it.

    Attributes:
        version: its version.
        cuda: the CUDA that it is built with; empty if it is built without.
        rocm: whether it is built for AMD's GPUs, which it calls ``cuda`` too.
    """

    version: str
    cuda: str
    rocm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvidia:
    """NVIDIA's driver and devices.

    Attributes:
        loaded: version of the driver that the kernel has loaded; empty if none is.
        driver: the same as NVML tells it; empty if it cannot be asked.
        nodes: of devices, by their names in /dev, and whether this user can open them.
        boards: in NVML's order.
        nvml: why NVML cannot be asked; empty if it can.
        package: whether nvidia-ml-py is installed.
        container: whether this is one.
        memory_lock: the soft limit of locked memory in bytes (ulimit -l); None without one.
        torch: None if it is not installed.
    """

    loaded: str = ""
    driver: str = ""
    nodes: Mapping[str, bool] = field(default_factory=dict)
    boards: tuple[Board, ...] = ()
    nvml: str = ""
    package: bool = True
    container: bool = False
    memory_lock: int | None = None
    torch: Torch | None = None

    @property
    def version(self) -> str:
        """Version of the driver; empty without a driver."""
        return self.driver or self.loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts; None for unknown ones.

    `credentials` says why the configured ones cannot be used; it is empty if they can. `exposed`
    holds each exposure to strangers with its remedy. `login` is None without systemd-logind.
    """

    shared_memory: SharedMemory | None = None
    login: Login | None = None
    limits: HardLimits | None = None
    group: ControlGroup | None = None
    processors: Processors | None = None
    memory: Memory | None = None
    huge_pages: HugePages | None = None
    clock: ClockSource | None = None
    kernel: Kernel | None = None
    features: Features | None = None
    doors: tuple[Door, ...] | None = None
    credentials: str | None = None
    exposed: tuple[tuple[str, str], ...] | None = None
    engines: Engines | None = None
    software: Software | None = None
    wake_ups: WakeUps | None = None
    nvidia: Nvidia | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
