"""Clients of the scenarios: load generators, clients that check each answer, attackers."""
