"""Counts in words."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """`1 rank`, `2 ranks`, `1,024 ranks`: with the regular plural of `noun`."""
    return f"{number:,.0f} {noun}{'' if number == 1 else 's'}"
