"""The command ``ringbatch``, also as ``python -m ringbatch``."""

import signal
import sys

from ringbatch.shm.host.standard_descriptors import hold_standard_descriptors


def main() -> int:
    """Run the command that the program was given; its exit status."""
    hold_standard_descriptors()
    # While modules are imported there is nothing to end in order. So Ctrl-C ends this process as
    # the kernel does, and leaves no traceback of an import. Python has no handler where the caller
    # has the signal ignored.
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ringbatch.engine.__main__ import prepared

    command = prepared()
    signal.signal(signal.SIGINT, handler)
    return command()


if __name__ == "__main__":
    sys.exit(main())
