"""Records of V2 inference requests as they are read, and the interface of their readers."""

from typing import Any, NamedTuple, Protocol

from ringbatch.frontend.codec.payload import LazyPart, Part
from ringbatch.frontend.v2.input import Input, Shape
from ringbatch.frontend.v2.requested_outputs import RequestedOutputs


class InferRequest(NamedTuple):
    """V2 infer request, read and checked.

    Attributes:
        parts: in order; several if there are more instances than one batch may hold, none
            if there are no instances.
        requested: what the answer is to be.
    """

    parts: tuple[Part | LazyPart, ...]
    requested: RequestedOutputs


class GivenInput(NamedTuple):
    """Input of a request, as it was given.

    Attributes:
        shape: with the batch dimension.
        dimensions: the sizes that stand for the open dimensions.
        size: its bytes behind the JSON text; `IN_JSON` if its values stand in the text,
            `IN_CLIENT_MEMORY` if its bytes are in memory of the client's, `LEFT_OUT` if the
            request does not have it.
        start: where these begin, from the end of the text.
        values: the `data` of the text, the `LazyBytes`, or the `Default` of what was left out,
            whose bytes are made for each request, as texts are remembered that take none.
        reader: reads these.
    """

    shape: Shape
    dimensions: Shape
    size: int
    start: int
    values: Any
    reader: Input


class Described(NamedTuple):
    """Description in the JSON text of a request.

    Attributes:
        given: each input, in the order of the model's signature.
        rows: instances in the request.
        binary_bytes: how many bytes are to follow the text.
        requested: the requested outputs.
        lazy: True if there are inputs in memory of the client's.
    """

    given: tuple[GivenInput, ...]
    rows: int
    binary_bytes: int
    requested: RequestedOutputs
    lazy: bool


class Outline(NamedTuple):
    """A request of which only the values of its one tensor are still to come.

    Attributes:
        rows: instances in it, of one batch.
        binary_bytes: how many bytes are to come; they are the payload of its slot as they are.
        requested: what the answer is to be.
    """

    rows: int
    binary_bytes: int
    requested: RequestedOutputs


class Requests(Protocol):
    """Reads requests to one model."""

    def parse(self, body: bytes | bytearray, json_bytes: int | None) -> InferRequest:
        """Read a body.

        Args:
            body: all of it.
            json_bytes: where its JSON text ends; None if it is nothing else.

        Raises:
            InvalidRequest: naming what was found and what would be right.
            NotSupported: it asks for an extension that is not served.
            RequestTooLarge: the request makes too many batches.
            RequestError: `ClientMemory` does.
        """

    def read(self, request: Any, text: bytes | bytearray) -> InferRequest:
        """Read a decoded body that is JSON alone.

        Args:
            request: the body, decoded.
            text: the body.

        Raises:
            InvalidRequest, NotSupported, RequestTooLarge, RequestError: as of `parse`.
        """

    def outline(self, text: bytes, binary_bytes: int) -> Outline | None:
        """Return the outline of a body of which only the binary data is still to come.

        Args:
            text: its JSON text.
            binary_bytes: how many bytes are to follow that.

        Returns:
            None if these bytes will not be the payload of one slot as they are, or there is a
            fault; `parse` says which, once the body is there.
        """
