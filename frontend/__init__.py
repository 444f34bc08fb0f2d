"""What runs inside a Gunicorn worker: HTTP on one side, a lane of the segment on the other."""
