"""The entry point of ``ringbatch`` and of ``python -m ringbatch.engine``."""

import gc
import sys

from ringbatch.engine.command.broken_pipe import until_reader_leaves

__all__ = ["main"]


def main() -> int:
    """Run the command that the program was given; its exit status."""
    # Imported objects live until the end. A search through them finds no garbage, and takes longer
    # than some commands.
    gc.disable()
    from ringbatch.engine.command import cli

    gc.freeze()
    gc.enable()
    return until_reader_leaves(cli.main)


if __name__ == "__main__":
    sys.exit(main())
