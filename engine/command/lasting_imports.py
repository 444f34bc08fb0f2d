"""Imports without searches for garbage.

Imported objects live until the end. A search through them finds no garbage, and takes longer than
some commands.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lasting_imports() -> Iterator[None]:
    """Import modules inside the context, and keep their objects from the garbage collector."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
