"""Cluster files: what they mean, and how a wrong one is refused: by file, key and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils import paths, provenance
from hpc_utils.launch import cluster as clusters

GOOD = """
title = "Mine"
[slurm]
time = "01:00:00"
options = ["--hint=nomultithread"]
[nodes.a100]
partition = "gpu"
gpus = 4
gpu = "a100"
gres = "gpu:a100"
cores = 64
precisions = ["fp32", "bf16"]
price = 4.0
unit = "GPU-hours"
[nodes.a100.variables]
NCCL_DEBUG = "WARN"
[nodes.fat]
partition = "cpu"
cores = 128
exclusive = true
precisions = ["fp32"]
[software]
modules = ["Python/3.11.3-GCCcore-12.3.0"]
[studies.all]
repeats = 2
ranks = [1, 2]
[studies.all.parameters]
workload = "cnn"
epochs = 2
[studies.strong]
repeats = 5
[studies.strong.parameters]
epochs = 3
"""


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str = GOOD, name: str = "mine.toml") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_a_rank_is_a_gpu_or_a_core(write) -> None:
    mine = clusters.read_cluster(write())
    assert (mine.name, mine.node().name, mine.hardware_id()) == ("mine", "a100", "mine-a100")
    nodes = [mine.node("a100"), mine.node("fat")]
    assert [(node.ranks, node.device, node.vendor) for node in nodes] == [(4, "cuda", "nvidia"), (128, "cpu", "")]
    amd = clusters.read_cluster(write(GOOD.replace('"a100"\ngres', '"mi250x"\ngres')))
    assert amd.node().vendor == "amd"


def test_what_holds_for_all_studies_comes_first(write) -> None:
    mine = clusters.read_cluster(write())
    strong, other = mine.overrides("strong"), mine.overrides("weak", "fat")
    assert (strong.repeats, strong.ranks) == (5, [1, 2])
    assert strong.parameters == {"device": "cuda", "workload": "cnn", "epochs": 3}
    assert (other.repeats, other.parameters) == (2, {"device": "cpu", "workload": "cnn", "epochs": 2})


def test_a_rehearsal_carries_the_machine_that_it_is_on(write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HPC_CLUSTER", raising=False)
    here = provenance.hardware_id()
    monkeypatch.setenv("HPC_CLUSTER", "elsewhere")  # as inside a job
    assert clusters.read_cluster(write("rehearsal = true" + GOOD)).hardware_id("fat") == f"mine-fat-{here}"


def test_shared_nodes_are_paid_by_the_share(write) -> None:
    a100, fat = (clusters.read_cluster(write()).node(name) for name in ("a100", "fat"))
    assert a100.cost(nodes=2, ranks_per_node=1, hours=3) == 4.0 * 2 * 3 / 4
    assert fat.cost(nodes=2, ranks_per_node=1, hours=3) == 1.0 * 2 * 3


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("gpus = 4", "gpuss = 4", r"mine\.toml: nodes\.a100: unknown key 'gpuss'"),
        ('gpu = "a100"\n', "", r"nodes\.a100: gpus, gpu: give both"),
        ("cores = 64", "cores = 64\nranks = 8", r"ranks = 8, but a rank has a GPU of its own and a node has 4"),
        ('"fp32", "bf16"', '"fp32", "fp8"', r"nodes\.a100\.precisions\.1: .*'fp32'.*'bf16'.*, not 'fp8'"),
        ("01:00:00", "00:02:00", r"slurm: signal_seconds = 120 must be less than time = 00:02:00"),
        ("--hint=nomultithread", "--account=x", r"slurm: options: --account is set by another key"),
        ("NCCL_DEBUG", "HPC_CLUSTER", r"variables\.HPC_CLUSTER: it is set by Slurm or by the jobs"),
        ('title = "Mine"', 'title = "Mine"\ndefault = "a10"', r"default: no \[nodes\.a10\]; did you mean a100\?"),
        ("[studies.strong]", "[studies.stong]", r"\[studies\.stong\]: no such study; did you mean strong\?"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused(write, right: str, wrong: str, message: str) -> None:
    assert right in GOOD
    path = write(GOOD.replace(right, wrong))
    with pytest.raises(clusters.ClusterError, match=message):
        clusters.read_cluster(path)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('partition = "gpu"', 'partition = "gpu; rm -rf /"'),
        ('title = "Mine"', 'title = "Mine\\nrm -rf /"'),
        ('time = "01:00:00"', 'account = "$(id)"'),
        ('gres = "gpu:a100"', 'gres = "gpu:a100:4 --wrap=x"'),
        ('"--hint=nomultithread"', '"--comment=a\\nb"'),
        ('NCCL_DEBUG = "WARN"', 'NCCL_DEBUG = "WARN\\nexport X=1"'),
        ('"Python/3.11.3-GCCcore-12.3.0"', '"Python; id"'),
    ],
)
def test_text_that_a_shell_or_slurm_could_take_for_more_is_refused(write, right: str, wrong: str) -> None:
    assert right in GOOD
    with pytest.raises(clusters.ClusterError, match=r"mine\.toml: .*should match pattern"):
        clusters.read_cluster(write(GOOD.replace(right, wrong)))


def test_an_unknown_cluster_or_node_type_is_refused(write) -> None:
    for name, why in (
        ("leonard", "hpc cluster init"),
        (write(name="my cluster.toml"), "a cluster's name is letters"),
    ):
        with pytest.raises(clusters.ClusterError, match=why):
            clusters.read_cluster(name)
    with pytest.raises(clusters.ClusterError, match=r"cluster mine has no node type 'a10'"):
        clusters.read_cluster(write()).node("a10")


def test_a_users_own_study_is_rehearsed_as_it_is() -> None:
    """Only the shipped studies are made small: another's workload is never replaced behind its back."""
    own = clusters.read_cluster("rehearsal").overrides("my-own-study")
    assert set(own.parameters) == {"device", "threads_per_rank"}
    shared = clusters.read_cluster("rehearsal").rehearsed(links=None, share=0.14).overrides("my-own-study")
    assert (shared.parameters["cores_per_rank"], shared.parameters["threads_per_rank"]) == (0.14, None)
    assert clusters.read_cluster("rehearsal").overrides("strong").parameters["workload"] == "cnn"


def test_a_wrong_file_matters_only_to_its_own_cluster(write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write()
    write("title = 3", "other.toml")
    monkeypatch.setattr(paths, "clusters", lambda: tmp_path)
    assert clusters.prices(["mine-a100", "elsewhere"])["mine-a100"].price == 4
    with pytest.raises(clusters.ClusterError, match=r"other\.toml: title: .*not 3"):
        clusters.prices(["other-cpu"])
