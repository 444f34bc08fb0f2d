"""The fork server: a process that has imported what others need, and makes them by forking.

Most of what a process of the engine costs to start is importing numpy and ringbatch's own modules.
Here that is done once. The supervisor itself does not fork: it has threads, locks and the segment,
and who is forked would have them as they happen to be. It asks for each process on a socket pair,
in a line of JSON, with the descriptors that the process is to have.

The supervisor is to be the parent, as of those that it executes: it waits for them, and the kernel
ends them with it. So the fork server forks twice. As the process in between ends, the kernel gives
the other one to the supervisor, which has asked for such (PR_SET_CHILD_SUBREAPER, see prctl(2)).
A process does nothing before the supervisor was told its id; where nobody is, it ends.

Who runs other people's code leads a session, by which all that it starts can be found and ended.
Who does not stays in that of whoever started the engine, without its terminal. Linux shares the
cores out among sessions first and only then among a session's processes, where control groups do
not say otherwise (autogroup, see sched(7)): with a session each, all frontends together would get
no more than one worker, and a whole engine no more than one client beside it.
"""

import errno
import fcntl
import gc
import importlib
import json
import os
import signal
import socket
import sys
import termios
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NoReturn

from setproctitle import setproctitle

from ringbatch.engine.process.environment_after_fork import follow
from ringbatch.engine.process.placement import THREAD_VARIABLES
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.after_fork import renew
from ringbatch.shm.host.process import (
    OPERATORS_SIGNALS,
    die_with_parent,
    leave_signals_to_supervisor,
)

MOST_DESCRIPTORS: Final = 250
"""That one process can be given: the kernel passes 253 at once (SCM_MAX_FD in unix(7))."""
_FIRST_OF_OUR_OWN: Final = 3
"""The descriptors below are standard input, output and error."""
_RESET: Final = (signal.SIGCHLD, signal.SIGTERM, signal.SIGQUIT)
_GO: Final = b"g"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A process that is wanted.

    Attributes:
        module: whose `main` it is to run.
        arguments: what `sys.argv` is to have behind the module.
        environment: all of it.
        folder: where it is to run; None for where the fork server was started.
        cpus: on which it is to run.
        own_session: whether it is to lead a session, and not only a process group.
        descriptors: the numbers that it is to have those under which come with this.
    """

    module: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str | None
    cpus: list[int]
    own_session: bool
    descriptors: list[int]


@dataclass(frozen=True, slots=True)
class Made:
    """What became of it.

    Attributes:
        pid: its process id; 0 where there is none.
        errno: the kernel's reason for that.
    """

    pid: int
    errno: int = 0


def command(module: str, arguments: Iterable[str]) -> list[str]:
    """Return the command line that executes a module instead."""
    return [sys.executable, "-P", "-m", module, *arguments]


def ask(line: socket.socket, wanted: Wanted, descriptors: Sequence[int]) -> Made | None:
    """Have a process made, from the supervisor's end; None where the fork server is gone.

    Raises:
        TimeoutError: it does not answer.
    """
    text = json.dumps(asdict(wanted)).encode() + b"\n"
    with suppress(ConnectionError):
        sent = socket.send_fds(line, [text], descriptors)
        line.sendall(text[sent:])
    return answer(line)


def answer(line: socket.socket) -> Made | None:
    """What it answers; None where it is gone.

    Raises:
        TimeoutError: it does not answer.
    """
    text = b""
    with suppress(ConnectionError):
        while not text.endswith(b"\n") and (data := line.recv(1024)):
            text += data
    return Made(**json.loads(text)) if text.endswith(b"\n") else None


def run(line: socket.socket, supervisor: int, preloaded: Iterable[str]) -> NoReturn:
    """Be the fork server, in a process that was forked for that and has one thread.

    Args:
        line: its end of the socket pair.
        supervisor: the process id of who asks.
        preloaded: the modules to import.

    Raises:
        SystemExit: at its end, and at that of each process that it makes.
    """
    _leave_terminal()
    # Whoever started the engine may have had some blocked or ignored. Without SIGCHLD one waits for
    # children in vain.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)
    leave_signals_to_supervisor()
    setproctitle("ringbatch: fork server")
    try:
        die_with_parent(supervisor)
        _let_go_of_all_but(line.fileno())
        _preload(preloaded)
    except (StartupError, ImportError, OSError):
        # Where that matters, whoever is executed instead says it.
        raise SystemExit(1) from None
    wanted = _serve(line)
    if wanted is None:
        raise SystemExit(0)
    for number in OPERATORS_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        status = _become(wanted)
    except Exception:
        # The supervisor's frames, through which it would pass, would take it for one of theirs.
        sys.excepthook(*sys.exc_info())
        status = 1
    raise SystemExit(status)


def _leave_terminal() -> None:
    """Get no signals from a terminal, and have none that stops who writes to it in the background
    (``stty tostop``), in the session that is there: see ioctl_tty(2) on TIOCNOTTY."""
    os.setpgid(0, 0)
    # There may be none to leave.
    with suppress(OSError), open("/dev/tty", "rb", 0) as terminal:
        fcntl.ioctl(terminal, termios.TIOCNOTTY)


def _let_go_of_all_but(kept: int) -> None:
    """Keep but standard output and error and one more, as who is executed does; there is nothing
    to read."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    code = _mapped_code()
    for number in map(int, os.listdir("/proc/self/fd")):
        if number >= _FIRST_OF_OUR_OWN and number != kept:
            # That of the list itself is closed already.
            with suppress(OSError):
                if os.readlink(f"/proc/self/fd/{number}") not in code:
                    os.close(number)


def _mapped_code() -> set[str]:
    """Return the files whose code is mapped here. A library may keep such a file open to map it
    again: libffi 3.5 does so for each hundred functions that C is to call, and would find none, or
    another file, under the number."""
    lines = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    return {line[5] for line in lines if len(line) == 6 and "x" in line[1]}


def _preload(modules: Iterable[str]) -> None:
    """Import modules, for nobody's use in this process: a thread that a library starts would be
    missing in whoever is forked."""
    if not sys.flags.safe_path:
        # The user's folder, or the command's, which Python itself has put there.
        del sys.path[0]
    before = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    os.environ |= dict.fromkeys(THREAD_VARIABLES, "1")
    gc.disable()
    for name in modules:
        importlib.import_module(name)
    # The pages are shared as long as nobody writes to them, and the garbage collector does.
    gc.collect()
    gc.freeze()
    for name in THREAD_VARIABLES:
        del os.environ[name]
    os.environ |= before


def _serve(line: socket.socket) -> Wanted | None:
    """Make what is wanted.

    Returns:
        In each process that was made, what it is to be; None at the end.
    """
    while (received := _receive(line)) is not None:
        wanted, descriptors = received
        with closing(_Gate()) as gate:
            try:
                if len(descriptors) != len(wanted.descriptors):
                    raise OSError(errno.EMFILE, "there is no room for more of them")
                made = gate.fork_twice()
            except OSError as error:
                made = Made(0, error.errno or errno.EAGAIN)
            if made is None:
                line.close()
                gate.wait(own_session=wanted.own_session)
                _renumber(descriptors, wanted.descriptors)
                return wanted
            with suppress(ConnectionError):
                line.sendall(json.dumps(asdict(made)).encode() + b"\n")
                gate.open()
        for descriptor in descriptors:
            os.close(descriptor)
    return None


def _receive(line: socket.socket) -> tuple[Wanted, list[int]] | None:
    """What is asked for, and the descriptors that come with it; None where nobody asks any more."""
    text, descriptors = b"", list[int]()
    with suppress(ConnectionError):
        while not text.endswith(b"\n"):
            data, found, _, _ = socket.recv_fds(line, 1 << 16, MOST_DESCRIPTORS)
            descriptors += found
            if not data:
                break
            text += data
    return (Wanted(**json.loads(text)), descriptors) if text.endswith(b"\n") else None


class _Gate:
    """Where a process that was made says its id, and waits until it may go on."""

    def __init__(self) -> None:
        self._heard = self._saying = self._seen = self._opening = -1

    def fork_twice(self) -> Made | None:
        """Make a process whose parent ends at once; None in that process.

        Raises:
            OSError: the kernel refuses it.
        """
        self._heard, self._saying = os.pipe()
        self._seen, self._opening = os.pipe()
        between = os.fork()
        if between == 0:
            try:
                made = os.fork()
            except OSError as error:
                os._exit(error.errno or errno.EAGAIN)
            if made:
                os._exit(0)
            return None
        self._saying = _closed(self._saying)
        said = os.read(self._heard, 32)
        # From then on the other one is the supervisor's.
        _, status = os.waitpid(between, 0)
        return Made(int(said or 0), 0 if said else os.waitstatus_to_exitcode(status))

    def wait(self, *, own_session: bool) -> None:
        """Say its id, in the process that was made, as the leader of a session or process group
        that can be ended, and wait; where the gate stays shut, end."""
        self._heard, self._opening = _closed(self._heard), _closed(self._opening)
        if own_session:
            os.setsid()
        else:
            os.setpgid(0, 0)
        os.write(self._saying, str(os.getpid()).encode())
        if os.read(self._seen, 1) != _GO:
            os._exit(1)
        self.close()

    def open(self) -> None:
        """Let it go on, if it was made and has not been killed meanwhile."""
        if self._opening >= 0:
            with suppress(BrokenPipeError):
                os.write(self._opening, _GO)

    def close(self) -> None:
        """Let go of the pipes."""
        self._heard, self._saying = _closed(self._heard), _closed(self._saying)
        self._seen, self._opening = _closed(self._seen), _closed(self._opening)


def _closed(descriptor: int) -> int:
    """Close a descriptor, where it is one; what is there in its stead."""
    if descriptor >= 0:
        os.close(descriptor)
    return -1


def _renumber(found: Sequence[int], numbers: Sequence[int]) -> None:
    """Have descriptors under these numbers, in an order in which none is taken that one still has;
    so no number beyond these is needed, of which there may be none."""
    left = dict(zip(numbers, found, strict=True))
    while left:
        free = next((n for n, has in left.items() if n == has or n not in left.values()), None)
        if free is None:
            # They have each other's.
            number, descriptor = next(iter(left.items()))
            left[number] = os.dup(descriptor)
            os.close(descriptor)
            continue
        descriptor = left.pop(free)
        if descriptor == free:
            os.set_inheritable(free, True)
        else:
            os.dup2(descriptor, free)
            os.close(descriptor)


def _become(wanted: Wanted) -> int:
    """Run what is wanted, as if it were executed; its exit status."""
    os.environ.clear()
    os.environ |= wanted.environment
    follow(os.environ)
    renew()
    # They may be gone since they were planned.
    with suppress(OSError):
        os.sched_setaffinity(0, wanted.cpus)
    if wanted.folder is not None:
        os.chdir(wanted.folder)
    gc.enable()
    module = importlib.import_module(wanted.module)
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"{wanted.module}.__main__")
    # What a model starts by multiprocessing's ways imports this one's main module.
    sys.modules["__main__"] = module
    sys.argv = [str(Path(module.__file__ or "").resolve()), *wanted.arguments]
    sys.orig_argv = command(wanted.module, wanted.arguments)
    status: int = module.main()
    return status
