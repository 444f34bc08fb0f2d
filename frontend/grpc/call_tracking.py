"""Ids, times and log lines of calls that infer, see `ringbatch.frontend.access.recorder`."""

from typing import Final

from ringbatch.frontend.access.recorder import Exchanged, Recorder
from ringbatch.frontend.codec.outcome import Headers
from ringbatch.frontend.codec.request_ids import ID_HEADER, TIMING_HEADER
from ringbatch.frontend.grpc.answer_blocks import Metadata
from ringbatch.frontend.grpc.call_head import CallHead
from ringbatch.frontend.load.orca_report import TRAILER
from ringbatch.frontend.request.outcomes import RequestOutcome

_TARGET: Final = "ModelInfer"


class TrackedCall:
    """Tracking of a gRPC call: its id, its log entry, and the metadata of its answer.

    Attributes:
        request_id: its own, or that it is given.

    Args:
        head: the call's head.
        client: the address of its client.
        recorder: the process's recorder.
    """

    __slots__ = ("_client", "_head", "_recorder", "request_id")

    def __init__(self, head: CallHead, client: str, recorder: Recorder) -> None:
        self._head = head
        self._client = client
        self._recorder = recorder
        self.request_id = head.request_id or recorder.ids.make()

    @property
    def id_metadata(self) -> Headers:
        """The id of the call, for its client."""
        return ((ID_HEADER, self.request_id.decode()),)

    @property
    def last_metadata(self) -> Metadata:
        """Trailing metadata of a stream that ends now, with a load report on request."""
        return self.id_metadata + self._load_metadata

    @property
    def _load_metadata(self) -> Metadata:
        report = self._recorder.metadata.load_message(self._head.load)
        return ((TRAILER, report),) if report else ()

    def ended(
        self,
        ending: RequestOutcome,
        bytes_in: int,
        bytes_out: int,
        *,
        asked_for: str = "",
        drawn: int | None = None,
    ) -> Metadata:
        """Record the end of a request of the call; return the metadata behind its answer.

        Args:
            ending: of the request.
            bytes_in, bytes_out: of the messages.
            asked_for: the name of a missing model, if the request names one.
            drawn: the samples that it is in; None if it was not drawn.
        """
        recorder, trace = self._recorder, self._head.trace
        target = f"{_TARGET} {asked_for}" if asked_for else _TARGET
        exchanged = Exchanged(0, self.request_id, trace, target, self._client, bytes_in, bytes_out)
        if drawn is None:
            drawn = recorder.drawn(trace)
        recorder.record(ending, exchanged, drawn=drawn)
        found: Metadata = self.id_metadata
        if self._head.asks or recorder.metadata.server_timing:
            found = (*found, (TIMING_HEADER, recorder.metadata.timing(ending, 0).decode()))
        return (*found, *self._load_metadata)
