"""Messages between collector, workers and supervisor: tasks, reports, instructions, batch shapes.

Enters: values. Leaves: words for rings, instructions for workers, shapes. collector, worker and
supervisor import it. Read first: messages.py.
"""
