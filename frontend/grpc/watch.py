"""What is seen of calls that infer, for their ids, times and lines in the log; see
`ringbatch.frontend.access.recorder`."""

from typing import Final

from ringbatch.frontend.access.recorder import Exchanged, Recorder
from ringbatch.frontend.codec.outcome import Headers
from ringbatch.frontend.codec.request_ids import (
    ASK_HEADER,
    ASKED,
    ID_HEADER,
    TIMING_HEADER,
    TRACE_HEADER,
    sound_trace,
    taken,
)
from ringbatch.frontend.grpc.calls import Context
from ringbatch.frontend.request.endings import Ending

_NAMES: Final = (ID_HEADER, TRACE_HEADER, ASK_HEADER)
_TARGET: Final = "ModelInfer"


class WatchedCall:
    """One call; what it says of itself stands in its metadata.

    Args:
        context: of the call.
        recorder: of the process.
    """

    def __init__(self, context: Context, recorder: Recorder) -> None:
        sent: dict[str, str] = {}
        for name, value in context.invocation_metadata() or ():
            if name in _NAMES:
                # Twice the same name says nothing.
                sent[name] = "" if name in sent else value
        found = sent.get(ID_HEADER, "").encode("latin-1", "replace")
        self._id = taken(found) or recorder.ids.make()
        self._trace = sound_trace(sent.get(TRACE_HEADER, "").encode("latin-1", "replace"))
        self._told = recorder.server_timing or sent.get(ASK_HEADER) == ASKED
        self._client: str = context.peer()
        self._recorder = recorder

    @property
    def id_metadata(self) -> Headers:
        """The id of the call, for whoever made it."""
        return ((ID_HEADER, self._id.decode()),)

    def ended(self, ending: Ending, bytes_in: int, bytes_out: int) -> Headers:
        """A request of the call has ended; what metadata say of it behind its answer.

        Args:
            ending: how.
            bytes_in, bytes_out: of the messages.
        """
        exchanged = Exchanged(0, self._id, self._trace, _TARGET, self._client, bytes_in, bytes_out)
        self._recorder.record(ending, exchanged, drawn=self._recorder.drawn(self._trace))
        if not self._told:
            return self.id_metadata
        timing = self._recorder.timing(ending, 0).decode()
        return (*self.id_metadata, (TIMING_HEADER, timing))
