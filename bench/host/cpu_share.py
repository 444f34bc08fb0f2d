"""A share of a core for each of several processes, or for some together, or the cores for all as
equals, by the kernel's control groups.

So there can be more such processes than cores, each as on a core of its own that is slower. It
takes root, or the right to make groups.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

PERIOD_US = 100_000
"""The kernel's own default, and systemd's. In shorter ones a process of several threads is stopped
more often while one of them holds what the others wait for."""

Hold = Callable[[Sequence[int], float], None]
"""``hold(pids, share)``: from now on the processes together get that part of one core and no more,
and so do those that they start."""


class NoControlGroups(RuntimeError):
    """The kernel has none for CPU time, or this user may not make any."""


@contextmanager
def cpu_shares(root: Path | None = None, period_us: int = PERIOD_US) -> Iterator[Hold]:
    """Yield what holds processes to a share; every one must have ended when the context does.

    Args:
        root: where groups for CPU time are made; found in /proc/mounts by default.
        period_us: in which each group gets its share. In one of 1 ms over the share or more: the
            kernel gives no less than a millisecond.

    Raises:
        NoControlGroups: also from `Hold`.
    """
    cgroup = root or mounted(Path("/proc/mounts").read_text())
    with ExitStack() as undo:

        def hold(pids: Sequence[int], share: float) -> None:
            group = _made(cgroup / f"ringbatch-bench-{os.getpid()}-{pids[0]}")
            undo.callback(group.rmdir)
            for name, text in limits(
                share, unified=_is_unified(cgroup), period_us=period_us
            ).items():
                (group / name).write_text(text)
            for pid in pids:
                _put(pid, group)

        yield hold


@contextmanager
def as_equals(root: Path | None = None) -> Iterator[None]:
    """Have this process and all that it starts share the cores as equals, whatever sessions they
    lead.

    Without control groups Linux shares the cores out among sessions first (autogroup, see
    sched(7)). Then the load of a benchmark competes with what it measures as one group with others,
    which load from another host does not.

    Args:
        root: as of `cpu_shares`.

    Raises:
        NoControlGroups
    """
    cgroup = root or mounted(Path("/proc/mounts").read_text())
    group = _made(cgroup / f"ringbatch-bench-{os.getpid()}")
    try:
        _put(os.getpid(), group)
        yield
    finally:
        # Helpers of multiprocessing's end only after this.
        for pid in (group / "cgroup.procs").read_text().split():
            _put(int(pid), cgroup)
        group.rmdir()


def _made(group: Path) -> Path:
    try:
        group.mkdir()
    except OSError as error:
        raise NoControlGroups(f"{group} cannot be made: {error.strerror}") from None
    return group


def _put(pid: int, group: Path) -> None:
    with (group / "cgroup.procs").open("a") as members:
        members.write(f"{pid}\n")


def mounted(mounts: str) -> Path:
    """Return where groups for CPU time are made.

    Args:
        mounts: the text of /proc/mounts.

    Raises:
        NoControlGroups: nowhere.
    """
    for line in mounts.splitlines():
        _, mount_point, kind, options, *_ = line.split()
        path = Path(mount_point)
        if kind == "cgroup" and "cpu" in options.split(","):
            return path
        if kind == "cgroup2" and _is_unified(path):
            return path
    raise NoControlGroups("no control groups for CPU time are mounted")


def limits(share: float, *, unified: bool, period_us: int = PERIOD_US) -> dict[str, str]:
    """Return what is written into which file of a group.

    Sources: https://docs.kernel.org/scheduler/sched-bwc.html and, where all controllers share one
    hierarchy, https://docs.kernel.org/admin-guide/cgroup-v2.html, "CPU Interface Files".
    """
    quota_us = round(share * period_us)
    if unified:
        return {"cpu.max": f"{quota_us} {period_us}"}
    return {"cpu.cfs_period_us": str(period_us), "cpu.cfs_quota_us": str(quota_us)}


def _is_unified(cgroup: Path) -> bool:
    controllers = cgroup / "cgroup.subtree_control"
    return controllers.exists() and "cpu" in controllers.read_text().split()
