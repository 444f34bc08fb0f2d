"""``ringbatch reload``: have a running engine serve what its configuration says now."""

import sys

from ringbatch.engine.supervisor.control import ask
from ringbatch.shm.engines import only
from ringbatch.shm.host.control_socket import Order


def main(engine: str | int | None, model: str | None) -> int:
    """Wait until it is done, and print what was; the exit status is 1 where anything failed, or is
    left as it was because only another engine can have it, as a port.

    Args:
        engine: its name, or the process id of its supervisor; None for the only one of this user.
        model: to be loaded again; None for all that changed.

    Raises:
        StartupError: no such engine runs, or several do.
    """
    report = ask(only(engine), Order("reload", model))
    done = report.end == "done"
    for line in report.lines:
        print(f"ringbatch: {line}", file=sys.stdout if done else sys.stderr)
    return 0 if done else 1
