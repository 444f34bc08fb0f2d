"""Runs parts of its work in processes that it forks."""

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

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


ACTS = {"terminated": terminated, "daemon": daemon, "pooled": pooled}
