"""Checks of CPUs, threads, clocks and wake-ups. Pure."""

from collections.abc import Iterator
from typing import Final

from ringbatch.engine.doctor.case import Case, Topic
from ringbatch.engine.doctor.findings import Finding, counted
from ringbatch.engine.process.cpu_plan import CpuSet, listed

_CPUS: Final = Topic(
    "cpus",
    "with one CPU nobody watches for an answer, and frontends, collector and workers take turns",
)
_QUOTA: Final = Topic(
    "cpu-quota", "once it is used up, every process of the group stands still until the next period"
)
_THREADS: Final = Topic("threads", "more threads than CPUs wait for one another within every batch")
_SETS: Final = Topic("cpu-sets", "memory of another NUMA node takes longer to reach")
_GOVERNOR: Final = Topic(
    "governor", "a CPU that clocks down while it idles is slow just when a request comes"
)
_SMT: Final = Topic("smt", "two threads of one core share its arithmetic units")
_CLOCK: Final = Topic("clock", "every request looks at the clock several times")
_WAKE: Final = Topic("wake-ups", "a lone request wakes three processes, one after the other")

_FAST_CLOCKS: Final = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")
_SLOW_LOOK_NS: Final = 500
_THROTTLED: Final = 0.05
_USUAL_TRIP_NS: Final = 150_000
"""Two wake-ups and the Python of both sides. A wake-up takes 30 to 60 µs on an idle virtual
machine, and a few µs if the cores are awake (bench/methods.md, client.py)."""
_USUAL: Final = "usual are 10 to 150 µs: bench/methods.md, client.py"
_SLOW_TRIP_NS: Final = 1_000_000
_STALL_NS: Final = 20_000_000
_BUSY: Final = 0.8
_STOLEN: Final = 0.05


def cpus(case: Case) -> Iterator[Finding]:
    """Check the number of CPUs for the number of processes."""
    found = case.facts.processors
    if found is None:
        yield _CPUS.unknown("the number of CPUs")
        return
    host = found.host
    usable = counted(len(host.cpus), "CPU")
    have = f"{usable} may be used ({listed(host.cpus)}) of {found.online}"
    if host.quota == 1:
        yield _CPUS.warning(have, "give it two CPUs or more")
    elif case.config.server.frontends > host.quota:
        yield _CPUS.note(
            f"{have}; {case.config.server.frontends} frontends are configured",
            "configure no more frontends than CPUs",
            "frontends that wait for a CPU answer no sooner than fewer of them",
        )
    else:
        yield _CPUS.ok(have)


def cpu_quota(case: Case) -> Iterator[Finding]:
    """Check the CPU quota of the control group."""
    group, found = case.facts.group, case.facts.processors
    if group is None or found is None:
        yield _QUOTA.unknown("the control group")
        return
    count = len(found.host.cpus)
    if group.cpus is None or group.cpus >= count:
        yield _QUOTA.ok("there is none" if group.cpus is None else "it is not below the CPUs")
        return
    have = f"a quota of {group.cpus:g} CPUs, with {count} to be seen"
    if group.throttled is not None and group.throttled > _THROTTLED:
        yield _QUOTA.warning(
            f"{have}; it stopped the group in {group.throttled:.0%} of all periods so far",
            "raise CPUQuota= or the container's CPU limit, or pin with CPUAffinity= or cpuset "
            "instead of a quota; or configure fewer threads, workers and frontends",
        )
    elif case.config.server.placement == "auto":
        yield _QUOTA.warning(
            f'{have}; placement = "auto" divides nothing under a quota',
            "replace the quota by CPUs of its own (CPUAffinity=, cpuset), or name cpus and "
            "frontend_cpus",
            "others with a quota on this host would choose the same CPUs",
        )
    else:
        yield _QUOTA.note(
            have,
            "prefer CPUs of its own (CPUAffinity=, cpuset) to a quota; threads follow either",
        )


def threads(case: Case) -> Iterator[Finding]:
    """Check the threads of math libraries against the CPUs that they have."""
    found, needs = case.facts.processors, case.needs
    if found is None:
        yield _THREADS.unknown("the number of CPUs")
        return
    if not needs.workers:
        yield _THREADS.ok("no worker computes")
        return
    total = sum(worker.threads for worker in needs.workers)
    quota = found.host.quota
    each = " or ".join(map(str, sorted({worker.threads for worker in needs.workers})))
    have = (
        f"{counted(len(needs.workers), 'worker')}, threads of each: {each}, {total} in all, on "
        f"{counted(quota, 'CPU')}"
    )
    if total <= quota:
        yield _THREADS.ok(have)
        return
    if total == len(needs.workers):
        yield _THREADS.note(have, f"try workers = {quota}, in all models together, and measure")
        return
    variables = sorted({worker.variable for worker in needs.workers} - {""})
    if variables:
        do = f"take {', '.join(variables)} out of the environment, or set threads for the model"
        have += f"; {', '.join(variables)} of the environment decides"
    else:
        do = f"set threads = {max(1, quota // len(needs.workers))}, or leave it out"
    yield _THREADS.warning(have, do)


def cpu_sets(case: Case) -> Iterator[Finding]:
    """Check the configuration's CPU sets against the host's CPUs and NUMA nodes."""
    found, plan = case.facts.processors, case.needs.plan
    if found is None:
        yield _SETS.unknown("the CPUs")
        return
    if plan is None:
        yield _SETS.error(
            case.needs.misplaced,
            "name CPUs that this process may use, or leave cpus and frontend_cpus out",
            "the engine does not start",
        )
        return
    nodes = {number: own for number, own in found.host.nodes.items() if own}
    shown = f"{len(nodes)} NUMA nodes" if len(nodes) > 1 else "one NUMA node"
    sets = [*plan.workers, *([CpuSet(plan.frontends, 0)] if plan.frontends else [])]
    astride = {
        listed(own.cpus)
        for own in sets
        if own.cpus and sum(bool({*own.cpus} & {*node}) for node in nodes.values()) > 1
    }
    if astride:
        yield _SETS.warning(
            f"CPU sets {' and '.join(sorted(astride))} lie across NUMA nodes",
            "keep each within one: "
            + "; ".join(f"node {n} has {listed(c)}" for n, c in nodes.items()),
        )
    elif len(nodes) > 1 and all(own.cpus is None for own in sets):
        yield _SETS.note(
            f"{shown}, and every process runs on all of them",
            'set placement = "auto", or cpus = ["numa:0", "numa:1"] for the workers, and measure',
        )
    else:
        yield _SETS.ok(shown)


def governor(case: Case) -> Iterator[Finding]:
    """Check the choice of CPU frequencies."""
    found = case.facts.processors
    if found is None or not found.governors:
        yield _GOVERNOR.ok("frequencies are not this host's to choose, or not shown")
        return
    chosen = ", ".join(f"{name} on {count} CPUs" for name, count in sorted(found.governors.items()))
    driver = f" ({found.driver})" if found.driver else ""
    if set(found.governors) == {"performance"}:
        yield _GOVERNOR.ok(f"{chosen}{driver}")
    elif "powersave" in found.governors and "pstate" not in found.driver:
        yield _GOVERNOR.warning(
            f"{chosen}{driver}",
            "cpupower frequency-set -g performance",
            "with this driver powersave holds the CPUs at their lowest frequency",
        )
    else:
        yield _GOVERNOR.note(
            f"{chosen}{driver}", "cpupower frequency-set -g performance, where latency matters"
        )


def smt(case: Case) -> Iterator[Finding]:
    """Check for threads that share a core."""
    found = case.facts.processors
    if found is None or not found.cores:
        yield _SMT.ok("cores are not shown")
        return
    count = len(found.host.cpus)
    if found.cores >= count:
        yield _SMT.ok("each CPU is a core of its own")
        return
    have = f"{count} CPUs are {found.cores} cores"
    total = sum(worker.threads for worker in case.needs.workers)
    if total > found.cores:
        yield _SMT.note(
            f"{have}; workers have {total} threads in all",
            f"try threads with {found.cores} in all, and measure",
        )
    else:
        yield _SMT.ok(have)


def clock(case: Case) -> Iterator[Finding]:
    """Check the cost of reading the clock."""
    found = case.facts.clock
    if found is None:
        yield _CLOCK.unknown("the clock")
        return
    have = f"a look takes {found.read_ns:.0f} ns, clock source {found.source or 'not shown'}"
    known = found.source in ("", *_FAST_CLOCKS)
    if known and found.read_ns < _SLOW_LOOK_NS:
        yield _CLOCK.ok(have)
        return
    yield _CLOCK.warning(
        have,
        "choose tsc, on AArch64 arch_sys_counter, if it is among those available, in "
        "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        "usual are 30 to 100 ns; a clock that is read by a system call, or from a device, takes "
        "a microsecond",
    )


def wake_ups(case: Case) -> Iterator[Finding]:
    """Check the cost of waking a process, and possible reasons if it is high."""
    found = case.facts.wake_ups
    if found is None:
        yield _WAKE.unknown("the cost of a wake-up")
        return
    have = (
        f"two wake-ups and back take {found.median_ns / 1e3:.0f} µs (median of {found.count}), "
        f"one in a hundred {found.p99_ns / 1e3:.0f} µs or more; {_USUAL}"
    )
    if found.median_ns <= _USUAL_TRIP_NS and found.p99_ns <= _STALL_NS:
        yield _WAKE.ok(have)
        return
    do = "; ".join(_suspects(case)) or "look for what runs beside it (top, perf sched)"
    slow = found.median_ns > _SLOW_TRIP_NS or found.p99_ns > _STALL_NS
    yield (_WAKE.warning if slow else _WAKE.note)(f"slower than usual: {have}", do)


def _suspects(case: Case) -> Iterator[str]:
    found, group, processors = case.facts.wake_ups, case.facts.group, case.facts.processors
    if found and found.busy is not None and found.busy > _BUSY:
        yield f"the CPUs were {found.busy:.0%} busy meanwhile: look again when they are not"
    if found and found.stolen is not None and found.stolen > _STOLEN:
        yield (
            f"the hypervisor gave {found.stolen:.0%} of the CPUs' time to others: ask for CPUs of "
            "its own"
        )
    if group and group.throttled:
        yield f"the CPU quota stopped the group in {group.throttled:.0%} of all periods: raise it"
    if processors and set(processors.governors) - {"performance"}:
        yield "the frequency governor is not performance"
    if processors and processors.virtual:
        yield (
            "on a virtual machine an idle core takes 30 to 60 µs to wake: ask for a host that does "
            "not put its cores to sleep"
        )
    elif processors:
        yield "deep sleep states of the CPUs: cpupower idle-set -D 10"


CHECKS: Final = (cpus, cpu_quota, threads, cpu_sets, governor, smt, clock, wake_ups)
