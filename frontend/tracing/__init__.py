"""Traces: spans of requests and batches, sent to an OpenTelemetry collector by the control process.

Enters: the records of traced requests in the segment. Leaves: spans in OTLP over HTTP, counts of
them, lines in the log. Imports shm alone, and in messages.py a package that only the extra `otel`
brings. Read first: spans.py, then tracing.py.
"""
