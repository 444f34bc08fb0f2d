"""Resources that the processes of a server hold, over time: memory, descriptors, threads."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from open_files import open_files

YOUNG_S = 20.0
"""Age until which a process warms up."""


@dataclass(frozen=True)
class Held:
    """Resources of a process: anonymous memory in KiB, open descriptors, threads."""

    memory_kib: int
    descriptors: int
    threads: int


def held(pid: int) -> Held | None:
    """Return the resources that a process holds; None if it has ended."""
    with suppress(OSError, KeyError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return Held(
            memory_kib=int(fields["RssAnon"].split()[0]),
            descriptors=len(open_files(pid)),
            threads=int(fields["Threads"]),
        )
    return None


def role_of(title: str) -> str:
    """A process's role without the number of its place."""
    words = title.removeprefix("ringbatch: ").split()
    return " ".join(word for word in words if "/" not in word and not word.isdecimal())


@dataclass
class Watch:
    """Samples by role and process."""

    samples: dict[str, dict[int, list[tuple[float, Held]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def look(self, titles: dict[str, int], now: float) -> None:
        """Take one sample of every process."""
        for title, pid in titles.items():
            found = held(pid)
            if found is not None:
                self.samples[role_of(title)][pid].append((now, found))

    def report(self) -> Iterable[str]:
        """A line for each role: the memory's slope, and the ranges of the rest."""
        for role, processes in sorted(self.samples.items()):
            grown = [s for samples in processes.values() for s in settled(samples)]
            if not grown:
                continue
            longest = max((settled(s) for s in processes.values()), key=len)
            memory = [h.memory_kib for _, h in grown]
            descriptors = [h.descriptors for _, h in grown]
            threads = [h.threads for _, h in grown]
            lived_s = longest[-1][0] - longest[0][0]
            slope = slope_per_s([(t, h.memory_kib) for t, h in longest]) * 60
            across = slope_per_s([(t, h.memory_kib) for t, h in grown]) * 60
            yield (
                f"{role}: {len(processes)} processes; memory {min(memory)} to {max(memory)} KiB, "
                f"slope {slope:+.1f} KiB/min in the oldest ({lived_s:.0f} s after warm-up), "
                f"{across:+.1f} over all; descriptors {min(descriptors)} to {max(descriptors)}, "
                f"threads {min(threads)} to {max(threads)}"
            )


def settled(samples: Sequence[tuple[float, Held]]) -> list[tuple[float, Held]]:
    """The samples of a process after its warm-up."""
    return [(t, h) for t, h in samples if t - samples[0][0] >= YOUNG_S]


def slope_per_s(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the line through points (second, value) that has the least squares."""
    if len(points) < 3:
        return 0.0
    mean_t = sum(t for t, _ in points) / len(points)
    mean_v = sum(v for _, v in points) / len(points)
    spread = sum((t - mean_t) ** 2 for t, _ in points)
    return sum((t - mean_t) * (v - mean_v) for t, v in points) / spread if spread else 0.0
