"""Retries of a batch, as long as the model fails for some of it.

A batch is too much for a model for one of two reasons. Either it cannot bear a request, which
`ringbatch.engine.worker.bisect` finds. Or there is no memory for its size, which
`ringbatch.engine.worker.memory_cap` learns. Before every further run, expired and cancelled
requests are left out, and finished answers are flushed, because a batch that is run many times
takes many times as long.
"""

import logging
from collections.abc import Callable, Sequence

from ringbatch.engine.models.model import blames_nobody, is_about_the_input
from ringbatch.engine.process.memory_limits import memory_words
from ringbatch.engine.worker.bisect import Search
from ringbatch.engine.worker.memory_cap import MemoryCap, give_back, ran_out_of_memory
from ringbatch.engine.worker.tensors import Unlike
from ringbatch.shm.engine_slots import BatchMark, EngineSlots, Request

logger = logging.getLogger("ringbatch.worker")

Run = Callable[[list[Request], BatchMark], tuple[list[Request], BaseException | None]]
"""Runs requests together, once: those that it was for, and what the model raised. Where it raised
nothing, they are answered."""
GiveUp = Callable[[BaseException, list[Request], BatchMark], None]
"""Answers requests for which the model has failed for good."""


class Retry:
    """The runs of one model's batches.

    Args:
        name: the model's, for messages.
        slots: answers for this worker.
        clock_ns: the monotonic clock.
        run: see `Run`.
        give_up: see `GiveUp`.
        run_again: called before every run of a batch but the first, with the batch's number.
    """

    def __init__(
        self,
        name: str,
        slots: EngineSlots,
        clock_ns: Callable[[], int],
        run: Run,
        give_up: GiveUp,
        run_again: Callable[[int], object],
    ) -> None:
        self._name = name
        self._slots = slots
        self._clock_ns = clock_ns
        self._run = run
        self._give_up = give_up
        self._run_again = run_again
        self._cap = MemoryCap()

    def allows(self, rows: int) -> bool:
        """Return whether memory is not known to lack room for so many rows."""
        return self._cap.allows(rows)

    def fitted(self, rows: int) -> None:
        """Record that a run of so many rows did not fail."""
        if self._cap.fitted(rows):
            most = self._cap.rows
            logger.info(
                "model %s is run with %s instances again, to see whether there is memory for them",
                self._name,
                "any number of" if most is None else f"up to {most}",
            )

    def answer(
        self, requests: Sequence[Request], mark: BatchMark, error: BaseException | None = None
    ) -> None:
        """Run the requests of a batch until all are answered.

        Args:
            requests: of the batch.
            mark: the batch.
            error: what the model raised if they have been run together already.
        """
        parts = self._cap.parts(requests, [request.rows for request in requests])
        for number, part in enumerate(parts):
            self._search(part, mark, error, first=not number)

    def answer_in_turn(self, parts: Sequence[Sequence[Request]], mark: BatchMark) -> None:
        """Run the requests of a batch in these parts, and flush answers after each."""
        first = True
        for requests in parts:
            for part in self._cap.parts(requests, [request.rows for request in requests]):
                if not first:
                    self._slots.flush()
                self._search(part, mark, None, first=first)
                first = False

    def _search(
        self, requests: list[Request], mark: BatchMark, error: BaseException | None, *, first: bool
    ) -> None:
        search = Search(requests)
        ran_out: list[int] = []
        blamed = False
        while (group := search.next()) is not None:
            if error is None:
                if not first:
                    group = self._still_wanted(group, mark)
                    if not group:
                        continue
                    self._run_again(mark.batch)
                group, error = self._run(group, mark)
            failure, error = error, None
            if failure is None:
                search.succeeded()
                if not first:
                    self._slots.flush()
            elif blames_nobody(failure):
                self._give_up(failure, group, mark)
            elif isinstance(failure, Unlike):
                search.halve(group)
            elif len(group) == 1:
                blamed = blamed or ran_out_of_memory(failure)
                kind = None if is_about_the_input(failure) else type(failure)
                self._give_up(failure, group + search.failed_alone(kind), mark)
            else:
                if ran_out_of_memory(failure):
                    ran_out.append(sum(request.rows for request in group))
                    # Its traceback holds on to what filled the memory.
                    failure.__traceback__ = None
                    give_back()
                search.failed(group)
            first = False
        if ran_out and not blamed:
            self._ran_out(min(ran_out))

    def _still_wanted(self, requests: list[Request], mark: BatchMark) -> list[Request]:
        now_ns = self._clock_ns()
        wanted = []
        for request in requests:
            if request.deadline_ns > now_ns and self._slots.wanted(request.ref):
                wanted.append(request)
            else:
                text = "the deadline passed before the model could be run again"
                self._slots.give_up(request, text, mark, now_ns)
        return wanted

    def _ran_out(self, rows: int) -> None:
        self._cap.ran_out(rows)
        logger.warning(
            "model %s ran out of memory with %d instances; from now on it is run with at most %s%s",
            self._name,
            rows,
            self._cap.rows,
            memory_words(),
        )
