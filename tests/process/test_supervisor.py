"""The whole engine as real processes: started, killed in every role, stopped, and gone after.

Tests engine/supervisor/first_workers.py, engine/supervisor/signals.py, engine/collector/role.py,
engine/worker/role.py and frontend/__main__.py.
"""

import os
import re
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import supervised_server
from supervised_server import (
    DOUBLE,
    HELD,
    Asking,
    Server,
    Start,
    WaitUntil,
    WriteModel,
    in_engine,
)
from tiers import exhaustive, only

from ringbatch.engine.report.status import snapshot
from ringbatch.engine.supervisor.listener import listen
from ringbatch.shm.shm_objects import DIRECTORY, segment_names

launch, start = supervised_server.launch, supervised_server.start


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
    "closes-all-in-load": (
        "import os\ndef predict(x): return x\ndef load(): os.closerange(0, 1024)\n",
        "ended with status 76 .* the model has closed descriptors of others, .* at start",
    ),
    "closes-all-and-raises": (
        "import os\ndef predict(x): return x\ndef load():\n    os.closerange(3, 1024)\n    1 / 0\n",
        r"model\.py: line 5: load\(\): ZeroDivisionError(.*\n)+.* ended with status 76 .* closed ",
    ),
}


@pytest.mark.parametrize(("source", "words"), only(BAD, "dies-in-load"))
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


def test_a_models_prints_disturb_nothing(start: Start, tmp_model: WriteModel) -> None:
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
def test_sigterm_under_load_finishes_accepted_requests(
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
