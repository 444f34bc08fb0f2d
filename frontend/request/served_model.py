"""One model as this process serves it."""

from ringbatch.frontend.codec.result_sizes import ResultSizes
from ringbatch.frontend.codec.resumption import ResumptionPlan
from ringbatch.frontend.generation.text_generator import TextGenerator
from ringbatch.frontend.texts.tokenizing import TextModel
from ringbatch.frontend.v1.protocol import V1Model
from ringbatch.frontend.v2.protocol import V2Model
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tallies import Tally


class ServedModel(ResultSizes):
    """One model of the model table, as this process serves it.

    Attributes:
        spec: its entry.
        reference: what requests for it carry.
        v1: between V1's bodies and slots.
        v2: between V2's bodies and slots.
        ready_word: where the number of its ready workers stands.
        takes_word: where it stands whether requests are taken.
        answer_word: where it stands how long a request that comes now will take.
        row_word: where it stands how much every instance adds that was not counted there.
        least_word: where it stands how long one whose account has nothing waiting will take.
        account_word: where it stands whose everything is that waits.
        most_word: where it stands how long one that comes now may be expected to take.
        tallies: by protocol, where the ends of its requests are counted.
        texts: makes tokens of what clients send; None where that stands in slots as it is.
        generator: makes tokens of prompts; None for a model that generates no texts.
        resumption: how its answers are resumed that were cut off; None if they are not.
    """

    def __init__(
        self,
        spec: ModelSpec,
        v1: V1Model,
        v2: V2Model,
        *,
        ready_word: int,
        takes_word: int,
        answer_word: int,
        row_word: int,
        least_word: int,
        account_word: int,
        most_word: int,
        tallies: tuple[Tally, ...],
        texts: TextModel | None = None,
        generator: TextGenerator | None = None,
    ) -> None:
        super().__init__(v1.result_bytes, spec.chain)
        self.spec = spec
        self.reference = spec.reference
        self.v1 = v1
        self.v2 = v2
        self.ready_word = ready_word
        self.takes_word = takes_word
        self.answer_word = answer_word
        self.row_word = row_word
        self.least_word = least_word
        self.account_word = account_word
        self.most_word = most_word
        self.tallies = tallies
        self.texts = texts
        self.generator = generator
        self.resumption = ResumptionPlan(spec) if spec.resumes else None
