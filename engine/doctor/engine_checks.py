"""Checks of ports, and of engines that run or have left something. Pure."""

from collections.abc import Iterator
from typing import Final

from ringbatch.engine.doctor.case import Case, Topic
from ringbatch.engine.doctor.facts import Door
from ringbatch.engine.doctor.findings import Finding, sized

PORTS: Final = "ports"
_PORTS: Final = Topic(PORTS, "an engine that cannot have its ports does not start")
_RUNNING: Final = Topic("engines", "engines on one host share its CPUs, its memory and /dev/shm")
_LEFT: Final = Topic(
    "leftovers",
    "what an engine leaves whose supervisor and collector were both killed takes memory",
)
_OWN: Final = "ringbatch: "
_SYSTEMDS: Final = ("init", "systemd")
"""The programs that systemd runs as."""
_SHOWN: Final = 5


def ports(case: Case) -> Iterator[Finding]:
    """Check that the ports of the configuration are free."""
    doors, kernel = case.facts.doors, case.facts.kernel
    if doors is None:
        yield _PORTS.unknown("whether ports are free")
        return
    for door in doors:
        if door.refusal:
            yield _refused(door, case)
        elif (
            case.asked
            and kernel
            and kernel.outgoing_ports
            and kernel.outgoing_ports[0] <= door.port <= kernel.outgoing_ports[1]
        ):
            low, high = kernel.outgoing_ports
            yield _PORTS.note(
                f"[server] {door.key}: {door.port} is free now, and among the ports {low} to "
                f"{high} that outgoing connections get",
                f"choose one below {low}, or add it to net.ipv4.ip_local_reserved_ports",
                "an outgoing connection may have it when the engine starts",
            )
        else:
            address = door.path or door.port or "any port"
            yield _PORTS.ok(f"[server] {door.key}: {address} is free")


def _refused(door: Door, case: Case) -> Finding:
    held = ", ".join(f"process {pid} ({title or 'no title'})" for pid, title in door.holders)
    found = f"[server] {door.key}: cannot listen on {door.place}: {door.refusal}"
    if not door.taken and door.path:
        return _PORTS.error(found, f"choose another path, in [server] {door.key}, or mend that")
    if not door.taken:
        return _PORTS.error(
            found,
            f"choose another address, in [server] {door.home}, or another port, in [server] "
            f"{door.key}; ports below 1024 need a privilege",
        )
    found += f"; {held} has it" if held else "; who has it cannot be seen"
    if _is_replaced(door, case):
        return _PORTS.note(
            found,
            "nothing for a reload or a handover; stop it before another engine starts",
        )
    if door.is_for_http and door.holders and all(_is_systemd(title) for _, title in door.holders):
        return _PORTS.note(
            found,
            "nothing where that is ringbatch@NAME.socket of the engine to be examined: systemd "
            "passes the socket to it",
        )
    kind = "path" if door.path else "port"
    do = f"stop what has it, or choose another {kind}, in [server] {door.key}"
    return _PORTS.error(found, do) if case.asked else _PORTS.note(found, do)


def _is_replaced(door: Door, case: Case) -> bool:
    """Return whether the engine with the port goes before the configured one starts.

    It does if it has that name, or its name is unknown.
    """
    running = case.facts.engines.running if case.facts.engines else ()
    names = {engine.pid: engine.engine for engine in running}
    own = [pid for pid, title in door.holders if title.startswith(_OWN)]
    known = {names[pid] for pid in own if pid in names}
    return bool(own) and (not known or case.config.server.name in known)


def _is_systemd(title: str) -> bool:
    return title.partition(" ")[0].rpartition("/")[2] in _SYSTEMDS


def engines(case: Case) -> Iterator[Finding]:
    """Check for running engines."""
    found = case.facts.engines
    if found is None:
        yield _RUNNING.unknown("which engines run")
        return
    if found.running:
        shown = "; ".join(
            f"{engine.engine} (process {engine.pid}) serves {', '.join(engine.models)} with "
            f"{sized(engine.segment_bytes)} of shared memory"
            for engine in found.running
        )
        yield _RUNNING.ok(shown)
    else:
        yield _RUNNING.ok("none of this user runs")
    if found.of_other_versions:
        yield _RUNNING.note(
            f"of another version of ringbatch: {_some(found.of_other_versions)}",
            "use that version's commands for them",
        )
    if found.of_others:
        yield _RUNNING.note(
            f"{len(found.of_others)} of other users: {_some(found.of_others)}",
            "look at them as those users; whether they run cannot be known as this one",
        )


def leftovers(case: Case) -> Iterator[Finding]:
    """Check for remains of dead engines."""
    found = case.facts.engines
    if found is None:
        return
    if found.left:
        yield _LEFT.warning(
            f"dead engines have left {len(found.left)} files in /dev/shm, "
            f"{sized(found.left_bytes)}: {_some(found.left)}",
            "nothing: the next start removes them; look in the log for what killed the engine "
            "(journalctl -k, for want of memory?)",
        )
    else:
        yield _LEFT.ok("none")


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


CHECKS: Final = (ports, engines, leftovers)
