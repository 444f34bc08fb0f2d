"""Child process of the supervisor: every way to end, and everything that it may leave behind."""

import errno
import gc
import os
import re
import resource
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from open_files import none_left_open
from start_times import start_time_of
from tiers import only

from ringbatch.engine.process.role_commands import ReadTable, ToRole
from ringbatch.engine.process.role_events import LOST_STATUS, FromRole
from ringbatch.engine.supervisor.child_process import CannotStart, Child, ending
from ringbatch.shm.host.messages import Failed, MalformedMessage, Ready

WaitUntil = Callable[..., Any]

CATCHABLE = [n for n in range(1, signal.NSIG) if n not in (signal.SIGKILL, signal.SIGSTOP)]
HARMLESS = {
    *(signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT),
    *(signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
}
"""Signals that end no process by default."""
UNUSABLE = {32, 33}
"""The C library keeps them for itself."""
PROGRAM = """
import os, signal, sys, time
control = int(sys.argv[sys.argv.index("--control-fd") + 1])
def say(text):
    os.write(control, text.encode())
def rest():
    while True:
        time.sleep(1)
for number in range(1, signal.NSIG):
    if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
        signal.signal(number, signal.SIG_DFL)
{body}
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Child]]:
    """`start(body)` starts a process with that program."""
    children: list[Child] = []

    def begin(body: str, *arguments: str) -> Child:
        (tmp_path / "program.py").write_text(PROGRAM.format(body=body))
        environment = {"PYTHONPATH": str(tmp_path)}
        children.append(Child("it", "program", list(arguments), environment))
        return children[-1]

    yield begin
    for each in children:
        if start_time_of(each.pid) is not None:
            each.kill(signal.SIGKILL)
            await_end(each)
            each.reap()


def received(child: Child, wait_until: WaitUntil, count: int = 1) -> list[FromRole]:
    found: list[FromRole] = []

    def enough() -> bool:
        found.extend(child.receive() or [])
        return len(found) >= count

    wait_until(enough, "it says something")
    return found


def await_end(child: Child) -> None:
    assert select.select([child.pidfd], [], [], 30)[0], "it has not ended"


SEND_READY = """say('{"type": "Ready"}\\n'); rest()"""


@pytest.mark.parametrize(
    "number",
    only({str(n): n for n in sorted(set(CATCHABLE) - HARMLESS - UNUSABLE)}, "1", "11", "15", "34"),
)
def test_a_signal_of_any_number_is_an_end_in_words(
    start: Callable[..., Child], wait_until: WaitUntil, number: int
) -> None:
    child = start(SEND_READY)
    assert received(child, wait_until) == [Ready()]
    os.kill(child.pid, number)
    await_end(child)
    death = child.reap()
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    words = death.words.partition(" (")[0]
    assert (death.pid, words, death.killed) == (child.pid, f"was killed by {name}", False)


SEND_DIRECTORY = """say('{"type": "Failed", "reason": "%s"}\\n' % os.getcwd()); rest()"""


def test_it_starts_where_the_supervisor_is_or_at_the_root_where_that_is_gone(
    start: Callable[..., Child],
    wait_until: WaitUntil,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = tmp_path / "release"
    place.mkdir()
    monkeypatch.chdir(place)
    assert received(start(SEND_DIRECTORY), wait_until) == [Failed(str(place))]
    place.rmdir()
    assert received(start(SEND_DIRECTORY), wait_until) == [Failed("/")]


@pytest.mark.parametrize("number", [*range(1, 65), 127])
def test_every_signal_has_words(number: int) -> None:
    assert ending(-number).startswith("was killed by ")


@pytest.mark.parametrize("number", [signal.SIGXCPU, signal.SIGXFSZ])
def test_a_signal_of_a_limit_names_the_limit(number: signal.Signals) -> None:
    words = rf"was killed by {number.name} \(it reached its limit of .*: ulimit -[tf], Limit.*=\)"
    assert re.fullmatch(words, ending(-number))


@pytest.mark.parametrize("status", [0, 1, 255])
def test_every_status_has_words(status: int) -> None:
    assert ending(status) == f"ended with status {status}"


def test_a_sigkill_from_outside_is_explained(start: Callable[..., Child]) -> None:
    killed, ended = start("rest()"), start("rest()")
    os.kill(killed.pid, signal.SIGKILL)
    ended.kill(signal.SIGKILL)
    for child in (killed, ended):
        await_end(child)
    assert killed.reap(lambda: " at the limit").words == "was killed by SIGKILL at the limit"
    guess = "was killed by SIGKILL (by hand, or out of memory?)"
    assert ended.reap(lambda: " at the limit").words == guess


def test_a_sigkill_without_an_explanation_has_guesses(start: Callable[..., Child]) -> None:
    child = start("rest()")
    os.kill(child.pid, signal.SIGKILL)
    await_end(child)
    assert child.reap(str).words.endswith("(by hand, or out of memory?)")


FORKS = """
def child(act):
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        act()
        say('{{"type": "Failed", "reason": "%d"}}\\n' % os.getpid())
        rest()
child(lambda: None)
child(lambda: os.setpgid(0, 0))
child(lambda: child(lambda: os.setpgid(0, 0)))
{then}
"""


@pytest.mark.parametrize(("status", "killed"), [(LOST_STATUS, True), (1, False)])
def test_a_status_of_a_process_killed_elsewhere_counts_as_killed(
    start: Callable[..., Child], status: int, killed: bool
) -> None:
    child = start(f"sys.exit({status})")
    await_end(child)
    death = child.reap()
    assert (death.words, death.killed) == (f"ended with status {status}", killed)


@pytest.mark.parametrize("way", ["it is killed", "it ends", "it is ended"])
def test_all_of_its_session_ends_with_it(
    start: Callable[..., Child], wait_until: WaitUntil, way: str
) -> None:
    then = "os.read(0, 1); time.sleep(0.5); os._exit(0)" if way == "it ends" else "rest()"
    child = start(FORKS.format(then=then))
    notices = received(child, wait_until, 4)
    found = [int(notice.reason) for notice in notices if isinstance(notice, Failed)]
    assert len(found) == 4
    born = {pid: start_time_of(pid) for pid in found}
    if way == "it is killed":
        os.kill(child.pid, signal.SIGKILL)
    elif way == "it is ended":
        child.kill(signal.SIGKILL)
    await_end(child)
    assert child.unread_messages() == []
    child.reap()
    wait_until(
        lambda: all(start_time_of(pid) != when for pid, when in born.items()), "they have ended"
    )


def test_a_child_that_reads_nothing_is_ended(
    start: Callable[..., Child], caplog: pytest.LogCaptureFixture
) -> None:
    child = start("rest()")
    while not select.select([child.pidfd], [], [], 0)[0]:
        child.send(ReadTable())
    assert "does not read its messages" in caplog.text
    death = child.reap()
    assert (death.words[:21], death.killed) == ("was killed by SIGKILL", False)


def test_a_sigkill_from_outside_is_distinguished_from_the_supervisors(
    start: Callable[..., Child],
) -> None:
    child = start("rest()")
    os.kill(child.pid, signal.SIGKILL)
    await_end(child)
    assert child.reap().killed


def test_messages_are_received_until_the_end(
    start: Callable[..., Child], wait_until: WaitUntil
) -> None:
    sends = r"""say('{"type": "Failed", "reason": "no"}\n{"type": "Ready"}\n{"ty')"""
    child = start(f"{sends}; os._exit(3)")
    await_end(child)
    assert child.unread_messages() == [Failed("no"), Ready()]
    assert child.reap().words == "ended with status 3"


def test_a_malformed_message_is_reported(
    start: Callable[..., Child], wait_until: WaitUntil
) -> None:
    child = start("""say("nonsense\\n"); rest()""")
    assert child.channel is not None
    select.select([child.channel], [], [], 30)
    with pytest.raises(MalformedMessage, match="nonsense"):
        child.receive()
    child.kill(signal.SIGKILL)
    await_end(child)
    child.reap()


def all_descriptors() -> list[int]:
    """Take all that there are to be had."""
    taken = []
    with suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    return taken


def own_children() -> list[str]:
    return Path("/proc/self/task", str(os.getpid()), "children").read_text().split()


def test_without_descriptors_none_is_started_and_nothing_is_left() -> None:
    family = own_children()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    failures: list[CannotStart] = []
    with none_left_open():
        for spare in range(12):
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
            taken = all_descriptors()
            for descriptor in taken[:spare]:
                os.close(descriptor)
            try:
                child = Child("it", "json.tool", [], {})
            except CannotStart as failure:
                failures.append(failure)
            else:
                child.kill(signal.SIGKILL)
                await_end(child)
                child.reap()
            finally:
                for descriptor in taken[spare:]:
                    os.close(descriptor)
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert 0 < len(failures) < 12
    assert {failure.errno for failure in failures} == {errno.EMFILE}
    assert all("may have no more files open (ulimit -n)" in str(failure) for failure in failures)
    assert own_children() == family


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EAGAIN, "no more processes are allowed"),
        (errno.ENOMEM, "there is no memory for it"),
        (errno.ENFILE, "this host may have no more files open"),
        (errno.EACCES, "Permission denied"),
    ],
)
def test_a_refusal_of_the_kernel_is_described(
    monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with none_left_open(), pytest.raises(CannotStart, match=words) as refused:
        Child("it", "json.tool", [], {})
    assert refused.value.errno == number


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_refusal_to_watch_a_child_names_the_system_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(body="rest()"))

    def refuse(_pid: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with pytest.raises(CannotStart, match="pidfd_open: Function not implemented") as refused:
        Child("it", "program", [], {"PYTHONPATH": str(tmp_path)})
    assert refused.value.errno == errno.ENOSYS
    gc.collect()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_child_that_cannot_be_watched_is_ended(
    monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(body="rest()"))
    started: list[int] = []

    def refuse(pid: int) -> int:
        started.append(pid)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with suppress(CannotStart):
        Child("it", "program", [], {"PYTHONPATH": str(tmp_path)})
        raise AssertionError("it was started")
    wait_until(lambda: start_time_of(started[0]) is None, "it has ended")
    gc.collect()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_child_that_cannot_get_its_first_message_is_ended(
    monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(body="rest()"))
    started: list[int] = []
    pidfd_open = os.pidfd_open

    def noted(pid: int) -> int:
        started.append(pid)
        return pidfd_open(pid)

    monkeypatch.setattr(os, "pidfd_open", noted)
    environment = {"PYTHONPATH": str(tmp_path)}
    with none_left_open():
        with pytest.raises(TypeError):
            Child("it", "program", [], environment, first_message=cast(ToRole, object()))
        wait_until(lambda: start_time_of(started[0]) is None, "it has ended")
    gc.collect()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_child_held_by_a_debugger_keeps_nobody_waiting(
    start: Callable[..., Child], wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start(SEND_READY)
    received(child, wait_until)
    child.kill(signal.SIGKILL)
    await_end(child)
    with monkeypatch.context() as held:
        held.setattr(subprocess.Popen, "poll", lambda _: None)
        assert child.reap().words == "ended"
    os.waitpid(child.pid, 0)
    del child
    gc.collect()
