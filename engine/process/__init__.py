"""What processes of the engine need to run: who forks them, their start and signals, what they and
the supervisor say to each other, CPUs, limits of memory, the delay before a restart.

Enters: a configuration's plain values. Leaves: plans of CPUs, processes that are set up.
supervisor, collector, worker and batch import it; it imports `ringbatch.shm` alone. Read first:
startup.py, role_messages.py, then cpu_plan.py.
"""
