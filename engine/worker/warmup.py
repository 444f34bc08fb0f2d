"""Warm-up: runs every batch size before the first request, and measures how long each takes.

A model then does its one-time work, such as compiling for a shape, choosing an algorithm or making
room, before a client waits for it. All sizes are run, smallest first, and then all of them again,
because one-time work is no part of a batch's time. Time is bounded: a size that would exceed it is
left out, and the log says so.

A model that fails at a size of its own signature would fail its clients there, so it is not served
if warm-up is required. One that refuses values that were made up, with InvalidInput, has
answered, and is served.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final, TextIO

from ringbatch.engine.ipc.shaping import elements, padded_rows
from ringbatch.engine.models.model import InvalidInput, RestartWorker, failure
from ringbatch.engine.process.memory_limits import memory_words
from ringbatch.engine.worker.memory_cap import ran_out_of_memory
from ringbatch.engine.worker.outputs import WrongResult
from ringbatch.engine.worker.samples import MadeUp, Samples, Values
from ringbatch.shm.cost_profile import Trial, size_text
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.background import delayed
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import ANY, Tensor

logger = logging.getLogger("ringbatch.worker")

STILL_RUNNING_S: Final = 10.0
"""A run that takes longer is mentioned, so that nobody wonders why nothing happens."""
_BAR: Final = 24
_ROUNDS: Final = 3


@dataclass(frozen=True, slots=True)
class Wanted:
    """Settings of warm-up.

    Attributes:
        required: True if a model that fails is not to be served.
        limit_s: seconds that it may take.
        limit: the limit's name in messages.
        batch_timeout: the name of a batch's limit, likewise.
        length: of open dimensions, if no bucket sets it.
        file: with instances; None if they are made up.
    """

    required: bool
    limit_s: float
    limit: str
    batch_timeout: str
    length: int
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Result of a warm-up.

    Attributes:
        trials: the sizes that were run, in order.
        left_out: those that would have taken too long, as rows and length.
        error: the model's exception, if any; nothing was run after that.
        failed_at: the rows and the length that it was run with then.
    """

    trials: tuple[Trial, ...]
    left_out: tuple[tuple[int, int], ...] = ()
    error: BaseException | None = None
    failed_at: tuple[int, int] = (0, 0)


def warmed_up(
    spec: ModelSpec,
    try_out: Callable[[Any, int], int],
    wanted: Wanted,
    *,
    path: Path,
    title: str,
    out: TextIO | None,
    clock_ns: Callable[[], int],
) -> list[Trial]:
    """Warm a model up as far as it can be, and say in the log what came of it.

    Args:
        spec: the model.
        try_out: runs it on an array for each input, or a list of JSON values, of so many rows; the
            nanoseconds that took.
        wanted: what the configuration says.
        path: of the model file, for messages.
        title: of the worker.
        out: where a person looks on; None if nobody does.
        clock_ns: the monotonic clock.

    Raises:
        StartupError: the operator's file does not hold what the model takes, or the model fails
            and must not.
    """
    if wanted.file is None and not spec.typed:
        logger.info("no warm-up: the model declares no inputs, and there is no warm_up_file")
        return []
    values: Values = Samples(wanted.file, spec) if wanted.file else MadeUp(spec, wanted.length)
    runs = planned(
        sizes_to_try(spec.cap, spec.allowed_batch_sizes),
        values.lengths,
        lambda rows, length: rows == 1 or _is_formed(spec, rows, length),
    )
    progress = Progress(title, _ROUNDS * len(runs), out)

    def run(rows: int, length: int) -> int:
        return try_out(values.rows(rows, length), rows)

    limit_ns, began_ns = int(wanted.limit_s * 1e9), clock_ns()
    result = warm_up(runs, mentioned(run), progress.show, limit_ns=limit_ns, clock_ns=clock_ns)
    progress.end()
    logger.info("%s", summary(result, clock_ns() - began_ns))
    if result.error is not None:
        batch = batch_text(spec, *result.failed_at, values)
        _failed(result.error, batch, spec, path, wanted)
    _warn(result, spec, wanted)
    return list(result.trials)


def _failed(error: BaseException, batch: str, spec: ModelSpec, path: Path, wanted: Wanted) -> None:
    words = failure(path, error, f"warm-up of {spec.name} with {batch}")
    origin = "the values were made up"
    if wanted.file is not None:
        origin = f"the instances are those of {wanted.file}"
    elif isinstance(error, InvalidInput):
        logger.warning(
            "%s; %s, so the model serves all the same; give it some that it takes with "
            'warm_up_file, or set warm_up = "off"',
            words,
            origin,
        )
        return
    if not isinstance(error, WrongResult | InvalidInput):
        logger.error("warm-up raised", exc_info=error)
    if not wanted.required:
        logger.warning('%s; %s; the model serves all the same, as warm_up = "try"', words, origin)
        return
    cure = "" if wanted.file else "; if these are to blame, give it some with warm_up_file"
    if ran_out_of_memory(error):
        origin, cure = f"lower max_batch_size = {spec.max_batch_size}{memory_words()}", ""
    raise StartupError(
        f'{words}; {origin}{cure}; warm_up = "required" refuses a model that fails, "try" serves it'
    ) from error


def batch_text(spec: ModelSpec, rows: int, length: int, values: Values) -> str:
    """Return the shapes that a model was run with, for people."""
    if not spec.typed:
        return f"a batch of {rows}"
    first = 0 if spec.batched else 1
    if spec.pad_variable_length or isinstance(values, MadeUp):
        # There may be no memory for the values themselves.
        shapes = [
            [rows, *(length if s == ANY else s for s in t.shape)][first:] for t in spec.inputs
        ]
        padded = spec.pad_variable_length and (rows > 1 or length in spec.length_buckets)
        return _listed(spec.inputs, shapes) + f", padded to {length}" * padded
    arrays = values.rows(rows, length)
    return _listed(spec.inputs, [list(array.shape[first:]) for array in arrays])


def _listed(tensors: Sequence[Tensor], shapes: Sequence[list[int]]) -> str:
    return ", ".join(
        f"{tensor.name} {tensor.datatype.name} {shape}"
        for tensor, shape in zip(tensors, shapes, strict=True)
    )


def _is_formed(spec: ModelSpec, rows: int, length: int) -> bool:
    """Return whether a batch of that size is within the budget of elements."""
    if not spec.max_batch_elements:
        return True
    shapes = [tensor.shape for tensor in spec.inputs]
    dimensions = [length] * sum(shape.count(ANY) for shape in shapes)
    run_with = padded_rows(rows, spec.allowed_batch_sizes)
    return run_with * elements(shapes, dimensions) <= spec.max_batch_elements


def _warn(result: WarmUp, spec: ModelSpec, wanted: Wanted) -> None:
    if result.left_out:
        sizes = ", ".join(size_text(*size) for size in result.left_out)
        logger.warning("warm-up may take %s; left out: %s", wanted.limit, sizes)
    slow = max(result.trials, key=lambda trial: trial.run_ns, default=None)
    if slow is not None and slow.run_ns > spec.batch_timeout_ns:
        logger.warning(
            "a batch of %s ran %.1f s, over %s: its worker would be taken for hung; raise "
            "batch_timeout_s, or lower max_batch_size = %d",
            size_text(slow.rows, slow.length),
            slow.run_ns / 1e9,
            wanted.batch_timeout,
            spec.max_batch_size,
        )


def sizes_to_try(max_batch_size: int, allowed: Sequence[int]) -> list[int]:
    """Return the batch sizes to run: the allowed ones, or powers of two and the cap."""
    if allowed:
        return list(allowed)
    powers = [1 << power for power in range(max_batch_size.bit_length())]
    return powers if powers[-1] == max_batch_size else [*powers, max_batch_size]


def planned(
    sizes: Sequence[int], lengths: Sequence[int], fits: Callable[[int, int], bool]
) -> list[tuple[int, int]]:
    """Return rows and length of each run.

    Every length comes with few rows first, so that each is run however soon time is up. Then come
    those with little to do.

    Args:
        sizes: in rows.
        lengths: of open dimensions.
        fits: returns whether a batch of such rows and length is ever formed; one row always is.
    """
    runs = [(rows, length) for rows, length in product(sizes, lengths) if fits(rows, length)]
    return sorted(runs, key=lambda run: (run[0] > sizes[0], run[0] * max(run[1], 1), run))


def warm_up(
    runs: Sequence[tuple[int, int]],
    run: Callable[[int, int], int],
    on_run: Callable[[int, Trial], object],
    *,
    limit_ns: int,
    clock_ns: Callable[[], int],
) -> WarmUp:
    """Run every size.

    Args:
        runs: rows and length of each.
        run: runs the model with so many rows of such a length; its time in nanoseconds.
        on_run: called after each run with the number of runs so far and the last run.
        limit_ns: how long all of it may take; one run is begun in any case.
        clock_ns: the monotonic clock.
    """
    until_ns = clock_ns() + limit_ns
    best: dict[tuple[int, int], int] = {}

    def so_far() -> tuple[Trial, ...]:
        return tuple(Trial(*size, run_ns) for size, run_ns in best.items())

    last_ns = 0
    for done, (rows, length) in enumerate([*runs] * _ROUNDS, start=1):
        # The next is expected to take what it took before, or as much as the one before it.
        expected_ns = best.get((rows, length), last_ns)
        if best and clock_ns() + expected_ns > until_ns:
            break
        try:
            last_ns = run(rows, length)
        except RestartWorker:
            raise
        except BaseException as error:
            return WarmUp(so_far(), error=error, failed_at=(rows, length))
        best[rows, length] = min(last_ns, best.get((rows, length), last_ns))
        on_run(done, Trial(rows, length, last_ns))
    return WarmUp(so_far(), left_out=tuple(size for size in runs if size not in best))


def mentioned(run: Callable[[int, int], int]) -> Callable[[int, int], int]:
    """Return a run that the log mentions while it takes long."""

    def watched(rows: int, length: int) -> int:
        words = "warm-up: a batch of %d has been running for %g s"
        say = partial(logger.warning, words, rows, STILL_RUNNING_S)
        call_off = delayed("the word on a long warm-up", STILL_RUNNING_S, say)
        try:
            return run(rows, length)
        finally:
            call_off()

    return watched


class Progress:
    """Progress bar of a warm-up on a terminal.

    Args:
        title: of the worker.
        total: how many runs there will be.
        out: the terminal; None if there is none.
    """

    def __init__(self, title: str, total: int, out: TextIO | None) -> None:
        self._title = title
        self._total = total
        self._out = out

    def show(self, done: int, trial: Trial) -> None:
        """Show how many runs are done, and the last one."""
        if self._out is not None:
            filled = "#" * (_BAR * done // self._total)
            self._out.write(
                f"\rringbatch: warming up {self._title} [{filled:<{_BAR}}] "
                f"{done} of {self._total}, "
                f"{size_text(trial.rows, trial.length)} {trial.run_ns / 1e6:.3g} ms \033[K"
            )
            self._out.flush()

    def end(self) -> None:
        """End the line of the progress bar."""
        if self._out is not None:
            self._out.write("\n")
            self._out.flush()


def summary(result: WarmUp, took_ns: int) -> str:
    """Return the result of a warm-up, for the log."""
    times = ", ".join(
        f"{size_text(trial.rows, trial.length)} {trial.run_ns / 1e6:.3g} ms"
        for trial in result.trials
    )
    return (
        f"warm-up: {times}; {took_ns / 1e9:.2f} s in all" if times else "warm-up: nothing was run"
    )
