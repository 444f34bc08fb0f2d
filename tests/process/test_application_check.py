"""The user's own application is tried by a process before anything starts."""

import socket
import sys
from pathlib import Path
from threading import Thread

import pytest

from ringbatch.engine.supervisor import application_check
from ringbatch.engine.supervisor.application_check import expect_importable
from ringbatch.engine.supervisor.health_probe import ask
from ringbatch.shm.errors import StartupError


def test_an_importable_application_is_accepted_with_any_output(tmp_path: Path) -> None:
    (tmp_path / "api.py").write_text("import sys\nsys.stderr.write('a warning\\n')\napp = print\n")
    expect_importable(f"{tmp_path}/api:app", {})


THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(1e9,)).start()\n"


def test_a_thread_that_goes_on_does_not_keep_one_from_being_accepted(tmp_path: Path) -> None:
    (tmp_path / "api.py").write_text(f"{THREAD}app = print\n")
    expect_importable(f"{tmp_path}/api:app", {})


def test_one_that_is_accepted_ends_as_python_does(tmp_path: Path) -> None:
    """An application's exit handlers run."""
    ended = tmp_path / "ended"
    (tmp_path / "api.py").write_text(
        f"import atexit, pathlib\natexit.register(pathlib.Path({str(ended)!r}).touch)\n"
        "app = print\n"
    )
    expect_importable(f"{tmp_path}/api:app", {})
    assert ended.exists()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (f"{THREAD}import nosuch", "api.py, line 3: ModuleNotFoundError: No module named 'nosuch'"),
        ("import os\nos.environ['NO_SUCH']", "api.py, line 2: KeyError: 'NO_SUCH'"),
        ("import os\nos._exit(5)", "the process that imported it ended with status 5"),
        (
            "import os\nos.kill(os.getpid(), 9)",
            "the process that imported it was killed by SIGKILL",
        ),
        ("import time\nwhile True: time.sleep(60)", "to import it takes over 0.2 s"),
    ],
    ids=["error beside a thread", "error", "exit", "killed", "endless"],
)
def test_one_that_cannot_is_refused_in_words(
    tmp_path: Path, source: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "takes over" in words:
        monkeypatch.setattr(application_check, "IMPORT_LIMIT_S", 0.2)
    (tmp_path / "api.py").write_text(source)
    with pytest.raises(StartupError, match=f"app {tmp_path}/api:app: ") as raised:
        expect_importable(f"{tmp_path}/api:app", {})
    assert words in str(raised.value)


def test_it_is_imported_with_the_environment_of_frontends(tmp_path: Path) -> None:
    (tmp_path / "api.py").write_text("import os\napp = print if 'LEAN' in os.environ else None\n")
    expect_importable(f"{tmp_path}/api:app", {"LEAN": "1"})
    with pytest.raises(StartupError, match="there is no `app`"):
        expect_importable(f"{tmp_path}/api:app", {})


def test_an_unstartable_process_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(StartupError, match="no process can be started"):
        expect_importable("/nowhere/api:app", {})


def test_the_log_names_the_check_as_the_sender_of_its_request() -> None:
    heads: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                heads.append(connection.recv(4096))
                connection.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")

        application = Thread(target=answer)
        application.start()
        assert ask(listener, "/") == 404
        application.join()
    assert heads[0].startswith(b"GET / HTTP/1.1\r\n")
    assert b"X-Request-Id: ringbatch-probe\r\n" in heads[0]
