"""`ringbatch bench`: what is measured, in which order, and what is written.

Enters: settings. Leaves: files, progress, an exit status. It may import every other room of bench.
Read first: measurement.py.
"""
