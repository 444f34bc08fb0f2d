"""What the doctor says of made-up hosts: each outcome of each check, a row."""
