"""Chains of the table in the collector: their requests wait at the models of their steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ringbatch.engine.collector.chain_step import advance_requests
from ringbatch.engine.collector.models import Model
from ringbatch.engine.collector.queue import Key
from ringbatch.engine.collector.usage import without_repeats
from ringbatch.shm.chain import asked, step_in
from ringbatch.shm.engine_slots import Request


@dataclass(slots=True, eq=False)
class ChainModel(Model):
    """An entry whose steps other models run: it has no workers, and its requests wait at its steps.

    Attributes:
        steps: the model of each; None if none serves, which the supervisor does not allow.
        words: `asked` word of each step, see `ringbatch.shm.chain`.
        key_starts: where the key of each is in a request's result memory.
        key_bytes: length of each step's key.
    """

    steps: list[Model | None] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    key_starts: tuple[int, ...] = ()
    key_bytes: list[int] = field(default_factory=list)

    def follow(self, of_version: Mapping[tuple[str, str], Model]) -> None:
        """Use the models that serve now as its steps, see `serving`."""
        found = self.spec.chain
        assert found is not None, "only a chain has steps"
        self.steps = [of_version.get((step.model, step.version)) for step in found.steps]
        self.words = [asked(self.spec.reference, n) for n in range(len(found.steps))]
        self.key_starts = found.key_starts
        self.key_bytes = [step.key_bytes for step in found.steps]
        for step in self.steps:
            if step is not None:
                step.chains += (self.reference,)

    def take_in(
        self,
        key: Key,
        requests: Sequence[Request],
        rows: int,
        earliest_ns: int,
        words: Sequence[int],
    ) -> None:
        """Queue requests for the first step, as `Model.take_in` does. The key is not looked at."""
        self.agenda.add(self.reference)
        self.taken_requests += len(requests)
        self.taken_rows += rows
        size = self.key_bytes[0]
        if requests[0].key_bytes != size:
            # Tensors for later steps have open dimensions too, behind those of the first.
            requests = [
                request._replace(key_bytes=min(size, request.key_bytes)) for request in requests
            ]
        self._enter(0, requests)

    def pass_on(self, requests: Sequence[Request], now_ns: int) -> None:
        """Queue requests for the step after their present one."""
        number = step_in(requests[0].model) + 1
        word, start, size = self.words[number], self.key_starts[number], self.key_bytes[number]
        self._enter(number, advance_requests(requests, word, start, size, now_ns))

    def _enter(self, number: int, requests: Sequence[Request]) -> None:
        model, word = self.steps[number], self.words[number]
        if model is None:
            self.agenda.add(self.reference)
            for request in requests:
                words = (request.account,)
                self.queues.extend(b"", [request], request.rows, request.deadline_ns, words)
                self.in_flight[request.ref] = self.place(b"")
            return
        groups: dict[bytes, list[Request]] = {}
        if self.key_bytes[number]:
            for request in requests:
                key = model.grouping.key(request) if request.key_bytes else b""
                groups.setdefault(key, []).append(request)
        else:
            groups[b""] = [*requests]
        for key, own in groups.items():
            rows = sum([request.rows for request in own])
            place = model.place((word, key))
            self.in_flight.update(dict.fromkeys([request.ref for request in own], place))
            accounts = without_repeats([request.account for request in own])
            earliest_ns = min([request.deadline_ns for request in own])
            model.take_in((word, key), own, rows, earliest_ns, accounts)
