"""Processes that were forked have what executed ones have, and share nothing by accident."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from serve.client import Connection, fast, instances
from serve.server import Server, Start

WaitUntil = Callable[..., Any]

MODELS: Final = ("a", "b")
SHARED: Final = {
    "secret of hashes": "strings that exist already have their hashes",
    "addresses": "objects that exist already stay where they are",
    "flags": "Python's are read-only; -P is missing, so the fork server shortens sys.path itself",
    "packages": "more are imported: `PACKAGES`",
}
"""State that forked processes share and executed ones do not, or the reverse, and the reasons."""
PACKAGES: Final = {
    "httptools",
    "numpy",
    "orjson",
    "posix_ipc",
    "psutil",
    "ringbatch",
    "setproctitle",
    "threadpoolctl",
}
"""Packages that may be imported before a fork; `after_fork.renew` knows them.

Another package may have a generator, threads, connections or a cache of the process id, which
`renew` would have to renew.
"""
BY_COMPILERS: Final = re.compile("__mypyc$|^_?cython_")
OF_THE_MODEL: Final = {"forked_state", "__mp_main__"}
PYTHONS_OWN: Final = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"


def state(server: Server, model: str) -> dict[str, Any]:
    with Connection(server.port) as connection:
        answer = connection.ask(fast(model, instances(None)))
    digests: dict[str, Any] = json.loads(answer.json["predictions"][0])
    return digests


def differences(forked: list[dict[str, Any]], executed: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the state by which forked processes can be told from executed ones.

    Two forks are alike though executed processes differ, or the reverse, or both forks have another
    value than the executed ones.
    """
    found = {}
    for name in {**forked[0], **executed[0]}:
        ours, theirs = ([each.get(name) for each in each_way] for each_way in (forked, executed))
        alike = theirs[0] == theirs[1]
        if (ours[0] == ours[1]) != alike or (alike and ours != theirs):
            found[name] = {"forked": ours, "executed": theirs}
    return found


def test_forked_workers_differ_where_executed_ones_do_and_are_alike_where_those_are(
    start: Start, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    # With it all processes have the same secret.
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    server = start({name: {"path": "forked_state.py"} for name in MODELS})
    forked = [state(server, name) for name in MODELS]
    os.kill(server.role("fork server"), signal.SIGKILL)
    for name in MODELS:
        os.kill(server.role(f"worker {name}/0"), signal.SIGKILL)
    for name in MODELS:
        ready = f"worker {name}/0: ready"
        wait_until(lambda ready=ready: server.stderr.count(ready) == 2, ready)
    assert "the fork server is gone; processes are executed from now on" in server.stderr
    executed = [state(server, name) for name in MODELS]
    (path,) = executed[0]["arguments"]
    assert Path(path).name == "forked_state.py", "and no argument of ringbatch's own"
    found = differences(forked, executed)
    assert {name: found[name] for name in set(found) - set(SHARED)} == {}
    assert set(found) == set(SHARED), "else `SHARED` is too long"
    others = {name for name in forked[0]["packages"] if not BY_COMPILERS.search(name)}
    command = [sys.executable, "-c", PYTHONS_OWN]
    bare = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert others - PACKAGES - OF_THE_MODEL - set(bare) == set()
