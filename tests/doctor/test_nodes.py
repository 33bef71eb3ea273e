"""Two real nodes on one machine, with faults that only several nodes have; tests/slurm has healthy ones."""

from __future__ import annotations

import pytest

from .conftest import Doctor


@pytest.mark.soak
def test_faults_between_nodes_are_found_and_located(doctor: Doctor, namespaces) -> None:
    """The link is slower than it says, the second node keeps its own results and does not know the first."""
    other = doctor.folder / "hosts-of-b"
    other.write_text("127.0.0.1 localhost\n10.99.0.2 nodeb\n")
    on_b = f"mount --bind {other} /etc/hosts; mount -t tmpfs -o size=64m tmpfs {doctor.results}"
    sick = doctor.two_nodes(rate="1gbit", on_b=on_b)
    for name in ("ranks", "software", "process group", "clock skew"):
        assert sick.verdict(name) == "pass", sick.out + sick.err
    assert "gloo over eth1" in sick["interface"]["measured"]
    assert "of 10 Gbit/s (eth1)" in sick["all-reduce"]["expected"]
    assert sick.verdict("all-reduce") in ("fail", "unknown"), "unknown only where this machine is too busy"
    for name, shown in (("shared results", "not seen"), ("results folder", "tmpfs"), ("names", "nodea")):
        assert (sick.verdict(name), sick[name]["where"]) == ("fail", "nodeb rank 1")
        assert shown in sick[name]["measured"]
