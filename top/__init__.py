"""Dynamic batching of prediction requests over shared memory.

This package offers the names that a program on the same host needs first. It imports each of them
at its first use: every import of a part imports this package too, so it must import no part itself.
"""

from typing import TYPE_CHECKING

__all__ = ["Client", "__version__"]

if TYPE_CHECKING:
    from ringbatch.frontend import Client

    __version__: str
else:

    def __getattr__(name):
        if name == "Client":
            from ringbatch import frontend

            found = frontend.Client
        elif name == "__version__":
            from importlib.metadata import version

            found = version(__name__)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__():
        return sorted({*globals(), *__all__})
