"""The offload process of one frontend: ``python -m ringbatch.frontend.offload.role FD``."""

import gc
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from ringbatch.frontend.offload.messages import Answer, Closed, Job, job_of, receive, send
from ringbatch.shm.errors import RequestError
from ringbatch.shm.host.process import leave_signals_to_supervisor


def main(number: int) -> None:
    """Serve until the frontend ends.

    Args:
        number: the file descriptor of the connection to the frontend.
    """
    leave_signals_to_supervisor()
    # The frontend may have requests to answer first; this process ends with it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # A parsed body has no cycles, and the search for them takes longer than the parsing.
    gc.disable()
    with socket.socket(fileno=number) as connection:
        try:
            while True:
                (module, name, value), data = receive(connection)
                send(connection, *outcome(job_of(module, name), value, data))
        except (Closed, OSError):
            return


def outcome(job: Job, value: Any, data: Sequence[memoryview]) -> Answer:
    """Run a function; return its result, its error for the client or its defect, and bytes."""
    try:
        found, parts = job(value, data)
    except RequestError as error:
        return [None, [type(error).__module__, type(error).__name__, str(error)], ""], ()
    except Exception:
        return [None, None, traceback.format_exc()], ()
    return [found, None, ""], parts


if __name__ == "__main__":
    main(int(sys.argv[1]))
