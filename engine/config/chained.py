"""Chains as they are configured: a section ``[models.NAME]`` with `steps` instead of a path."""

from dataclasses import dataclass
from typing import Final

OF_REQUEST: Final = "request."
"""Prefix of the name of a tensor that comes with the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepConfig:
    """Configuration of one step of a chain.

    Attributes:
        model: whose worker runs it.
        version: of that model; empty for the one that serves requests which name none.
        inputs: pairs of an input of the model and the tensor that feeds it, if configured.
        outputs: pairs of an output of the model and its name in the chain, if configured.
    """

    model: str
    version: str = ""
    inputs: tuple[tuple[str, str], ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainConfig:
    """A model whose steps are other models.

    Attributes:
        name: what requests call it.
        steps: in the order in which they are run.
        returns: names of the tensors that it answers with; by default the last step's outputs.
        timeout_s: seconds from a request's acceptance to its deadline.
        kserve_errors: as of any other model.
    """

    name: str
    steps: tuple[StepConfig, ...]
    returns: tuple[str, ...] = ()
    timeout_s: float = 60.0
    kserve_errors: bool = False
