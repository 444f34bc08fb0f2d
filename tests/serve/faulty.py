"""``ringbatch`` with a fault of its own: ``python faulty.py MODULE CLASS.METHOD CALL ARGUMENT...``

The method raises at that call of it, counted from 1, and at all later ones where CALL ends in +.
"""

import importlib
import sys
from typing import Any

from ringbatch.engine.command.cli import main


class Fault(Exception):
    """Unexpected exception."""


def plant(module: str, method: str, call: str) -> None:
    """Replace a method by one that raises."""
    owner_name, _, name = method.rpartition(".")
    owner: Any = importlib.import_module(module)
    if owner_name:
        owner = getattr(owner, owner_name)
    original = getattr(owner, name)
    first, ever = int(call.removesuffix("+")), call.endswith("+")
    calls = 0

    def faulty(*positional: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == first or (ever and calls > first):
            raise Fault(method)
        return original(*positional, **named)

    setattr(owner, name, faulty)


if __name__ == "__main__":
    plant(*sys.argv[1:4])
    sys.exit(main(sys.argv[4:]))
