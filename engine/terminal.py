"""Whether there is a terminal, which tells the two meanings of SIGHUP apart."""

import os


def has_terminal() -> bool:
    """Whether this process has a controlling terminal that is still there."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    os.close(terminal)
    return True
