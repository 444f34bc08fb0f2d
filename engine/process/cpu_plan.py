"""CPU plan: the CPUs of each process and the threads of each worker. Pure.

By default every process runs on every CPU, and the scheduler decides. On a small host, no other
plan measured better. With ``placement = "auto"`` a host of four CPUs or more is divided. Frontends
and the collector get a quarter of the CPUs, but at most one for each frontend and one for the
collector. The workers share the rest. With enough workers, each stays within one NUMA node, so that
its memory is near. If a quota allows less than the visible CPUs, nothing is divided: other
processes with a quota on that host would choose the same CPUs.

CPUs that the configuration gives to single workers or to the frontends take precedence.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

_LEAST_TO_DIVIDE: Final = 4
_NUMA: Final = "numa:"

Cpus = tuple[int, ...]


class Misplaced(ValueError):
    """The configuration names CPUs that cannot be used; the text lists the CPUs that can."""


@dataclass(frozen=True, slots=True)
class Host:
    """CPUs and NUMA nodes of the host, and the quota on them.

    Attributes:
        cpus: the usable CPUs, ascending.
        nodes: the same by NUMA node; empty if the host does not report nodes.
        quota: the number of CPUs that may be busy at once.
    """

    cpus: Cpus
    nodes: Mapping[int, Cpus]
    quota: int


@dataclass(frozen=True, slots=True)
class CpuRequest:
    """Configured CPUs and threads of one worker.

    Attributes:
        title: the worker's name in messages.
        cpus: the configured CPUs; None to let the plan decide.
        threads: the configured number of threads; None to let the plan decide.
        waits: True if it mostly waits for another server, and so needs no CPUs of its own.
    """

    title: str
    cpus: str | None = None
    threads: int | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class CpuSet:
    """CPUs and number of threads of one worker; None stands for all CPUs."""

    cpus: Cpus | None
    threads: int


@dataclass(frozen=True, slots=True)
class Plan:
    """CPUs of all processes.

    Attributes:
        workers: a CPU set for each request, in order.
        frontends: the CPUs of the frontends and the collector; None is all.
    """

    workers: tuple[CpuSet, ...]
    frontends: Cpus | None


def plan(
    host: Host,
    requests: Sequence[CpuRequest],
    *,
    auto: bool,
    frontends: int,
    frontend_cpus: str | None,
) -> Plan:
    """Return the CPUs of each process.

    Args:
        host: the host.
        requests: one for each worker, in the order of their numbers.
        auto: True to divide the CPUs.
        frontends: the number of frontends.
        frontend_cpus: the CPUs configured for frontends; None to let the plan decide.

    Raises:
        Misplaced: the configuration names CPUs that cannot be used.
    """
    in_front = None if frontend_cpus is None else named(frontend_cpus, host)
    cpu_sets = [None if request.cpus is None else named(request.cpus, host) for request in requests]
    if auto and host.quota >= len(host.cpus) >= _LEAST_TO_DIVIDE:
        if in_front is None:
            in_front = host.cpus[: max(1, min(frontends + 1, len(host.cpus) // 4))]
        left = [cpu for cpu in host.cpus if cpu not in in_front] or list(host.cpus)
        still_open = [
            number
            for number, request in enumerate(requests)
            if cpu_sets[number] is None and not request.waits
        ]
        for number, cpus in zip(still_open, _shared_out(left, host, len(still_open)), strict=True):
            cpu_sets[number] = cpus
        cpu_sets = [
            in_front if request.waits and cpu_set is None else cpu_set
            for request, cpu_set in zip(requests, cpu_sets, strict=True)
        ]
    busy = [
        cpu_set for request, cpu_set in zip(requests, cpu_sets, strict=True) if not request.waits
    ]
    return Plan(
        tuple(
            CpuSet(
                cpu_set, 1 if request.waits else request.threads or _threads(cpu_set, busy, host)
            )
            for request, cpu_set in zip(requests, cpu_sets, strict=True)
        ),
        in_front,
    )


def _shared_out(cpus: Sequence[int], host: Host, count: int) -> list[Cpus]:
    """Return the CPUs in `count` shares, each within one node if there are enough CPUs."""
    nodes = [tuple(cpu for cpu in cpus if cpu in own) for own in host.nodes.values()]
    nodes = [own for own in nodes if own] or [tuple(cpus)]
    if count < len(nodes):
        return _blocks([cpu for own in nodes for cpu in own], count)
    # One in each node; each further one in the node with the most CPUs per worker left.
    places = [*range(len(nodes))]
    while len(places) < count:
        left = [len(own) / (places.count(number) + 1) for number, own in enumerate(nodes)]
        places.append(left.index(max(left)))
    shares = [iter(_blocks(own, places.count(number))) for number, own in enumerate(nodes)]
    return [next(shares[number]) for number in places]


def _blocks(cpus: Sequence[int], count: int) -> list[Cpus]:
    """Return `count` runs of about equal length; with too few CPUs, all of them `count` times."""
    if count > len(cpus):
        return [tuple(cpus)] * count
    bounds = [len(cpus) * number // count for number in range(count + 1)] if count else [0]
    return [tuple(cpus[low:high]) for low, high in pairwise(bounds)]


def _threads(cpu_set: Cpus | None, cpu_sets: Sequence[Cpus | None], host: Host) -> int:
    """Return the threads of a worker: the CPUs of its set, divided among the workers on it."""
    available = host.quota if cpu_set is None else min(len(cpu_set), host.quota)
    return max(1, available // cpu_sets.count(cpu_set))


def named(text: str, host: Host) -> Cpus:
    """Return the CPUs of a text such as ``0-3,8`` or ``numa:0``.

    Raises:
        Misplaced: a CPU does not exist, or may not be used.
    """
    if text.startswith(_NUMA):
        node = int(text.removeprefix(_NUMA))
        if not host.nodes.get(node):
            known = ", ".join(str(number) for number, cpus in host.nodes.items() if cpus)
            raise Misplaced(f'"{text}": there is no such NUMA node to use; there is: {known}')
        return host.nodes[node]
    cpus = sorted(parsed(text))
    missing = [cpu for cpu in cpus if cpu not in host.cpus]
    if missing or not cpus:
        raise Misplaced(f'"{text}": these cannot all be used; usable are {listed(host.cpus)}')
    return tuple(cpus)


def parsed(text: str) -> set[int]:
    """Return the numbers of a list such as ``0-3,8``, Linux's format for CPUs."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        low, _, high = part.partition("-")
        if low:
            cpus.update(range(int(low), int(high or low) + 1))
    return cpus


def listed(cpus: Iterable[int]) -> str:
    """Return CPUs as a list such as ``0-3,8``."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def described(plan: Plan, requests: Sequence[CpuRequest], host: Host) -> str:
    """Return the plan as one line of text."""
    everything = listed(host.cpus)
    groups: dict[tuple[str, int], list[str]] = {}
    for request, cpu_set in zip(requests, plan.workers, strict=True):
        where = everything if cpu_set.cpus is None else listed(cpu_set.cpus)
        groups.setdefault((where, cpu_set.threads), []).append(request.title)
    front = everything if plan.frontends is None else listed(plan.frontends)
    parts = [f"frontends and collector on CPUs {front}"]
    for (where, threads), titles in groups.items():
        each = " each" if len(titles) > 1 else ""
        count = f"{threads} thread{'s' * (threads > 1)}"
        parts.append(f"{', '.join(titles)} on CPUs {where}, {count}{each}")
    return "; ".join(parts)
