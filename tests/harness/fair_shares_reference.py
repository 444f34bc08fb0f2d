"""Fair shares of a model, written plainly: a look at everything that waits for each request."""

from collections.abc import Iterable, Sequence

from ringbatch.engine.collector.usage import CLASS_WEIGHTS
from ringbatch.shm.account import PriorityClass, class_of, weight_of
from ringbatch.shm.engine_slots import Request


class PlainShares:
    """Counters of a model's accounts and classes, as `ringbatch.engine.collector.usage` has them.

    Attributes:
        used: of each account that waits, by its word.
    """

    def __init__(self) -> None:
        self.used: dict[int, float] = {}
        self._class_used = dict.fromkeys(PriorityClass, 0.0)
        self._class_clocks = dict.fromkeys(PriorityClass, 0.0)
        self._clock = 0.0

    def came(self, requests: Iterable[Request]) -> None:
        """Let requests begin to wait."""
        for request in requests:
            word, kind = request.account, class_of(request.account)
            if word not in self.used:
                if kind not in map(class_of, self.used):
                    self._class_used[kind] = self._clock
                self.used[word] = self._class_clocks[kind]

    def next_of(self, requests: Sequence[Request]) -> Request:
        """Return which of some requests, given by arrival, goes next."""
        firsts: dict[int, Request] = {}
        for each in requests:
            firsts.setdefault(each.account, each)
        places = {id(each): place for place, each in enumerate(requests)}

        def key(each: Request) -> tuple[float, int]:
            own = each.rows / weight_of(each.account)
            return self.used[each.account] + own, places[id(each)]

        of_class: dict[PriorityClass, Request] = {}
        for each in sorted(firsts.values(), key=key):
            of_class.setdefault(class_of(each.account), each)

        def class_key(each: Request) -> tuple[float, int]:
            kind = class_of(each.account)
            return self._class_used[kind] + each.rows / CLASS_WEIGHTS[kind], places[id(each)]

        return min(of_class.values(), key=class_key)

    def charge(self, request: Request) -> None:
        """Charge the account of a request that goes into a batch."""
        word, kind = request.account, class_of(request.account)
        self.used[word] += request.rows / weight_of(word)
        self._class_clocks[kind] = max(self._class_clocks[kind], self.used[word])
        self._class_used[kind] += request.rows / CLASS_WEIGHTS[kind]
        self._clock = max(self._clock, self._class_used[kind])

    def left(self, waiting: Iterable[Request]) -> None:
        """Let requests leave, so that only the given ones still wait."""
        words = {each.account for each in waiting}
        self.used = {word: used for word, used in self.used.items() if word in words}
