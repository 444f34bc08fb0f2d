"""The control address: metrics for Prometheus, how every model is, loading and unloading.

Enters: the counters of the segment. Leaves: text in Prometheus' format, JSON. Imports request, http
and codec. Read first: exposition.py, where metrics get their names.
"""
