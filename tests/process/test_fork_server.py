"""Processes of the fork server: as if executed, and orphaned if it dies."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringbatch.engine.process.environment_after_fork import threads
from ringbatch.engine.process.fork_server import _renumber

Drive = Callable[..., list[Any]]

PROGRAM = """
import gc, json, os, signal, sys
def main():
    out = int(sys.argv[1])
    main_module = sys.modules["__main__"]
    operators = (signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD)
    facts = {
        "arguments": sys.argv[2:],
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "has the parent": os.getppid() == int(os.environ["PARENT"]),
        "leads its session": os.getsid(0) == os.getpid(),
        "descriptors": [n for n in range(100) if os.path.exists(f"/proc/self/fd/{n}")
                        and ".so" not in os.readlink(f"/proc/self/fd/{n}")],
        "inherits": os.get_inheritable(out),
        "input": sys.stdin.read(),
        "signals": [signal.getsignal(n) is signal.SIG_DFL for n in operators],
        "SIGINT": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "blocked": [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        "path": sys.path,
        "cpus": sorted(os.sched_getaffinity(0)),
        "main": main_module.__spec__.name,
        "argv[0]": os.path.realpath(sys.argv[0]),
        "collects": gc.isenabled(),
        "threads": len(os.listdir("/proc/self/task")),
    }
    os.write(out, json.dumps(facts).encode())
    return 7
if __name__ == "__main__":
    sys.exit(main())
"""
HEAD = """
import json, os, signal, subprocess, sys, threading, time
from ringbatch.engine.process import fork_server
from ringbatch.engine.process.fork_server import ProcessRequest
from ringbatch.engine.supervisor import launching
from ringbatch.engine.supervisor.launching import ForkServer, execute, reap_orphans

# A script's shell lets background jobs ignore these signals, and programs inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

def say(what):
    print(json.dumps(what), flush=True)

def end(process):
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    return process.poll()

def facts_of(launch, *, number=None, **more):
    reading, writing = os.pipe()
    if number is not None:
        os.dup2(writing, number)
        os.close(writing)
        writing = number
    env = {**os.environ, "PARENT": str(os.getpid()), **more}
    process = launch(ProcessRequest("program", [str(writing), "an argument"], env, None, [writing]))
    os.close(writing)
    text = b"".join(iter(lambda: os.read(reading, 1 << 16), b""))
    return end(process), json.loads(text or "null")
"""


@pytest.fixture
def drive(tmp_path: Path) -> Drive:
    """`drive(body)`: what a process says that has a fork server; it has one thread, as none here
    can be sure to have."""

    def run(body: str, *python: str) -> list[Any]:
        (tmp_path / "program.py").write_text(PROGRAM)
        (tmp_path / "driver.py").write_text(HEAD + body)
        # Since 3.12 Python warns of a fork beside threads, and takes each process whose title has a
        # space for one with threads.
        quiet = ("-W", "ignore::DeprecationWarning")
        command = [sys.executable, *quiet, *python, str(tmp_path / "driver.py")]
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            command,
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


BOTH = """
launch = ForkServer(["json", "numpy"])
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
for way in (launch, execute):
    say(facts_of(way, number=57, OMP_NUM_THREADS="1", MALLOC_ARENA_MAX="2"))
say([launching.fork_server is fork_server, launch._line is not None])
launch.close()
"""


@pytest.mark.parametrize("python", [(), ("-P",)], ids=["with its folder", "without"])
def test_a_forked_process_finds_all_as_an_executed_one(drive: Drive, python: tuple[str]) -> None:
    forked, executed, there = drive(BOTH, *python)
    assert forked == executed
    status, facts = forked
    assert (status, there) == (7, [True, True])
    assert facts["has the parent"]
    assert facts["leads its session"]
    assert facts["descriptors"] == [0, 1, 2, 57]
    assert facts["collects"]
    assert len(facts["cpus"]) == 1


OURS = """
import fcntl, pty, termios
from ringbatch.engine.process.descendants import kill_session
os.setsid()
ours, theirs = pty.openpty()
fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
def terminal_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[4])
launch = ForkServer(["json"])
def stays():
    reading, writing = os.pipe()
    made = launch(ProcessRequest("stays", [str(writing)], dict(os.environ), None, [writing], False))
    os.close(writing)
    return made, int(os.read(reading, 32)), reading
first, child, reading = stays()
second, _, _ = stays()
say([os.getpgid(process.pid) == process.pid for process in (first, second)])
say([os.getsid(pid) == os.getpid() for pid in (first.pid, second.pid, child)])
say([terminal_of(pid) > 0 for pid in (os.getpid(), first.pid, second.pid)])
for process in (first, second):
    kill_session(process.pid)
    say(end(process))
say(os.read(reading, 1).decode())
launch.close()
"""
STAYS = """
import os, sys, time
def main():
    if os.fork() == 0:
        os.write(int(sys.argv[1]), str(os.getpid()).encode())
    time.sleep(600)
"""


def test_those_without_sessions_of_their_own_are_in_ours_without_its_terminal_and_end_with_children(
    drive: Drive, tmp_path: Path
) -> None:
    (tmp_path / "stays.py").write_text(STAYS)
    groups, sessions, terminals, first, second, left = drive(OURS)
    assert groups == [True, True]
    assert sessions == [True, True, True]
    assert terminals == [True, False, False]
    assert (first, second, left) == (-9, -9, "")


SIGNALS = """
numbers = (signal.SIGCHLD, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGINT)
for number in numbers:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
launch = ForkServer(["json"])
signal.pthread_sigmask(signal.SIG_SETMASK, ())
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
say(facts_of(launch))
launch.close()
"""


def test_signals_ignored_or_blocked_at_the_start_are_not_so_in_a_forked_process(
    drive: Drive,
) -> None:
    ((status, facts),) = drive(SIGNALS)
    assert status == 7
    assert (facts["blocked"], facts["SIGINT"]) == ([], True)
    assert all(facts["signals"])


MANY = """
launch = ForkServer(["json"])
pairs = [os.pipe() for _ in range(40)]
numbers = tuple(writing for _, writing in pairs)
environment = {**os.environ, "PARENT": str(os.getpid())}
arguments = [str(numbers[-1])]
for way in (launch, execute):
    process = way(ProcessRequest("program", arguments, environment, "/", numbers))
    text = os.read(pairs[-1][0], 1 << 16)
    say([end(process), json.loads(text)["descriptors"], json.loads(text)["folder"]])
say(list(numbers))
launch.close()
"""


def test_each_descriptor_has_the_number_that_it_has_here(drive: Drive) -> None:
    forked, executed, numbers = drive(MANY)
    assert forked == executed == [7, [0, 1, 2, *numbers], "/"]


ENDED = """
launch = ForkServer(["json"])
say(facts_of(launch)[0])
signal.pidfd_send_signal(launch._pidfd, signal.{signal})
launching._ANSWERS_WITHIN_S = 0.5
launch._line.settimeout(0.5)
say(facts_of(launch)[0])
say(launch._line is None)
say(facts_of(launch)[0])
reap_orphans([])
try:
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
except ChildProcessError:
    say("nobody is left")
"""


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_where_the_fork_server_is_gone_or_hangs_processes_are_executed(
    drive: Drive, how: str, tmp_path: Path
) -> None:
    quiet = "import logging\nlogging.disable()\n"
    results = drive(quiet + ENDED.format(signal=how))
    assert results == [7, 7, True, 7, "nobody is left"]


UNREAD_MESSAGES = """
launch = ForkServer(["json"])
reading, writing = os.pipe()
env = {{**os.environ, "PARENT": str(os.getpid())}}
request = fork_server.ProcessRequest("program", [str(writing)], env, None, [writing], True, [0])
text = json.dumps(fork_server.asdict(request)).encode() + b"\\n"
{before}
fork_server.socket.send_fds(launch._line, [text], [writing])
os.close(writing)
{after}
say(os.read(reading, 1 << 16).decode())
os.waitid(os.P_PIDFD, launch._pidfd, os.WEXITED)
while True:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        break
    reap_orphans([])
say("nobody is left")
"""
KILLED_BEFORE_IT_LETS_GO = """
def die(self):
    os.kill(os.getpid(), signal.SIGKILL)
fork_server._Gate.open = die
launch = ForkServer(["json"])
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # The supervisor does not hear the answer.
        ("", "launch._line.close()"),
        (KILLED_BEFORE_IT_LETS_GO, "assert fork_server.answer(launch._line).pid"),
    ],
    ids=["the supervisor hears nothing", "the fork server dies"],
)
def test_a_process_that_nobody_lets_go_on_does_nothing_and_ends(
    drive: Drive, before: str, after: str
) -> None:
    assert drive(UNREAD_MESSAGES.format(before=before, after=after)) == ["", "nobody is left"]


REFUSED = """
fork_server._Gate.{place}
launch = ForkServer(["json"])
try:
    facts_of(launch)
except OSError as error:
    say(error.errno)
launch.close()
"""
MAPPED = """
import mmap
code, other = (os.open(name, os.O_RDONLY) for name in ("program.py", "driver.py"))
mapping = mmap.mmap(code, 0, prot=mmap.PROT_READ | mmap.PROT_EXEC)
launch = ForkServer(["json"])
has = facts_of(launch)[1]["descriptors"]
say([code in has, other in has])
launch.close()
"""


def test_a_library_keeps_the_file_that_it_maps_again(drive: Drive) -> None:
    assert drive(MAPPED) == [[True, False]]


PIPE_FAILS = """__init__ = fork_server._Gate.__init__
def refused():
    raise OSError(24, "too many")
fork_server.os = type("", (), {**vars(os), "pipe": staticmethod(refused)})"""
SECOND_FORK_FAILS = """__init__ = fork_server._Gate.__init__
real, calls = os.fork, []
def once():
    calls.append(None)
    # The fork server itself is the first, and the process between is the second.
    if len(calls) > 2:
        raise OSError(12, "no memory")
    return real()
fork_server.os.fork = once"""


@pytest.mark.parametrize(
    ("place", "errno"), [(PIPE_FAILS, 24), (SECOND_FORK_FAILS, 12)], ids=["a pipe", "a fork"]
)
def test_a_refusal_of_the_kernel_there_is_raised_here(drive: Drive, place: str, errno: int) -> None:
    assert drive(REFUSED.format(place=place)) == [errno]


RAISES = """
open("raises.py", "w").write("def main():\\n    raise {kind}('of the process')\\n")
reading, writing = os.pipe()
usual = os.dup(2)
os.dup2(writing, 2)
try:
    launch = ForkServer(["json"])
except Exception:
    os._exit(3)
for folder in (None, "/nowhere"):
    status = end(launch(ProcessRequest("raises", [], dict(os.environ), folder)))
    say([status, os.read(reading, 1 << 16).decode().splitlines()[-1]])
os.dup2(usual, 2)
launch.close()
"""


@pytest.mark.parametrize("kind", ["OSError", "BrokenPipeError", "ValueError"])
def test_an_error_in_a_forked_process_ends_that_alone(drive: Drive, kind: str) -> None:
    raised, nowhere = drive(RAISES.format(kind=kind))
    assert raised == [1, f"{kind}: of the process"]
    assert nowhere[0] == 1
    assert nowhere[1].startswith("FileNotFoundError: ")


THREADED = """
stop = threading.Event()
thread = threading.Thread(target=stop.wait)
thread.start()
launch = ForkServer(["json"])
say(launch._line is None)
say(facts_of(launch)[0])
stop.set()
"""


def test_a_process_with_threads_is_not_forked(drive: Drive) -> None:
    assert drive(THREADED) == [True, 7]


REPLACED = """
open("numpy.py", "w").close()
launch = ForkServer(["json"])
say([launch._line is None, facts_of(launch)[0]])
os.replace("program.py", "numpy.py")
open("program.py", "w").write(open("numpy.py").read())
say([facts_of(launch)[0], launch._line is None])
"""


def test_a_numpy_that_was_replaced_is_imported_anew(drive: Drive) -> None:
    assert drive(REPLACED) == [[False, 7], [7, True]]


LATE_FOLDER = """
import importlib.util
sys.path.append(os.path.abspath("late"))
assert importlib.util.find_spec("late_program") is None
launch = ForkServer(["json"])
os.mkdir("late")
os.rename("program.py", "late/program.py")
say(facts_of(launch)[0])
launch.close()
"""


def test_a_folder_of_modules_that_came_late_is_found(drive: Drive) -> None:
    assert drive(LATE_FOLDER) == [7]


STRANGERS = """
launching._adopts_orphans()
other = subprocess.Popen(["sleep", "60"])
end_of = lambda pid: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
reading, writing = os.pipe()
shell = ["sh", "-c", "exec 3<&0; cat <&3 >/dev/null 2>&1 & echo $!"]
stranger = int(subprocess.run(shell, stdin=reading, capture_output=True).stdout)
os.close(writing)
end_of(stranger)
reap_orphans([])
try:
    end_of(stranger)
except ChildProcessError:
    say("was waited for")
end = subprocess.Popen(["sh", "-c", "exit 3"])
end_of(end.pid)
reap_orphans([other.pid, end.pid])
say(end.wait())
other.kill()
other.wait()
"""


def test_orphans_are_waited_for_and_others_left_alone(drive: Drive) -> None:
    assert drive(STRANGERS) == ["was waited for", 3]


MATH = """
launch = ForkServer(["numpy", "numpy.random"])
for way in (launch, execute):
    for variables in ({"OPENBLAS_NUM_THREADS": "2"}, {"OMP_NUM_THREADS": "2,1"}, LEAN):
        environment = {**os.environ, **variables}
        reading, writing = os.pipe()
        process = way(ProcessRequest("math_program", [str(writing)], environment, None, [writing]))
        os.close(writing)
        say([end(process), *json.loads(os.read(reading, 100))])
launch.close()
"""
MATH_PROGRAM = """
import json, os, sys
import numpy
from threadpoolctl import threadpool_info
def main():
    found = [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]
    assert (numpy.ones((300, 300)) @ numpy.ones((300, 300)) == 300).all()
    os.write(int(sys.argv[1]), json.dumps([found, numpy.random.random()]).encode())
    return 0
if __name__ == "__main__":
    sys.exit(main())
"""


def test_math_has_the_threads_asked_for_and_random_numbers(drive: Drive, tmp_path: Path) -> None:
    (tmp_path / "math_program.py").write_text(MATH_PROGRAM)
    results = drive("LEAN = {'OPENBLAS_NUM_THREADS': '1', 'OMP_NUM_THREADS': '1'}\n" + MATH)
    assert [threads for _, threads, _ in results[:3]] == [threads for _, threads, _ in results[3:]]
    assert [status for status, *_ in results] == [0] * 6
    assert len({drawn for *_, drawn in results}) == 6


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, 0),
        ({"OMP_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": " 4,2"}, 4),
        ({"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "3"}, 2),
        ({"OPENBLAS_NUM_THREADS": "many", "OMP_NUM_THREADS": "3"}, 3),
        ({"OPENBLAS_NUM_THREADS": "0"}, 0),
    ],
)
def test_the_threads_that_an_environment_asks_for(
    environment: dict[str, str], expected: int
) -> None:
    assert threads(environment, "OPENBLAS_NUM_THREADS") == expected


@pytest.mark.parametrize(
    "numbers",
    [(0, 1, 2), (1, 0, 2), (1, 2, 0), (2, 0, 1), (5, 0, 6), (1, 5, 3), (4, 3, 5)],
    ids=str,
)
def test_descriptors_get_their_numbers_even_if_those_are_taken(numbers: tuple[int, ...]) -> None:
    """The numbers are counted from that of the first one."""
    first, files = 200, []
    for name in range(3):
        file = os.memfd_create(str(name))
        os.write(file, str(name).encode())
        files.append(os.dup2(file, first + name))
        os.close(file)
    wanted = [first + number for number in numbers]
    _renumber(files, wanted)
    assert [os.pread(number, 9, 0) for number in wanted] == [b"0", b"1", b"2"]
    assert all(os.get_inheritable(number) for number in wanted)
    for number in wanted:
        os.close(number)
