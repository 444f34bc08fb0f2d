"""Has its work done by processes of a pool, started in the way that it is asked for."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from beside import tripled  # type: ignore[import-not-found]


def doubled(number: int) -> int:
    return 2 * number


def predict(instances: list[str]) -> list[list[int]]:
    answers = []
    for method in instances:
        with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
            answers.append([pool.submit(call, 7).result() for call in (doubled, tripled)])
    return answers
