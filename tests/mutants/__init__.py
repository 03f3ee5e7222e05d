"""Planted bugs: each removes one safeguard, and something must catch it."""
