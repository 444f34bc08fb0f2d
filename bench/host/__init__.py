"""Processes and their host: one server in a session, /proc, control groups, network namespaces."""
