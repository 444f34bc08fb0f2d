"""The entry point of ``ringbatch`` and of ``python -m ringbatch.engine``."""

import gc
import sys

from ringbatch.engine.command.broken_pipe import until_reader_leaves

__all__ = ["main"]


def main() -> int:
    """Run the command that the program was given; its exit status."""
    # What is imported lives until the end; to look through it for garbage, now and then and at the
    # end, finds nothing.
    gc.disable()
    from ringbatch.engine.command import cli

    gc.freeze()
    gc.enable()
    return until_reader_leaves(cli.main)


if __name__ == "__main__":
    sys.exit(main())
