"""Fixtures of the core's tests."""

from tests.launch.conftest import bench  # noqa: F401
