"""Runs parts of its work in processes that it forks."""

import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

LOADED: list[int] = []


def load() -> None:
    """Forks a child that leaves by an exit."""
    LOADED.append(exited())


CONTEXT = multiprocessing.get_context("fork")
POOL = ProcessPoolExecutor(1, CONTEXT)


def predict(instances: list[str]) -> list[Any]:
    return [ACTS[instance]() for instance in instances]


def terminated() -> int | None:
    """How a child ends that is told to at once."""
    child = CONTEXT.Process(target=time.sleep, args=(1000,))
    child.start()
    child.terminate()
    child.join()
    return child.exitcode


def daemon() -> int | None:
    """A child that lives as long as this process."""
    child = CONTEXT.Process(target=time.sleep, args=(1000,), daemon=True)
    child.start()
    return child.pid


def pooled() -> int:
    """A child of a pool."""
    return POOL.submit(os.getpid).result()


def returned() -> int:
    """A child that comes back from `predict`: how it ended."""
    child = os.fork()
    return _ended(child) if child else -1


def raised() -> int:
    """One that comes back by an exception."""
    child = os.fork()
    if not child:
        raise RuntimeError("of a child")
    return _ended(child)


def exited() -> int:
    """One that comes back by an exit, with a status."""
    child = os.fork()
    if not child:
        sys.exit(3)
    return _ended(child)


def loaded() -> int:
    """The same of `load`."""
    return LOADED[0]


def _ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


ACTS = {act.__name__: act for act in (terminated, daemon, pooled, returned, raised, exited, loaded)}
