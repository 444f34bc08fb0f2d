"""The whole engine as real processes: started, killed in every role, stopped, and gone after."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from start_times import all_running, start_time_of
from tiers import exhaustive, only

from ringbatch.engine.report.status import snapshot
from ringbatch.engine.supervisor.listener import listen
from ringbatch.shm.shm_objects import DIRECTORY, remove_dead_engines, segment_names

WaitUntil = Callable[..., Any]
WriteModel = Callable[..., Path]

DOUBLE = """
    from ringbatch.engine import Tensor
    inputs = [Tensor("x", "FP32", [2])]
    outputs = [Tensor("y", "FP32", [2])]
    def predict(x):
        return x * 2
"""
HELD = """
    import os, time
    from pathlib import Path
    here = Path(__file__).parent
    def predict(instances):
        (here / "running").write_text(str(os.getpid()))
        while not (here / "go").exists():
            time.sleep(0.01)
        return [instance + 1000 for instance in instances]
"""


PROGRAM = ("-m", "ringbatch.engine")
SMALL = ("--max-request-bytes", "65536", "--lane-bytes", "262144")
"""No more of /dev/shm than such an engine needs: others have to run beside it."""
TITLE = "ringbatch: "
APART = f"ringbatch-{os.getpid()}"
SERVES_APART = f"""
import sys
from ringbatch.shm import shm_objects as objects
objects.PREFIX = {APART!r}
from ringbatch.engine.__main__ import main
sys.exit(main())
"""
"""The command, with names in /dev/shm that no other engine's start sweeps up."""


class Server:
    """A ``ringbatch serve`` and everything it started."""

    def __init__(
        self, folder: Path, port: int, *arguments: str, program: Sequence[str] = PROGRAM
    ) -> None:
        self.port = port
        self._out, self._err = folder / "stdout", folder / "stderr"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    *program,
                    "serve",
                    *arguments,
                    "--port",
                    str(port),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
            )
        self.pid = self.process.pid
        self.seen: dict[int, int] = {}

    @property
    def stdout(self) -> str:
        return self._out.read_text()

    @property
    def stderr(self) -> str:
        return self._err.read_text()

    def serving(self) -> bool:
        assert self.process.poll() is None, self.stderr
        return "ringbatch: serving" in self.stdout

    def family(self) -> dict[int, int]:
        """Ids and start times of every process below the supervisor, itself included."""
        processes = all_running()
        children: dict[int, list[int]] = {}
        for pid, process in processes.items():
            children.setdefault(process.parent, []).append(pid)
        found, todo = set(), [self.pid]
        while todo:
            pid = todo.pop()
            found.add(pid)
            todo += children.get(pid, [])
        self.seen |= {pid: processes[pid].started for pid in found if pid in processes}
        return self.seen

    def roles(self) -> dict[str, int]:
        """The ids of the living processes by their titles, in one look: what two looks tell may
        never have been true together."""
        roles = {}
        for pid in self.family():
            with suppress(OSError):
                shown = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()
                if shown.startswith(TITLE):
                    roles[shown.removeprefix(TITLE)] = pid
        return roles

    def role(self, title: str) -> int:
        """The id of the living process with that title."""
        return self.roles()[title]

    def gone(self) -> bool:
        """Whether nothing of all that was seen is left, neither processes nor names."""
        self.process.poll()
        alive = [pid for pid, when in self.seen.items() if start_time_of(pid) == when]
        return not alive and not self.names()

    def names(self) -> list[str]:
        return [
            e.name
            for e in DIRECTORY.iterdir()
            if re.match(rf"(sem\.)?ringbatch[^.]*\.[^.]+\.{self.pid}\.", e.name)
        ]

    def post(self, path: str, body: object) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", path, json.dumps(body))
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def predict(self, *instances: object, model: str = "model") -> tuple[int, Any]:
        status, answer = self.post(f"/v1/models/{model}:predict", {"instances": instances})
        return status, answer.get("predictions")


Start = Callable[..., Server]


@pytest.fixture
def launch(tmp_path: Path, free_port_factory: Callable[[], int]) -> Iterator[Start]:
    """`launch(*arguments)` starts a small server; all that it started ends with the test."""
    servers: list[Server] = []

    def begin(*arguments: str, port: int | None = None, program: Sequence[str] = PROGRAM) -> Server:
        folder = tmp_path / f"server{len(servers)}"
        folder.mkdir()
        servers.append(
            Server(folder, port or free_port_factory(), *SMALL, *arguments, program=program)
        )
        return servers[-1]

    yield begin
    for server in servers:
        server.family()
        server.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.process.wait(20)
        for pid, when in server.seen.items():
            if start_time_of(pid) == when:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        server.process.wait()
    remove_dead_engines()


@pytest.fixture
def start(launch: Start, wait_until: WaitUntil) -> Start:
    """`start(*arguments)` starts a server and waits until it serves."""

    def begin(*arguments: str, **given: Any) -> Server:
        server = launch(*arguments, "--frontends", "1", **given)
        wait_until(server.serving, "the server serves", 60)
        server.family()
        return server

    return begin


class Asking:
    """Requests that are under way in threads of their own."""

    def __init__(
        self, server: Server, count: int, make: Callable[[int], object] = lambda number: number
    ) -> None:
        self.answers: list[tuple[int, Any] | None] = [None] * count

        def ask(number: int) -> None:
            self.answers[number] = server.predict(make(number))

        self._threads = [threading.Thread(target=ask, args=(n,)) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def join(self) -> list[tuple[int, Any] | None]:
        for thread in self._threads:
            thread.join()
        return self.answers


def in_engine(server: Server) -> int:
    """Requests that the collector has taken in."""
    return sum(model.requests for model in snapshot(server.pid).models.values())


def runs(server: Server, pid: int) -> bool:
    """Whether the very process that was seen under that id still runs."""
    return start_time_of(pid) == server.seen[pid]


def stopped_now(pid: int) -> bool:
    """Whether all threads of a process are stopped: one takes the signal, and stops the others."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in threads)


def lane_requests(server: Server) -> int:
    """Requests that frontends have published."""
    return snapshot(server.pid).frontends["requests"]


def test_it_starts_answers_and_stops_and_nothing_stays(
    start: Start, tmp_model: WriteModel, wait_until: WaitUntil
) -> None:
    server = start(str(tmp_model(DOUBLE)))
    assert server.stdout == f"ringbatch: serving model on http://127.0.0.1:{server.port}\n"
    assert server.predict([1, 2], [3, 4]) == (200, [[2.0, 4.0], [6.0, 8.0]])
    for title in ("supervisor", "collector", "worker model/0", "frontends", "frontend 0"):
        server.role(title)
    assert len(list(segment_names(server.pid))) == 1
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait() == 0
    assert server.gone()
    assert "Traceback" not in server.stderr


@exhaustive
def test_ctrl_c_stops_it_as_sigterm_does(start: Start, tmp_model: WriteModel) -> None:
    server = start(str(tmp_model(DOUBLE)))
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait() == 0
    assert server.gone()
    assert "Traceback" not in server.stderr


BAD = {
    "syntax-error": ("def predict(x):\n    return x +\n", r"model\.py: line 2: invalid syntax"),
    "raises-at-import": ("1 / 0\n", r"model\.py: line 1: ZeroDivisionError"),
    "no-predict": ("x = 1\n", r"model\.py: `predict` is missing"),
    "bad-tensor": (
        "from ringbatch.engine import Tensor\ninputs = [Tensor('x', 'float', [1])]\n",
        r"model\.py: line 2: ValueError: tensor 'x': unknown datatype 'float'",
    ),
    "load-raises": (
        "def predict(x): return x\ndef load():\n    raise OSError('no weights')\n",
        r"model\.py: line 3: load\(\): OSError: no weights",
    ),
    "ends-at-import": ("import sys\nsys.exit(0)\n", r"model\.py: line 2: SystemExit: 0"),
    "dies-in-load": (
        "import os\ndef predict(x): return x\ndef load(): os.kill(os.getpid(), 9)\n",
        r"the worker model/0 process was killed by SIGKILL .* at start",
    ),
}


@pytest.mark.parametrize(("source", "words"), only(BAD, "load-raises", "dies-in-load"))
def test_a_bad_model_file_is_a_start_up_error_in_words_and_nothing_stays(
    launch: Start, tmp_model: WriteModel, source: str, words: str
) -> None:
    server = launch(str(tmp_model(source)))
    while server.process.poll() is None:
        server.family()
        time.sleep(0.02)
    assert server.process.returncode == 2
    assert re.search(words, server.stderr), server.stderr
    assert "Traceback" not in server.stderr.replace("load() raised\n  Traceback", "")
    assert server.stdout == ""
    assert server.gone()


def test_a_missing_model_file_is_a_start_up_error(launch: Start, tmp_path: Path) -> None:
    server = launch(str(tmp_path / "absent.py"))
    assert server.process.wait() == 2
    assert "absent.py" in server.stderr
    assert "Traceback" not in server.stderr
    assert server.gone()


def test_a_port_in_use_is_a_start_up_error(launch: Start, tmp_model: WriteModel) -> None:
    with listen("127.0.0.1", 0) as taken:
        server = launch(str(tmp_model(DOUBLE)), port=taken.getsockname()[1])
        assert server.process.wait() == 2
    assert f"cannot listen on 127.0.0.1:{server.port}: the port is in use" in server.stderr
    assert server.gone()


def test_more_memory_than_there_is_is_a_start_up_error(
    launch: Start, tmp_model: WriteModel
) -> None:
    room = os.statvfs(DIRECTORY)
    wanted = 256 << 30
    if room.f_blocks * room.f_frsize >= wanted:
        pytest.skip("/dev/shm is larger than anything one can configure here")
    sizes = ("--frontends", "2", "--lane-bytes", str(wanted // 4))
    server = launch(str(tmp_model(DOUBLE)), *sizes)
    while server.process.poll() is None:
        server.family()
        time.sleep(0.02)
    assert server.process.returncode == 2
    assert "MiB of shared memory: No space left on device; /dev/shm has" in server.stderr
    assert server.gone()


def test_a_model_that_hangs_in_its_import_does_not_keep_sigterm_from_ending_it(
    launch: Start, tmp_model: WriteModel, wait_until: WaitUntil, tmp_path: Path
) -> None:
    source = "import time\nfrom pathlib import Path\n"
    source += "Path(__file__).with_name('importing').touch()\nwhile True: time.sleep(1)\n"
    server = launch(str(tmp_model(source)))
    wait_until((tmp_path / "importing").exists, "the model file is being imported")
    server.family()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait() == 0
    assert server.stdout == ""
    assert server.gone()


def test_what_a_model_prints_disturbs_nothing(start: Start, tmp_model: WriteModel) -> None:
    server = start(
        str(
            tmp_model(
                """
                print("importing " * 10_000)
                def load(): print("loading")
                def predict(instances):
                    print('{"ready": true}', flush=True)
                    return instances
                """
            )
        )
    )
    assert server.predict(1, "a", None) == (200, [1, "a", None])
    assert '{"ready": true}' in server.stdout


def test_a_worker_killed_in_mid_batch_is_replaced_and_its_requests_are_answered(
    start: Start, tmp_model: WriteModel, wait_until: WaitUntil, tmp_path: Path
) -> None:
    server = start(str(tmp_model(HELD)))
    asking = Asking(server, 5)
    running = tmp_path / "running"
    wait_until(lambda: running.exists() and running.read_text(), "a batch runs")
    wait_until(lambda: in_engine(server) == 5, "all requests are in the engine")
    killed = server.role("worker model/0")
    assert int(running.read_text()) == killed
    os.kill(killed, signal.SIGKILL)
    (tmp_path / "go").touch()
    assert asking.join() == [(200, [number + 1000]) for number in range(5)]
    assert server.role("worker model/0") != killed
    assert "worker model/0" in server.stderr
    assert "was killed by SIGKILL" in server.stderr
    status = snapshot(server.pid)
    assert status.collector["worker_deaths"] == 1
    assert status.models["model"].retried >= 1


def test_a_request_that_kills_every_worker_fails_alone_and_in_words(
    start: Start, tmp_model: WriteModel
) -> None:
    server = start(
        str(
            tmp_model(
                """
                import os
                def predict(instances):
                    if "kill" in instances:
                        os._exit(9)
                    return instances
                """
            )
        )
    )
    status, answer = server.post("/v1/models/model:predict", {"instances": ["kill"]})
    assert status >= 500
    assert "died" in json.dumps(answer)
    assert snapshot(server.pid).collector["worker_deaths"] == 2


@exhaustive
def test_a_killed_collector_is_replaced_and_every_request_is_answered(
    start: Start, tmp_model: WriteModel, wait_until: WaitUntil, tmp_path: Path
) -> None:
    server = start(str(tmp_model(HELD)))
    asking = Asking(server, 8)
    wait_until((tmp_path / "running").exists, "a batch runs")
    wait_until(lambda: in_engine(server) == 8, "all requests are in the engine")
    worker = server.role("worker model/0")
    for _ in range(3):
        wait_until(lambda: {"collector", "standby"} <= server.roles().keys(), "both are there")
        killed = server.role("collector")
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda pid=killed: not runs(server, pid), "it has ended")
    (tmp_path / "go").touch()
    assert asking.join() == [(200, [number + 1000]) for number in range(8)]
    assert server.predict(7) == (200, [1007])
    assert server.role("worker model/0") == worker, "nothing is loaded again"
    assert snapshot(server.pid).models["model"].retried == 0


@exhaustive
def test_the_deaths_of_collector_and_worker_at_once_cost_nobody_an_answer(
    start: Start, tmp_model: WriteModel, wait_until: WaitUntil, tmp_path: Path
) -> None:
    server = start(str(tmp_model(HELD)))
    asking = Asking(server, 8)
    wait_until((tmp_path / "running").exists, "a batch runs")
    wait_until(lambda: in_engine(server) == 8, "all requests are in the engine")
    # Stopped, the supervisor hears of both deaths only when there is another collector.
    os.kill(server.pid, signal.SIGSTOP)
    killed = [server.role(title) for title in ("collector", "worker model/0")]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: server.roles().get("collector", killed[0]) != killed[0],
        "whoever stood by is the collector",
    )
    os.kill(server.pid, signal.SIGCONT)
    (tmp_path / "go").touch()
    assert asking.join() == [(200, [number + 1000]) for number in range(8)]


@exhaustive
def test_a_collector_that_is_stopped_is_not_joined_by_a_second_one(
    start: Start, tmp_model: WriteModel, wait_until: WaitUntil
) -> None:
    server = start(str(tmp_model(DOUBLE)))
    wait_until(lambda: "standby" in server.roles(), "another collector stands by")
    stopped, waits = server.role("collector"), server.role("standby")
    os.kill(stopped, signal.SIGSTOP)
    wait_until(lambda: stopped_now(stopped), "it is stopped")
    assert server.role("standby") == waits
    os.kill(stopped, signal.SIGKILL)
    wait_until(lambda: server.roles().get("collector") == waits, "its turn")
    assert server.predict([1, 2]) == (200, [[2.0, 4.0]])


def test_after_kill_9_of_the_supervisor_no_process_and_no_name_is_left(
    start: Start, tmp_model: WriteModel, wait_until: WaitUntil
) -> None:
    server = start(str(tmp_model(DOUBLE)))
    wait_until(lambda: "standby" in server.roles(), "all are there, another collector stands by")
    os.kill(server.pid, signal.SIGKILL)
    server.process.wait()
    wait_until(server.gone, "everything is gone")


@exhaustive
def test_after_kill_9_in_the_worst_order_the_next_start_sweeps_and_serves(
    start: Start, tmp_model: WriteModel, wait_until: WaitUntil
) -> None:
    """The collector cleans up behind a dead supervisor, or the standby; but both may be killed.

    It is the supervisor that is stopped meanwhile. Stopped collectors would go on for a moment as
    it dies: the kernel continues the members of process groups that become orphans.
    """
    model = str(tmp_model(DOUBLE))
    apart = ("-c", SERVES_APART)
    old = start(model, program=apart)
    wait_until(lambda: "standby" in old.roles(), "another collector stands by")
    collectors = [old.role(title) for title in ("collector", "standby")]
    os.kill(old.pid, signal.SIGSTOP)
    wait_until(lambda: stopped_now(old.pid), "it is stopped")
    for pid in collectors:
        os.kill(pid, signal.SIGKILL)
    os.kill(old.pid, signal.SIGKILL)
    old.process.wait()
    alive = [pid for pid in old.seen if pid != old.pid]
    wait_until(
        lambda: not any(start_time_of(pid) == old.seen[pid] for pid in alive), "all have ended"
    )
    assert old.names()
    new = start(model, port=old.port, program=apart)
    assert old.names() == []
    assert new.predict([1, 2]) == (200, [[2.0, 4.0]])


@exhaustive
def test_a_worker_whose_model_changed_its_signature_does_not_serve(
    start: Start, tmp_model: WriteModel, wait_until: WaitUntil
) -> None:
    """The signature is made once; a worker that reads other tensors would answer nonsense. What a
    model file imports is read anew by each worker."""
    tmp_model(DOUBLE, "beside_it.py")
    server = start(str(tmp_model("from beside_it import inputs, outputs, predict")))
    tmp_model(DOUBLE.replace("[2]", "[1]"), "beside_it.py")
    os.kill(server.role("worker model/0"), signal.SIGKILL)
    wait_until(
        lambda: "now declares other inputs or outputs" in server.stderr, "the change is noticed"
    )

    def answers() -> list[Any]:
        return Asking(server, 2, make=lambda number: [number, number]).join()

    wait_until(
        lambda: [status for status, _ in answers()] == [503, 503], "nobody is to be expected"
    )
    tmp_model(DOUBLE, "beside_it.py")
    right = [(200, [[2.0 * number, 2.0 * number]]) for number in range(2)]
    wait_until(lambda: answers() == right, "another worker is there")


@exhaustive
def test_sigterm_under_load_finishes_what_was_accepted(
    start: Start, tmp_model: WriteModel, wait_until: WaitUntil, tmp_path: Path
) -> None:
    server = start(str(tmp_model(HELD)))
    asking = Asking(server, 6)
    wait_until(lambda: in_engine(server) == 6, "all requests are in the engine")
    server.process.send_signal(signal.SIGTERM)

    def refused() -> bool:
        try:
            socket.create_connection(("127.0.0.1", server.port), 5).close()
        except ConnectionRefusedError:
            return True
        return False

    wait_until(refused, "new connections are refused")
    (tmp_path / "go").touch()
    assert asking.join() == [(200, [number + 1000]) for number in range(6)]
    assert server.process.wait() == 0
    assert server.gone()


@exhaustive
def test_several_models_and_workers(start: Start, tmp_model: WriteModel, tmp_path: Path) -> None:
    tmp_model(DOUBLE, name="a.py")
    tmp_model("def predict(instances): return [str(i) for i in instances]", name="b.py")
    config = tmp_path / "ringbatch.toml"
    config.write_text(
        "[models.a]\npath = 'a.py'\nworkers = 2\n[models.b]\npath = 'b.py'\npolicy = 'fixed'\n"
        "max_latency_ms = 20\n"
    )
    server = start("--config", str(config))
    assert server.predict([1, 2], model="a") == (200, [[2.0, 4.0]])
    assert server.predict(1, 2, model="b") == (200, ["1", "2"])
    status = snapshot(server.pid)
    assert {name: model.ready for name, model in status.models.items()} == {"a": 2, "b": 1}
    assert status.models["b"].batches == {"latency": 1}


def remove_all(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink()


def replace_segment(paths: Sequence[Path]) -> None:
    segment = min(paths, key=lambda path: (path.name.startswith("sem."), path.name))
    segment.rename(segment.with_name("ringbatch-renamed"))
    segment.touch(mode=0o600)
    segment.with_name("ringbatch-renamed").unlink()


def remove_one_doorbell(paths: Sequence[Path]) -> None:
    next(path for path in paths if path.name.endswith(".l0")).unlink()


@exhaustive
@pytest.mark.parametrize("remove", [remove_all, replace_segment, remove_one_doorbell])
def test_an_engine_to_which_nobody_can_attach_answers_what_it_has_and_ends_in_words(
    start: Start,
    tmp_model: WriteModel,
    wait_until: WaitUntil,
    tmp_path: Path,
    remove: Callable[[Sequence[Path]], None],
) -> None:
    model = tmp_model(HELD)
    server = start(str(model))
    asking = Asking(server, 4)
    wait_until((tmp_path / "running").exists, "a batch runs")
    wait_until(lambda: in_engine(server) == 4, "all requests are in the engine")
    remove([DIRECTORY / name for name in server.names()])
    wait_until(lambda: "RemoveIPC=no" in server.stderr, "it says what has happened")
    (tmp_path / "go").touch()
    assert asking.join() == [(200, [number + 1000]) for number in range(4)]
    assert server.process.wait() == 1
    assert server.gone()
    assert "Traceback" not in server.stderr
    again = start(str(model), port=server.port)
    assert again.predict(1) == (200, [1001])
