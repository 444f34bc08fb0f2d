"""``ringbatch doctor``: finds problems of a host for ringbatch, and their remedies.

Enters: a configuration, and the host, which is looked at and left as it is. Leaves: findings, each
with what was found, why it matters and what to do. It may be imported by engine.command alone.
Facts are gathered (host_files.py, probes.py, wake_ups.py, software.py, engines.py), judged by pure
functions (``*_checks.py``) and printed (report.py). Read first: examination.py.
"""
