"""The process that runs LoadGen, as the command sees it."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ringbatch.bench.load.child import Child
from ringbatch.bench.load.exchange import Requests
from ringbatch.bench.load.target import Target, Wire
from ringbatch.bench.loadgen.answers import compared
from ringbatch.bench.loadgen.judgement import Compared, Sent
from ringbatch.bench.loadgen.logs import BadLog, Said, logged, said
from ringbatch.bench.loadgen.order import Order, unpacked
from ringbatch.bench.loadgen.plan import Plan

MODULE: Final = "mlperf_loadgen"
_ROLE: Final = "ringbatch.bench.loadgen.role"
_CLIENT_ROLE: Final = "ringbatch.bench.client.loadgen_role"
"""Of a room above this one, and a process of its own: here nobody imports what it measures."""


def is_installed() -> bool:
    """Return whether LoadGen is installed."""
    return find_spec(MODULE) is not None


class Judge:
    """A process that waits for orders; a context manager that ends it.

    Args:
        target: where queries go.
        messages: whole requests; for a Client, bodies of V2 in JSON.
        call_head: over gRPC, the header block of each call.
    """

    def __init__(self, target: Target, messages: Sequence[bytes], call_head: bytes = b"") -> None:
        self._target, self._requests = target, Requests(messages, (), call_head)
        self._child = Child(_CLIENT_ROLE if target.wire is Wire.CLIENT else _ROLE)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._child.pid

    def run(
        self, plan: Plan, folder: Path, connections: int, patience_s: float
    ) -> tuple[Said, Sent]:
        """Run LoadGen once, and wait for its end.

        Args:
            plan: what it is told.
            folder: for its logs; it is made.
            connections: that may be open at once.
            patience_s: how long answers are waited for when all is issued.

        Raises:
            GeneratorDied: the process has ended.
            BadLog: what LoadGen wrote cannot be read.
        """
        folder.mkdir(parents=True)
        order = Order(self._target, self._requests, plan, folder, connections, patience_s)
        self._child.tell(order.packed())
        sent = unpacked(self._child.heard())
        if not (log := folder / "mlperf_log_detail.txt").exists() and sent.problems:
            raise BadLog("; ".join(sent.problems))
        return said(_read(log).decode(errors="replace")), sent

    def compared(self, plan: Plan, folder: Path, right: Sequence[bytes]) -> Compared:
        """Hold the answers in LoadGen's log of a run against those that were expected.

        Args:
            plan: of the run.
            folder: of its logs.
            right: bodies of the right answers, over HTTP, one for each message.

        Raises:
            BadLog: what LoadGen wrote cannot be read.
        """
        entries = logged(_read(folder / "mlperf_log_accuracy.json"))
        return compared(plan.scenario, entries, plan.samples, self._target.wire, right)

    def __enter__(self) -> Self:
        try:
            self._child.heard()
        except BaseException:
            self._child.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.end()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadLog(f"LoadGen wrote no {path.name}: {error.strerror}") from None
