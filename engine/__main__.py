"""The entry point of ``ringbatch`` and of ``python -m ringbatch.engine``."""

import sys

from ringbatch.engine.command.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
