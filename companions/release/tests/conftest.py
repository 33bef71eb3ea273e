"""Fixtures of the core's tests."""

from tests.publish.conftest import sets  # noqa: F401
