"""Fixtures of the core's tests."""

from tests.publish.conftest import exported, sets  # noqa: F401
