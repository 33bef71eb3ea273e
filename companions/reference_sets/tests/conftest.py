"""Fixtures of the core's tests."""

from tests.publish.conftest import renewed, result_set, sets  # noqa: F401
