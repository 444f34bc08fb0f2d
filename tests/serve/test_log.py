"""The log of a whole engine: one form, whatever process a line is of."""

import json
import os
import signal
from typing import Any

from serve.server import Start


def test_every_line_of_every_process_is_json_where_that_is_wanted(
    start: Start, wait_until: Any
) -> None:
    server = start({"echo": {"path": "moody.py"}}, log_format="json", frontends=2)
    killed = server.role("frontend 0")
    os.kill(killed, signal.SIGKILL)
    # Gunicorn's own words among them.
    wait_until(lambda: f"pid:{killed}" in server.stderr, "Gunicorn says so")
    server.stop()
    lines = [json.loads(line) for line in server.stderr.splitlines()]
    roles = {line["role"] for line in lines}
    assert {"supervisor", "frontend"} <= roles
    assert all({"time", "level", "pid", "message"} <= line.keys() for line in lines)


def test_gunicorn_writes_in_the_form_of_the_others(start: Start, wait_until: Any) -> None:
    server = start({"echo": {"path": "moody.py"}})
    killed = server.role("frontend 0")
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: f"pid:{killed}" in server.stderr, "Gunicorn says so")
    server.stop()
    assert all(" ringbatch " in line for line in server.stderr.splitlines()), server.stderr
