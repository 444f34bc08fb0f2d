"""``python -m ringbatch``: the command ``ringbatch``."""

import sys

from ringbatch.engine.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
