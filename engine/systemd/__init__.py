"""systemd: notifications, passed sockets, and unit files.

Enters: the environment that systemd gives a service; the supervisor's knowledge of its processes.
Leaves: messages to systemd, the sockets that it holds, and the text of unit files. Read first:
service.py, the messages of a service; then sockets.py and units.py.
"""
