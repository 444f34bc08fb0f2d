"""Process plumbing of the engine: forking, start, signals, messages, CPUs, memory limits, restarts.

Enters: a configuration's plain values. Leaves: plans of CPUs, processes that are set up.
supervisor, collector, worker and ipc import it; it imports `ringbatch.shm`, and the options of
runtimes from `ringbatch.engine.models`. Read first: startup.py, role_events.py, role_commands.py,
then cpu_plan.py.
"""
