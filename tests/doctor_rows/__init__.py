"""Rows of the doctor's findings on made-up hosts: each outcome of each check."""
