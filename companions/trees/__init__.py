"""Gradient-boosted trees on all cores of a node: chapter 10."""
