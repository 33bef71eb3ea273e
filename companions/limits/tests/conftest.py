"""The figures' look, for tests that draw."""

from tests.publish.conftest import _own_style, styled  # noqa: F401
