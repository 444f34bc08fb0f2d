"""What all protocols share when bytes become tensors and results become bytes: JSON values, BYTES
tensors, payloads as slots have them, the table of errors and statuses.

Enters: values and bytes that some protocol has found in a request, results as they lie in slots.
Leaves: parts for slots, JSON text, outcomes. Every other room of the frontend may import it; it
imports `ringbatch.shm` alone. Read first: payload.py, then outcome.py.
"""
