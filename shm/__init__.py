"""The memory that frontends, collector and workers share, and its protocol."""
