"""Choice of CUDA graphs: captures sizes, and checks that their answers are right."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from ringbatch.engine.devices.batch_run import SETS, BatchRun
from ringbatch.engine.models.model import RestartWorker, error_text
from ringbatch.engine.worker.parity import difference
from ringbatch.engine.worker.warmup import sizes_to_try

TOLERANCE: Final = 1e-4
"""Tolerated difference of a number, times its size if that is above 1, as for ``ringbatch check
--parity``."""
_REASON_CHARS: Final = 200

Values = Callable[[int, int], Sequence[Any]]
"""Made-up arrays for each input, from so many rows and the number of the first."""


def graph_sizes(max_batch_size: int, allowed: Sequence[int]) -> list[int]:
    """Return the sizes that are captured, the largest first, whose memory the others share."""
    return sizes_to_try(max_batch_size, allowed)[::-1]


def difference_words(
    names: Sequence[str], without: Any, graph: Any, tolerance: float = TOLERANCE
) -> str:
    """Return which output of a graph differs from a run without one; empty if none does.

    Args:
        names: of the outputs, in order.
        without: outputs of `predict` without a graph: a mapping, a list or the only one.
        graph: the same with one.
        tolerance: of a number, times its size if that is above 1.
    """
    for name in names:
        absolute, relative, excess = difference(
            _output(without, names, name), _output(graph, names, name), tolerance
        )
        if excess > 1 and not absolute:
            return f"output {name} is another"
        if excess > 1:
            return f"output {name} differs by {absolute:.2g}, relative {relative:.2g}"
    return ""


def _output(outputs: Any, names: Sequence[str], name: str) -> Any:
    if isinstance(outputs, dict):
        return outputs[name]
    return outputs[names.index(name)] if isinstance(outputs, (list, tuple)) else outputs


def capture(run: BatchRun, names: Sequence[str], sizes: Sequence[int], values: Values) -> str:
    """Capture graphs of all sizes, or of none; return why none, or an empty text.

    There is a graph for each set of buffers, which batches that follow one another have in turn.
    Each has the values of other rows than those that it was captured with, and than the other one.
    So one that has kept a number, or reads the other's buffers, is found.

    Args:
        run: the model on its device.
        names: of its outputs.
        sizes: in rows, the largest first.
        values: makes inputs up.

    Raises:
        RestartWorker: the device has failed for good.
    """
    for rows in sizes:
        try:
            tried = [values(rows, first) for first in range(1, SETS + 1)]
            without = [run.predict(*one) for one in tried]
            for _ in range(SETS):
                run.predict(*values(rows, 0))
            run.capture(rows)
            graphs = [run.predict(*one) for one in tried]
            found = [difference_words(names, *pair) for pair in zip(without, graphs, strict=True)]
            words = next(filter(None, found), "")
        except RestartWorker:
            raise
        except BaseException as error:
            words = f"{type(error).__name__}: {' '.join(error_text(error).split())}"
        if words:
            run.drop_graphs()
            return f"with {rows} rows {words}"[:_REASON_CHARS]
    return ""
