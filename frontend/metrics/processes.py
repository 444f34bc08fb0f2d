"""Memory and CPU time of the engine's processes, from the kernel's figures."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_TITLE: Final = "ringbatch: "
"""Begin of a process's title; its role follows."""
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PROC: Final = Path("/proc")


class ResourceUsage(NamedTuple):
    """Resources used by one process, or by all of one name.

    Attributes:
        memory_bytes: resident, with the part that it shares with others.
        cpu_s: since it began.
    """

    memory_bytes: int
    cpu_s: float


def usage(supervisor: int, proc: Path = _PROC) -> dict[str, ResourceUsage]:
    """Return the usage of a supervisor and its descendants, by the role of each.

    Args:
        supervisor: its process id.
        proc: the file system of the kernel.
    """
    found: dict[str, ResourceUsage] = {}
    for pid in _descendants(proc, supervisor):
        # One that ends meanwhile is left out.
        with suppress(OSError, ValueError, IndexError):
            name, own = _title(proc / str(pid)), _usage(proc / str(pid))
            if name:
                other = found.get(name, ResourceUsage(0, 0.0))
                found[name] = ResourceUsage(
                    other.memory_bytes + own.memory_bytes, other.cpu_s + own.cpu_s
                )
    return found


def _descendants(proc: Path, pid: int) -> Iterator[int]:
    """Yield a process and all below it, parents first."""
    yield pid
    with suppress(OSError, ValueError):
        # What starts processes of an engine does so from its first thread.
        for child in (proc / str(pid) / "task" / str(pid) / "children").read_text().split():
            yield from _descendants(proc, int(child))


def _title(process: Path) -> str:
    text = (process / "cmdline").read_bytes().partition(b"\0")[0].decode(errors="replace")
    return text.removeprefix(_TITLE).strip() if text.startswith(_TITLE) else ""


def _usage(process: Path) -> ResourceUsage:
    # The name in brackets may hold anything.
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    pages = int((process / "statm").read_text().split()[1])
    return ResourceUsage(pages * _PAGE_BYTES, (int(fields[11]) + int(fields[12])) / _TICKS_PER_S)
