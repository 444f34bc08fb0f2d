"""Open Inference Protocol V2 over HTTP, with Triton's extensions: JSON, binary and shared tensors.

Enters: the bytes of a body and the length of its JSON text, a `ModelSpec`. Leaves: parts for slots,
bytes of an answer, errors. grpc uses its signature and requested outputs too. Imports codec. Read
first: protocol.py, then request.py (the binary header is read there) and answer.py.
"""
