"""Words of the segment in which frontends read the backlog of a model."""

from ringbatch.engine.collector.backlog import Backlog
from ringbatch.engine.collector.usage import SEVERAL
from ringbatch.shm.account import EVERY_BIT
from ringbatch.shm.descriptors import ModelWords


class BacklogWords:
    """Published backlog of one model.

    Args:
        words: of the segment.
        first: the first word of the model's block.
    """

    def __init__(self, words: memoryview, first: int) -> None:
        self._words = words
        self._answer = first + ModelWords.ANSWER_NS
        self._row = first + ModelWords.ROW_NS
        self._least = first + ModelWords.LEAST_NS
        self._account = first + ModelWords.ACCOUNT
        self._most = first + ModelWords.MOST_NS

    def publish(self, backlog: Backlog) -> None:
        """Publish how long a request to the model would take."""
        words = self._words
        answer_ns, words[self._row], words[self._least], account, most_ns = backlog
        words[self._account] = EVERY_BIT if account == SEVERAL else account
        words[self._most] = most_ns
        words[self._answer] = answer_ns
