"""Chains: models whose steps are other models, and how the tensors of a request pass between them.

A request for a chain stays in one slot. Each step but the last keeps, in the slot's result memory,
those of its outputs that a later step or the answer takes, and the answer stands behind the last of
them. Everything starts on a multiple of 64 bytes, one behind the other:

    the keys of step 1, step 2 and so on
    what step 0 keeps, what step 1 keeps, and so on
    the answer, as any other, from ANSWER_START on

Where a step fails, the text stands in the place of what it would have written, and ANSWER_START
says where.

What a slot says of the time is, up to GATHERED_NS, of the first step, and from RAN_NS on of the
last.

What a step keeps is a frame, see `ringbatch.shm.frame`. The key of a step are the open dimensions
of all that it takes, in the order of its model's inputs: requests share a batch of that step where
their keys are equal. So the collector finds it without knowing where each tensor comes from.

What a request in the collector's hands is for, and a task, is said in one word, `asked`: the
reference of a model in the lower bits, and for a chain the number of the step above them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, NamedTuple

from ringbatch.shm.frame import Frame
from ringbatch.shm.layout import WORD, aligned
from ringbatch.shm.tensor import ANY, Tensor

REQUEST: Final = -1
"""In the place of a step's number: what the request itself holds."""
MAX_STEPS: Final = 64
_STEP_BITS: Final = 56
_REFERENCE_MASK: Final = (1 << _STEP_BITS) - 1


def asked(reference: int, step: int) -> int:
    """The word for one step of a chain; for step 0, and for any other model, its reference."""
    return step << _STEP_BITS | reference


def reference_in(word: int) -> int:
    """The model's reference in an `asked` word."""
    return word & _REFERENCE_MASK


def step_in(word: int) -> int:
    """The step's number in an `asked` word."""
    return word >> _STEP_BITS


class Source(NamedTuple):
    """Where a tensor comes from.

    Attributes:
        step: which keeps it, or `REQUEST`.
        place: among the tensors that it keeps, or that requests hold; of the last step, among its
            outputs.
    """

    step: int
    place: int


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a chain.

    Attributes:
        model: whose worker runs it.
        version: of that model; empty for the one that serves requests which name none.
        inputs: of the model, as requests carry them.
        outputs: of the model.
        batched: whether the model has a batch dimension.
        sources: of each input.
        keeps: the outputs, by number, that later steps or the answer take.
    """

    model: str
    version: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    batched: bool
    sources: tuple[Source, ...]
    keeps: tuple[int, ...]

    @property
    def kept(self) -> tuple[Tensor, ...]:
        """The tensors of `keeps`."""
        return tuple(self.outputs[number] for number in self.keeps)

    @property
    def key_bytes(self) -> int:
        """Of its key."""
        return WORD * sum(tensor.shape.count(ANY) for tensor in self.inputs)

    @property
    def title(self) -> str:
        """What people call its model."""
        return f"{self.model} version {self.version}" if self.version else self.model


@dataclass(frozen=True, slots=True)
class Chain:
    """The steps of a chain, in the order in which they are run, and the sources of its answer."""

    steps: tuple[Step, ...]
    answers: tuple[Source, ...]

    @property
    def static(self) -> bool:
        """Whether what the steps keep takes the same memory for all requests of so many rows."""
        return all(Frame(step.kept).static for step in self.steps[:-1])

    @property
    def key_starts(self) -> tuple[int, ...]:
        """Where the key of each step is in the result memory, that of step 0 being the request's;
        and in the end, where the keys end."""
        sizes = (aligned(step.key_bytes) for step in self.steps[1:])
        return (0, *accumulate(sizes, initial=0))

    def kept_bytes(self, rows: int) -> int:
        """What keys and all steps keep of a request of so many rows; of a `static` chain."""
        frames = (Frame(step.kept).place(rows).size for step in self.steps[:-1])
        return self.key_starts[-1] + sum(map(aligned, frames))

    def to_json(self) -> dict[str, Any]:
        """As it stands in the model table."""
        return {
            "steps": [
                {
                    "model": step.model,
                    "version": step.version,
                    "inputs": [tensor.to_json() for tensor in step.inputs],
                    "outputs": [tensor.to_json() for tensor in step.outputs],
                    "batched": step.batched,
                    "sources": step.sources,
                    "keeps": step.keeps,
                }
                for step in self.steps
            ],
            "answers": self.answers,
        }


def chain_of(fields: Mapping[str, Any]) -> Chain:
    """The chain that `Chain.to_json` gave."""
    return Chain(
        tuple(
            Step(
                model=step["model"],
                version=step["version"],
                inputs=tuple(Tensor(**tensor) for tensor in step["inputs"]),
                outputs=tuple(Tensor(**tensor) for tensor in step["outputs"]),
                batched=step["batched"],
                sources=tuple(Source(*source) for source in step["sources"]),
                keeps=tuple(step["keeps"]),
            )
            for step in fields["steps"]
        ),
        tuple(Source(*source) for source in fields["answers"]),
    )
