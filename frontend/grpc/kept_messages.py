"""Messages of drawn requests over gRPC, for the payload log."""

from ringbatch.frontend.grpc.call_head import CallHead
from ringbatch.frontend.grpc.inference import GrpcAnswer
from ringbatch.frontend.payloads.recorder import Answered, Kept, PayloadRecorder

TYPE = "application/x-protobuf"


def kept_call(payloads: PayloadRecorder, head: CallHead, data: bytes) -> Kept:
    """Return what is kept of a drawn request, a ModelInferRequest."""
    headers = {name.lower(): value for name, value in head.fields if name != b"content-type"}
    return payloads.kept(headers, data, type=TYPE)


def answered(answer: GrpcAnswer | None) -> Answered:
    """Return an answer for the payload log: a ModelInferResponse, or the text of an error.

    There is none if nobody waited for it.
    """
    if answer is None:
        return Answered(b"", 0, type=TYPE)
    response, error, _ = answer
    if error is None:
        return Answered(response, len(response), type=TYPE)
    text = str(error).encode()
    return Answered(text, len(text), type="text/plain")
