"""A systemd that runs beside the host's own: PID 1 of namespaces of its own, on an
overlay of the root.

Nothing of the host changes, and what is started in it is killed with it.
"""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Final, TypeVar

import ringbatch.engine

T = TypeVar("T")

_BOOT: Final = Path(__file__).with_name("boot.sh")
_HIERARCHIES: Final = Path("/sys/fs/cgroup")
_TOOLS: Final = ("systemctl", "systemd-analyze", "unshare", "nsenter", "pivot_root", "journalctl")
_LIMIT_S: Final = 60.0
PREFIX: Final = "/opt/ringbatch"
"""Folder in the machine in which the ringbatch under test is installed."""
_PATH: Final = "/opt/path"


def why_not() -> str:
    """Return the reason why this machine cannot boot systemd in namespaces; empty if it can."""
    if os.geteuid() != 0:
        return "only root can make the namespaces"
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"there is no {', '.join(missing)} here"
    if not Path("/lib/systemd/systemd").exists():
        return "systemd is not installed"
    tried = subprocess.run(
        ["unshare", "--pid", "--mount", "--cgroup", "--ipc", "--uts", "--net", "--fork", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return tried.stderr.strip()


class Machine:
    """Machine booted with systemd, in namespaces of this host.

    Args:
        pid: of its PID 1, as the host sees it.
        python: its interpreter.
    """

    def __init__(self, pid: int, python: str) -> None:
        self.pid = pid
        self.python = python

    @cached_property
    def ringbatch(self) -> str:
        """The command of the ringbatch that is installed in it."""
        code = "import sysconfig; print(sysconfig.get_path('scripts'))"
        return f"{self.run(self.python, '-c', code)}/ringbatch"

    def command(self, *words: str) -> list[str]:
        """Return the command line that runs a command in the machine."""
        return ["nsenter", f"--target={self.pid}", "--all", "--wdns=/", *words]

    def run(self, *words: str, check: bool = True) -> str:
        """Run a command in the machine and return its output, errors included."""
        done = subprocess.run(
            self.command(*words),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_LIMIT_S,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )
        assert done.returncode == 0 or not check, f"{' '.join(words)}: {done.stdout}"
        return done.stdout.strip()

    def write(self, path: str, text: str, mode: str = "0644") -> None:
        """Make a file in it, as a whole."""
        script = 'mkdir -p "${1%/*}" && cat >"$1.new" && chmod "$2" "$1.new" && mv "$1.new" "$1"'
        words = self.command("bash", "-c", script, "bash", path, mode)
        subprocess.run(words, input=text, text=True, check=True)

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.run("systemctl", "show", "--value", f"--property={name}", unit)

    def processes(self, unit: str) -> dict[str, int]:
        """Return the processes of a unit: their titles in `ps`, and their ids in the machine."""
        group = self.show(unit, "ControlGroup")
        procs = self.run("cat", f"/sys/fs/cgroup/systemd{group}/cgroup.procs", check=False)
        if not group or not procs:
            procs = self.run("cat", f"/sys/fs/cgroup{group}/cgroup.procs", check=False)
        found = {}
        for pid in procs.split():
            if pid.isdecimal():
                title = self.run("ps", "-o", "args=", "-p", pid, check=False)
                found[title] = int(pid)
        return found

    def journal(self, unit: str) -> str:
        """Return the log of a unit."""
        return self.run("journalctl", "--no-pager", "--output=cat", f"--unit={unit}")


def wait_for(look: Callable[[], T], condition: str, limit_s: float = _LIMIT_S) -> T:
    """Wait for the first true value of `look`, and return it."""
    give_up_at = time.monotonic() + limit_s
    while not (value := look()):
        assert time.monotonic() < give_up_at, f"waited {limit_s:g} s in vain for: {condition}"
        time.sleep(0.05)
    return value


@contextmanager
def booted() -> Iterator[Machine]:
    """A machine that is up, with ringbatch in `PREFIX`; it is gone afterwards."""
    scratch = tempfile.mkdtemp(prefix="ringbatch-systemd-")
    groups = _make_groups(Path(scratch).name)
    mounts, script = _installation()
    process = subprocess.Popen(
        [
            *("unshare", "--pid", "--mount", "--cgroup", "--ipc", "--uts", "--net", "--fork"),
            *("--kill-child", str(_BOOT), scratch, *mounts),
        ],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: _enter(groups),
    )
    try:
        pid = wait_for(lambda: _first_child(process), "the first process of it")
        machine = Machine(pid, _python())
        wait_for(lambda: _is_up(machine, process), "systemd")
        machine.write(machine.ringbatch, script, "0755")
        yield machine
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        for group in groups:
            wait_for(partial(_removed, group), f"the end of all in {group}")
        os.rmdir(scratch)


def _is_up(machine: Machine, process: subprocess.Popen[str]) -> bool:
    assert process.poll() is None, f"it ended: {process.communicate()[1]}"
    return machine.run("systemctl", "is-active", "booted.target", check=False) == "active"


def _first_child(process: subprocess.Popen[str]) -> int:
    assert process.poll() is None, f"it ended: {process.communicate()[1]}"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0]) if children else 0


def _make_groups(name: str) -> list[Path]:
    """A cgroup below this process's own, in every hierarchy."""
    groups = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        folder = {"": "unified", "name=systemd": "systemd"}.get(controllers, controllers)
        root = _HIERARCHIES / folder
        if not controllers and not root.exists():
            root = _HIERARCHIES
        group = root / path.lstrip("/") / name
        with suppress(OSError):  # not mounted, or not to be written
            group.mkdir()
            groups.append(group)
            for setting in ("cpuset.cpus", "cpuset.mems"):
                if (group / setting).exists() and controllers:
                    (group / setting).write_text((group.parent / setting).read_text())
    return groups


def _enter(groups: list[Path]) -> None:
    for group in groups:
        (group / "cgroup.procs").write_text(str(os.getpid()))


def _removed(group: Path) -> bool:
    for folder in sorted(group.rglob("*/"), reverse=True):
        with suppress(OSError):
            folder.rmdir()
    with suppress(OSError):
        group.rmdir()
    return not group.exists()


def _python() -> str:
    return f"{PREFIX}/{Path(os.path.realpath(sys.executable)).relative_to(sys.base_prefix)}"


def _installation() -> tuple[list[str], str]:
    """Return the mounts and the command's text for this interpreter and all that it imports."""
    base = sys.base_prefix
    standard = sysconfig.get_path("stdlib")
    mounts = [base, PREFIX]
    paths = [f"{_PATH}/ringbatch"]
    packages = Path(str(ringbatch.engine.__file__)).resolve().parent.parent
    for package in ("engine", "frontend", "shm"):
        mounts += [str(packages / package), f"{_PATH}/ringbatch/ringbatch/{package}"]
    # In a working copy, a link from the package to the folder beside it.
    units = (packages / "engine" / "systemd" / "units").resolve()
    mounts += [str(units), f"{_PATH}/ringbatch/ringbatch/systemd"]
    for number, folder in enumerate(path for path in sys.path if Path(path).is_dir()):
        if not folder.startswith(standard) or folder.endswith("site-packages"):
            mounts += [folder, f"{_PATH}/{number}"]
            paths.append(f"{_PATH}/{number}")
    script = (
        "#!/bin/sh\n"
        f"export PYTHONPATH={':'.join(paths)} PYTHONDONTWRITEBYTECODE=1\n"
        # An interpreter may look for its library where it was built.
        f"export LD_LIBRARY_PATH={PREFIX}/lib\n"
        f'exec {_python()} -P -m ringbatch.engine "$@"\n'
    )
    return mounts, script
