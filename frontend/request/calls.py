"""Interface between protocols and the request pipeline: calls, bodies and replies."""

from collections.abc import Callable
from typing import Protocol

from ringbatch.frontend.codec.outcome import Answer
from ringbatch.frontend.codec.request_context import RawHeaders
from ringbatch.frontend.request.parts_task import InParts
from ringbatch.shm.tallies import Protocol as RequestProtocol

Body = bytes | bytearray
Reply = Callable[[Answer], None]
"""Takes the answer; Content-Length, Date and Connection are its own affair."""


class RequestHandle(Protocol):
    """A prediction that is on its way."""

    @property
    def holds(self) -> tuple[int, int]:
        """The number of slots that the call holds in the lane, and their bytes."""

    def abandon(self) -> None:
        """Abandon the request, as nobody waits any more; `reply` will not be called."""


class Upload(Protocol):
    """A request whose binary data is still to come. It ends with one call of its methods."""

    @property
    def memory(self) -> memoryview:
        """Memory for the bytes to come, of exactly their length."""

    def arrived(self, reply: Reply) -> RequestHandle | None:
        """Send the request on its way, as its bytes are there; see `PredictionService.infer`."""

    def abandon(self) -> None:
        """Abandon the request, whose bytes will not come."""


class PredictionService(Protocol):
    """Interface of a service that takes requests. It awaits nothing, and errors are answers."""

    def predict(
        self,
        name: str,
        body: Body,
        reply: Reply,
        timeout_ns: int = 0,
        origin: RawHeaders | None = None,
        account: int = 0,
        in_parts: InParts[Answer] | None = None,
    ) -> RequestHandle | None:
        """Answer a request of V1.

        Args:
            name: the model's, or its `address`.
            body: the request's, undecoded.
            reply: called once, unless the call is abandoned first.
            timeout_ns: how long the client waits, if that is less than the model's own limit;
                0 if it does not say.
            origin: of a request to a model that another server runs, see `Origins`; of others their
                headers, for models that ask.
            account: its account word, see `ringbatch.shm.account`.
            in_parts: as in `Pipeline.start`.

        Returns:
            The call that is on its way; None if `reply` was called already.

        Raises:
            EventsAsked: as in `Pipeline.start`.
        """

    def infer(
        self,
        name: str,
        body: Body,
        json_bytes: int | None,
        reply: Reply,
        timeout_ns: int = 0,
        origin: RawHeaders = b"",
        account: int = 0,
        in_parts: InParts[Answer] | None = None,
    ) -> RequestHandle | None:
        """Answer a request of V2.

        Args:
            name, body, reply, timeout_ns, account, in_parts: as for `predict`.
            json_bytes: where the JSON text of the body ends, as its header says; None if the
                body is nothing else.
            origin: the headers, for models that ask.

        Returns:
            As `predict`.

        Raises:
            EventsAsked: as of `predict`.
        """

    def generate(
        self,
        name: str,
        body: Body,
        reply: Reply,
        timeout_ns: int = 0,
        origin: RawHeaders = b"",
        account: int = 0,
        in_parts: InParts[Answer] | None = None,
    ) -> RequestHandle | None:
        """Answer a request of Triton's generate extension; arguments as for `infer`."""

    def prepare(
        self, name: str, text: bytes, binary_bytes: int, timeout_ns: int = 0, account: int = 0
    ) -> Upload | None:
        """Prepare for a request of V2 of which everything is there but binary data.

        Args:
            name: the model's.
            text: the JSON text of the body.
            binary_bytes: how many bytes are to follow.
            timeout_ns, account: as for `predict`.

        Returns:
            Where they belong; None if the body is to be gathered and given to `infer`.
        """

    def record_outside(
        self, protocol: RequestProtocol, code: int, name: str = "", accepted_ns: int = 0
    ) -> None:
        """Record the end of a request that came to none of the above, or was given up before.

        Args:
            protocol: of the request.
            code: the status of its answer; `CLIENT_GONE` if it was given up.
            name: the model's, or its `address`; empty if unknown.
            accepted_ns: when it came, on the monotonic clock; 0 if unknown.
        """
