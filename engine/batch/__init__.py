"""What crosses between collector, workers and supervisor: tasks and reports in rings, instructions
at the start, and the shape that a batch is run in.

Enters: values. Leaves: words for rings, what a worker is told of its model, shapes. collector,
worker and supervisor import it. Read first: messages.py.
"""
