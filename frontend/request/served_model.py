"""Served model: an entry of the model table, as this process serves it."""

from ringbatch.frontend.codec.result_sizes import ResultSizes
from ringbatch.frontend.codec.resumption import ResumptionPlan
from ringbatch.frontend.generation.text_generator import TextGenerator
from ringbatch.frontend.texts.tokenizing import TextModel
from ringbatch.frontend.v1.protocol import V1Model
from ringbatch.frontend.v2.protocol import V2Model
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tallies import Tally


class ServedModel(ResultSizes):
    """Model of the model table, as this process serves it.

    Attributes:
        spec: its entry.
        reference: the word that requests carry to name the model.
        v1: converts between V1's bodies and slots.
        v2: converts between V2's bodies and slots.
        ready_word: word of the segment with the number of its ready workers.
        takes_word: word that says whether requests are taken.
        answer_word: word with the expected time of a new request.
        row_word: word with the time that each instance adds which is not counted there yet.
        least_word: word with the expected time of a new request whose account has none waiting.
        account_word: word with the account that all waiting requests belong to.
        most_word: word with the limit of the expected time.
        tallies: counts of the ends of its requests, by protocol.
        texts: makes tokens of clients' texts; None if inputs stand in slots as they come.
        generator: makes tokens of prompts; None for a model that generates no texts.
        resumption: how its answers are resumed that were cut off; None if they are not.

    Args:
        first_word: the first of its words in the segment.
        spec, v1, v2, tallies, texts, generator: as above.
    """

    def __init__(
        self,
        spec: ModelSpec,
        v1: V1Model,
        v2: V2Model,
        *,
        first_word: int,
        tallies: tuple[Tally, ...],
        texts: TextModel | None = None,
        generator: TextGenerator | None = None,
    ) -> None:
        super().__init__(v1.result_bytes, spec.chain)
        self.spec = spec
        self.reference = spec.reference
        self.v1 = v1
        self.v2 = v2
        self.ready_word = first_word + ModelWords.READY
        self.takes_word = first_word + ModelWords.TAKES
        self.answer_word = first_word + ModelWords.ANSWER_NS
        self.row_word = first_word + ModelWords.ROW_NS
        self.least_word = first_word + ModelWords.LEAST_NS
        self.account_word = first_word + ModelWords.ACCOUNT
        self.most_word = first_word + ModelWords.MOST_NS
        self.tallies = tallies
        self.texts = texts
        self.generator = generator
        self.resumption = ResumptionPlan(spec) if spec.resumes else None
