"""The session on a rehearsal cluster, for the symptoms that need one."""

from tests.slurm.conftest import desk  # noqa: F401
