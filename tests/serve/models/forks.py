"""Model that forks processes, or runs parts of its work in them."""

import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

LOADED: list[int] = []


def load() -> None:
    """Fork a child that exits, and keep its status."""
    LOADED.append(exited())


CONTEXT = multiprocessing.get_context("fork")
POOL = ProcessPoolExecutor(1, CONTEXT)


def predict(instances: list[str]) -> list[Any]:
    return [ACTS[instance]() for instance in instances]


def terminated() -> int | None:
    """Return the exit code of a child that is terminated at once."""
    child = CONTEXT.Process(target=time.sleep, args=(1000,))
    child.start()
    child.terminate()
    child.join()
    return child.exitcode


def daemon() -> int | None:
    """Return the process id of a child that lives as long as this process."""
    child = CONTEXT.Process(target=time.sleep, args=(1000,), daemon=True)
    child.start()
    return child.pid


def pooled() -> int:
    """Return the process id of a pool's child."""
    return POOL.submit(os.getpid).result()


def returned() -> int:
    """Fork a child that returns from `predict`, and return its status."""
    child = os.fork()
    return _ended(child) if child else -1


def raised() -> int:
    """Fork a child that ends with an exception, and return its status."""
    child = os.fork()
    if not child:
        raise RuntimeError("of a child")
    return _ended(child)


def exited() -> int:
    """Fork a child that exits with a status, and return that."""
    child = os.fork()
    if not child:
        sys.exit(3)
    return _ended(child)


def loaded() -> int:
    """Return the status of a child that returned from `load`."""
    return LOADED[0]


def _ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


ACTS = {act.__name__: act for act in (terminated, daemon, pooled, returned, raised, exited, loaded)}
