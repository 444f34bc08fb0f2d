"""Fork server: a process that has imported common modules, and forks the engine's processes.

Most of a process's start-up cost is the import of numpy and of ringbatch's own modules. The fork
server does that once. The supervisor itself does not fork: it has threads, locks and the segment,
and a forked child would get them in an unknown state. It requests each process over a socket pair,
with a line of JSON and the descriptors that the process inherits.

The supervisor must be the parent, as it is of executed processes: it waits for them, and the kernel
ends them with it. So the fork server forks twice. When the process in between ends, the kernel
makes the supervisor the parent of the other one; the supervisor has asked for such children
(PR_SET_CHILD_SUBREAPER, see prctl(2)). A process does nothing before the supervisor has its id, and
ends if the supervisor is gone.

A process that runs user code leads a session, by which all that it starts can be found and ended.
Other processes stay in the session of the caller who started the engine, without its terminal.
Unless control groups decide otherwise, Linux divides the cores among sessions first, and then among
a session's processes (autogroup, see sched(7)). With a session each, all frontends together would
get no more than one worker, and a whole engine no more than one client beside it.
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
from collections.abc import Iterable, Mapping, Sequence
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
"""The most for one process: the kernel passes 253 at once (SCM_MAX_FD in unix(7))."""
_FIRST_OF_OUR_OWN: Final = 3
"""The descriptors below are standard input, output and error."""
_RESET: Final = (signal.SIGCHLD, signal.SIGTERM, signal.SIGQUIT)
_GO: Final = b"g"


@dataclass(frozen=True, slots=True)
class ProcessRequest:
    """Request for a process.

    Attributes:
        module: the module whose `main` it runs.
        arguments: `sys.argv` behind the module.
        environment: all of it.
        folder: its working directory; None for this process's.
        descriptors: that it inherits beside standard output and error, by their numbers.
        own_session: True if it leads a session, and not only a process group, because its
            descendants may leave its group.
        cpus: the CPUs on which it runs; none for those of this process.
    """

    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str | None = None
    descriptors: Sequence[int] = ()
    own_session: bool = True
    cpus: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """Result of a request for a process.

    Attributes:
        pid: the process id; 0 if none was made.
        errno: the kernel's reason for that.
    """

    pid: int
    errno: int = 0


def command(module: str, arguments: Iterable[str]) -> list[str]:
    """Return the command line that executes a module without the fork server."""
    return [sys.executable, "-P", "-m", module, *arguments]


def ask(line: socket.socket, request: ProcessRequest) -> Made | None:
    """Request a process, in the supervisor; return None if the fork server is gone.

    Raises:
        TimeoutError: the fork server does not answer.
    """
    text = json.dumps(asdict(request)).encode() + b"\n"
    with suppress(ConnectionError):
        sent = socket.send_fds(line, [text], request.descriptors)
        line.sendall(text[sent:])
    return answer(line)


def answer(line: socket.socket) -> Made | None:
    """Return the fork server's next answer; None if it is gone.

    Raises:
        TimeoutError: it does not answer.
    """
    text = b""
    with suppress(ConnectionError):
        while not text.endswith(b"\n") and (data := line.recv(1024)):
            text += data
    return Made(**json.loads(text)) if text.endswith(b"\n") else None


def run(line: socket.socket, supervisor: int, preloaded: Iterable[str]) -> NoReturn:
    """Run the fork server, in a process that was forked for it and has one thread.

    Args:
        line: its end of the socket pair.
        supervisor: the process id of the supervisor.
        preloaded: the modules to import.

    Raises:
        SystemExit: at its end, and at the end of each process that it makes.
    """
    try:
        _leave_terminal()
    except PermissionError:
        # A sandbox forbids process groups, which processes that are executed do without.
        raise SystemExit(1) from None
    # The process that started the engine may have blocked or ignored some. With SIGCHLD ignored,
    # waiting for children fails.
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
        # If the module is needed, the process that is executed instead reports the error.
        raise SystemExit(1) from None
    request = _serve(line)
    if request is None:
        raise SystemExit(0)
    for number in OPERATORS_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        status = _become(request)
    except Exception:
        # The exception passes the supervisor's frames, which would handle it as their own.
        sys.excepthook(*sys.exc_info())
        status = 1
    raise SystemExit(status)


def _leave_terminal() -> None:
    """Detach from the terminal of the present session; see ioctl_tty(2) on TIOCNOTTY.

    So the terminal sends no signals, and does not stop background processes that write to it
    (``stty tostop``).
    """
    os.setpgid(0, 0)
    # There may be no terminal.
    with suppress(OSError), open("/dev/tty", "rb", 0) as terminal:
        fcntl.ioctl(terminal, termios.TIOCNOTTY)


def _let_go_of_all_but(kept: int) -> None:
    """Close all descriptors but standard output, standard error and `kept`, as exec does.

    Standard input becomes empty.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    code = _mapped_code()
    for number in map(int, os.listdir("/proc/self/fd")):
        if number >= _FIRST_OF_OUR_OWN and number != kept:
            # The descriptor of the listing itself is closed already.
            with suppress(OSError):
                if os.readlink(f"/proc/self/fd/{number}") not in code:
                    os.close(number)


def _mapped_code() -> set[str]:
    """Return the files whose code is mapped here.

    A library may keep such a file open to map it again: libffi 3.5 does so for each hundred
    callbacks. Under the number of a closed descriptor it would find no file, or another one.
    """
    lines = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    return {line[5] for line in lines if len(line) == 6 and "x" in line[1]}


def _preload(modules: Iterable[str]) -> None:
    """Import modules without using them here.

    A thread that a library started here would be missing in forked processes.
    """
    if not sys.flags.safe_path:
        # Python has put the folder of the user or of the command there.
        del sys.path[0]
    before = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    os.environ |= dict.fromkeys(THREAD_VARIABLES, "1")
    gc.disable()
    for name in modules:
        importlib.import_module(name)
    # Kept from the garbage collector, which writes to objects and so ends the sharing of pages. To
    # look for garbage of imports first takes milliseconds, and finds some sixty objects.
    gc.freeze()
    for name in THREAD_VARIABLES:
        del os.environ[name]
    os.environ |= before


def _serve(line: socket.socket) -> ProcessRequest | None:
    """Make processes on request.

    Returns:
        In each process that was made, its request; None at the end.
    """
    while (received := _receive(line)) is not None:
        request, descriptors = received
        with closing(_Gate()) as gate:
            try:
                if len(descriptors) != len(request.descriptors):
                    raise OSError(errno.EMFILE, "there is no room for more of them")
                made = gate.fork_twice()
            except OSError as error:
                made = Made(0, error.errno or errno.EAGAIN)
            if made is None:
                line.close()
                gate.wait(own_session=request.own_session)
                _renumber(descriptors, request.descriptors)
                return request
            with suppress(ConnectionError):
                line.sendall(json.dumps(asdict(made)).encode() + b"\n")
                gate.open()
        for descriptor in descriptors:
            os.close(descriptor)
    return None


def _receive(line: socket.socket) -> tuple[ProcessRequest, list[int]] | None:
    """Return the next request and its descriptors; None if the supervisor is gone."""
    text, descriptors = b"", list[int]()
    with suppress(ConnectionError):
        while not text.endswith(b"\n"):
            data, found, _, _ = socket.recv_fds(line, 1 << 16, MOST_DESCRIPTORS)
            descriptors += found
            if not data:
                break
            text += data
    return (ProcessRequest(**json.loads(text)), descriptors) if text.endswith(b"\n") else None


class _Gate:
    """Gate at which a new process reports its id and waits for permission to go on."""

    def __init__(self) -> None:
        self._id_reader = self._id_writer = self._seen = self._opening = -1

    def fork_twice(self) -> Made | None:
        """Make a process whose parent ends at once; return None in that process.

        Raises:
            OSError: the kernel refuses it.
        """
        self._id_reader, self._id_writer = os.pipe()
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
        self._id_writer = _closed(self._id_writer)
        said = os.read(self._id_reader, 32)
        # From then on the supervisor is the parent of the other one.
        _, status = os.waitpid(between, 0)
        return Made(int(said or 0), 0 if said else os.waitstatus_to_exitcode(status))

    def wait(self, *, own_session: bool) -> None:
        """In the new process, lead a session or process group, report the id, and wait.

        If the gate stays shut, end the process.
        """
        self._id_reader, self._opening = _closed(self._id_reader), _closed(self._opening)
        if own_session:
            os.setsid()
        else:
            os.setpgid(0, 0)
        os.write(self._id_writer, str(os.getpid()).encode())
        if os.read(self._seen, 1) != _GO:
            os._exit(1)
        self.close()

    def open(self) -> None:
        """Let the process go on, if it was made and has not been killed since."""
        if self._opening >= 0:
            with suppress(BrokenPipeError):
                os.write(self._opening, _GO)

    def close(self) -> None:
        """Close the pipes."""
        self._id_reader, self._id_writer = _closed(self._id_reader), _closed(self._id_writer)
        self._seen, self._opening = _closed(self._seen), _closed(self._opening)


def _closed(descriptor: int) -> int:
    """Close a descriptor if it is open, and return the value that replaces it."""
    if descriptor >= 0:
        os.close(descriptor)
    return -1


def _renumber(found: Sequence[int], numbers: Sequence[int]) -> None:
    """Move descriptors to these numbers, in an order that overwrites none still to be moved.

    So no number beyond these is needed; there may be none free.
    """
    left = dict(zip(numbers, found, strict=True))
    while left:
        free = next((n for n, has in left.items() if n == has or n not in left.values()), None)
        if free is None:
            # The descriptors left have each other's numbers.
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


def _become(request: ProcessRequest) -> int:
    """Run the requested module as if it were executed, and return its exit status."""
    os.environ.clear()
    os.environ |= request.environment
    follow(os.environ)
    renew()
    # The CPUs may be gone since they were planned.
    with suppress(OSError):
        os.sched_setaffinity(0, request.cpus)
    if request.folder is not None:
        os.chdir(request.folder)
    module = importlib.import_module(request.module)
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"{request.module}.__main__")
    gc.freeze()
    gc.enable()
    # Children that a model starts with multiprocessing import this process's main module.
    sys.modules["__main__"] = module
    sys.argv = [str(Path(module.__file__ or "").resolve()), *request.arguments]
    sys.orig_argv = command(request.module, request.arguments)
    status: int = module.main()
    return status
