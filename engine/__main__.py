"""The command ``ringbatch`` without its first steps, and ``python -m ringbatch.engine``."""

import sys
from collections.abc import Callable
from functools import partial

from ringbatch.engine.command.broken_pipe import until_reader_leaves
from ringbatch.engine.command.lasting_imports import lasting_imports

__all__ = ["main", "prepared"]


def main() -> int:
    """Run the command that the program was given; its exit status."""
    return prepared()()


def prepared() -> Callable[[], int]:
    """Import what all commands need; return the function that runs the one that was given."""
    with lasting_imports():
        from ringbatch.engine.command import cli
    return partial(until_reader_leaves, cli.main)


if __name__ == "__main__":
    sys.exit(main())
