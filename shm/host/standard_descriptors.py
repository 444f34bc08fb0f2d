"""Standard input, output and error of a process that was started without them.

It imports little, so that a command can call it before a library opens files: the C library of
ctypes keeps one from Python 3.14 on, which would get the number of standard error.
"""

import os
import sys


def hold_standard_descriptors() -> None:
    """Put something behind those of standard input, output and error that are closed.

    What is opened next would get their numbers, and started processes would take it for them.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # A descriptor gets the lowest number that is free, and that is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stderr is None:
        # Problems would be printed among results, and faulthandler needs the object. The number may
        # belong to a library by now.
        sys.stderr = open(os.devnull, "w", errors="backslashreplace")  # noqa: SIM115
