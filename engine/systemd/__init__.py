"""What ringbatch and systemd say to each other.

Enters: the environment that systemd gives a service; what the supervisor knows of its processes.
Leaves: messages to systemd, the sockets that it holds, and the text of unit files.
Read first: service.py, what a service says; then sockets.py and units.py.
"""
