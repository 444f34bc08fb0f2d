"""State that a forked process must not share with its parent and its siblings.

Python, OpenSSL and the kernel see to theirs after each fork: `random` is seeded anew, locks of
Python's modules are free, clocks of CPU time start at 0. The rest is renewed here.
tests/serve/test_forked_state.py compares forked workers with executed ones over all of it. It names
what they still share: the secret of string hashes, and addresses.
"""

import importlib
import sys
import threading


def renew() -> None:
    """Renew state that a forked process must not share with its parent.

    A forked process calls this once, before any code of the user. So a model or an application that
    seeds a generator itself keeps its seed.
    """
    # numpy seeds its global generator when it is imported. Without an argument, the new seed comes
    # from the kernel.
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()
    # CPython keeps the kernel's number of the thread that forked.
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined]
    # A folder of sys.path may have been missing when the parent looked.
    importlib.invalidate_caches()
