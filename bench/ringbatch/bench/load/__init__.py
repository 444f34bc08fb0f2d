"""Open-loop load generator: sends requests when they are due, and records their outcomes.

Enters: prepared requests and the instants at which they are due. Leaves: for each request its time
from that instant, its status, and how late the generator itself was. Imports statistics. Read
first: arrivals.py, then generator.py.
"""
