"""Chains: models whose steps are other models, and the tensors that a request passes between them.

A request for a chain stays in one slot. Each step but the last keeps some of its outputs in the
slot's result memory: those that a later step or the answer takes. The answer follows the last of
them. Everything starts on a multiple of 64 bytes, one behind the other:

    the keys of step 1, step 2 and so on
    what step 0 keeps, what step 1 keeps, and so on
    the answer, as any other, from ANSWER_START on

If a step fails, its error text replaces its outputs, and ANSWER_START says where it begins.

Of the slot's instants, those up to GATHERED_NS belong to the first step, and those from RAN_NS on
to the last.

The outputs that a step keeps are a frame, see `ringbatch.shm.frame`. A step's key is the open
dimensions of all its inputs, in the order of its model. Requests share a batch of a step if their
keys are equal. So the collector need not know where each tensor comes from.

The collector and its tasks name a model and a step in one word, `asked`. Its lower bits are the
reference of a model; for a chain the number of the step stands above them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, NamedTuple

from ringbatch.shm.frame import Frame
from ringbatch.shm.layout import WORD, aligned
from ringbatch.shm.tensor import ANY, Tensor

REQUEST: Final = -1
"""Mark in the place of a step's number: the tensors of the request itself."""
MAX_STEPS: Final = 64
_STEP_BITS: Final = 56
_REFERENCE_MASK: Final = (1 << _STEP_BITS) - 1


def asked(reference: int, step: int) -> int:
    """Return the word for one step of a chain; for step 0, and any other model, its reference."""
    return step << _STEP_BITS | reference


def reference_in(word: int) -> int:
    """Return the model's reference in an `asked` word."""
    return word & _REFERENCE_MASK


def step_in(word: int) -> int:
    """Return the step's number in an `asked` word."""
    return word >> _STEP_BITS


class Source(NamedTuple):
    """Origin of a tensor.

    Attributes:
        step: which keeps it, or `REQUEST`.
        place: among the tensors that the step keeps, or that requests hold; for the last step,
            among its outputs.
    """

    step: int
    place: int


@dataclass(frozen=True, slots=True)
class Step:
    """Step of a chain: one model, the sources of its inputs, and the outputs to keep.

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
        """Bytes of the step's key: one word for each open dimension of its inputs."""
        return WORD * sum(tensor.shape.count(ANY) for tensor in self.inputs)

    @property
    def title(self) -> str:
        """The model's name and version for people."""
        return f"{self.model} version {self.version}" if self.version else self.model


@dataclass(frozen=True, slots=True)
class Chain:
    """The steps of a chain, in the order in which they are run, and the sources of its answer."""

    steps: tuple[Step, ...]
    answers: tuple[Source, ...]

    @property
    def static(self) -> bool:
        """True if the kept tensors take the same memory for all requests of as many rows."""
        return all(Frame(step.kept).static for step in self.steps[:-1])

    @property
    def key_starts(self) -> tuple[int, ...]:
        """Offset of each step's key in the result memory, and the end of the last.

        The key of step 0 is the request's.
        """
        sizes = (aligned(step.key_bytes) for step in self.steps[1:])
        return (0, *accumulate(sizes, initial=0))

    def kept_bytes(self, rows: int) -> int:
        """Return the bytes that keys and kept tensors of a request take; for a `static` chain."""
        frames = (Frame(step.kept).place(rows).size for step in self.steps[:-1])
        return self.key_starts[-1] + sum(map(aligned, frames))

    def to_json(self) -> dict[str, Any]:
        """Return the chain as JSON values, as it stands in the model table."""
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
    """Return the chain that `Chain.to_json` wrote."""
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
