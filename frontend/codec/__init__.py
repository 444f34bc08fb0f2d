"""Encoding common to all protocols: JSON values, BYTES tensors, payloads, errors and statuses.

Enters: values and bytes that some protocol has found in a request, results as they lie in slots.
Leaves: parts for slots, JSON text, outcomes. Every other room of the frontend may import it; it
imports `ringbatch.shm` alone. Read first: payload.py, then outcome.py.
"""
