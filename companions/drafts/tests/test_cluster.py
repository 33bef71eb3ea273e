"""`hpc cluster init`: what is read from Slurm's own words, and the draft that comes of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from companions.drafts import cluster as cluster_draft
from companions.drafts.cluster import Nodes
from hpc_utils import paths, rehearsal
from hpc_utils.analyze.profiles import peaks
from hpc_utils.launch import cluster as clusters
from hpc_utils.launch import slurm_commands


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("gpu:4", [("", 4)]),
        ("gpu:a100:4(S:0,2),shard:16", [("a100", 4)]),
        ("lscratch:3570,gpu:nvidia_a100-sxm4-80gb:4(S:0-1)", [("nvidia_a100-sxm4-80gb", 4)]),
        ("gpu:a100:2,gpu:v100:2", [("a100", 2), ("v100", 2)]),
        ("(null)", []),
    ],
)
def test_gpus_are_read_as_slurm_prints_them(said: str, found: list) -> None:
    assert cluster_draft.read_gres(said) == found


# As `scontrol show node NAME --oneliner` prints it: 64 cores of two threads, of which the system keeps 8 for itself.
NODE = """\
NodeName=nid005016 Arch=x86_64 CoresPerSocket=64  CPUAlloc=0 CPUEfctv=112 CPUTot=128 CPULoad=0.01 \
AvailableFeatures=AMD_EPYC_7A53,x1104 ActiveFeatures=AMD_EPYC_7A53,x1104 Gres=gpu:mi250:8 NodeAddr=nid005016 \
NodeHostName=nid005016 Version=23.02.7 OS=Linux 5.14.21-150500.55.49_13.0.56-cray_shasta_c #1 SMP Mon Mar 4 2024 \
RealMemory=491520 AllocMem=0 FreeMem=476510 Sockets=1 Boards=1 CoreSpecCount=8 CPUSpecList=0-1,16-17 State=IDLE \
ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=standard-g CfgTRES=cpu=112,mem=480G,gres/gpu=8"""


def test_nodes_are_read_as_slurm_prints_them() -> None:
    line = "standard-g*|2-00:00:00|1-1024|EXCLUSIVE|2700|nid[005002-007955]|2|AMD_EPYC_7A53,x1104|gpu:mi250:8"
    known = {"example": "nid005016", "threads": 2, "max_time": "2-00:00:00", "exclusive": True}
    assert cluster_draft.read_nodes(line, NODE) == [
        Nodes("standard-g", True, count=1024, cores=56, gpus=8, gres="mi250", features="AMD_EPYC_7A53,x1104", **known)
    ]
    old = "p|2-00:00:00|1-infinite|EXCLUSIVE|1|n|2|(null)|(null)", NODE.replace("CPUEfctv=112 ", "")
    assert cluster_draft.read_nodes(*old) == [Nodes("p", False, count=1, cores=64, **known)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where drafts go instead of jobs/clusters."""
    monkeypatch.setattr(paths, "clusters", lambda: tmp_path)
    return tmp_path


def nodes(partition: str, count: int, cores: int, threads: int = 1, **more) -> Nodes:
    is_default = partition == "all"
    limits = {"max_time": "2-00:00:00" if is_default else "00:20:00", "exclusive": not is_default}
    return Nodes(partition, is_default, count=count, example="n1", cores=cores, threads=threads, **limits | more)


SITE = [
    nodes("all", 100, cores=64, threads=2),
    nodes("all", 4, cores=40, threads=2, gpus=4, gres="tesla_v100"),
    nodes("all", 2, cores=32, threads=2, gpus=8, features="avx,a40,ib"),
    nodes("all", 2, cores=32, threads=2, gpus=2, gres="xyz_9000"),
    nodes("short", 2, cores=64, gpus=4, gres="a100-sxm4-40gb"),
]


def test_a_draft_is_a_cluster_file_with_every_guess_explained(folder: Path) -> None:
    text = cluster_draft.draft("Big Site", SITE, ["theory", "vision"])
    (folder / "site.toml").write_text(text)
    site = clusters.read_cluster("site")
    assert list(site.nodes) == ["all-v100", "all-a40", "all-xyz-9000", "short", "all-64cores"]
    v100, a40, unknown, a100, cpu = site.nodes.values()
    assert (v100.gpu, v100.gres, v100.precisions) == ("v100", "gpu:tesla_v100", ["fp32", "fp16"])
    assert (a40.gpu, a40.gres, a40.gpus) == ("a40", "", 8)
    assert (unknown.gpu, unknown.precisions) == ("xyz-9000", ["fp32", "fp16"])
    assert (a100.cores, a100.exclusive, a100.most_nodes) == (64, True, 2)
    assert (cpu.gpus, cpu.ranks, cpu.precisions) == (0, 64, ["fp32", "bf16"])
    assert (site.slurm.account, site.slurm.options) == ("", ["--hint=nomultithread"])
    assert "FILL IN: one of theory, vision" in text
    assert 'precisions = ["fp32", "fp16"]  # FILL IN' in text


def test_a_slice_of_a_gpu_is_named_and_is_one_device(folder: Path) -> None:
    mig = nodes("mig", 2, cores=56, gpus=7, gres="nvidia_h100_80gb_hbm3_1g.10gb")
    (folder / "s.toml").write_text(cluster_draft.draft("s", [mig], []))
    node = clusters.read_cluster("s").node()
    assert (node.gpu, node.gpus, node.gres) == ("h100-1g-10gb", 1, "gpu:nvidia_h100_80gb_hbm3_1g.10gb")
    assert peaks.find_peak(node.gpu) is None


def test_a_machine_without_slurm_names_the_files_to_copy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "lumi-g.toml").write_text("")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(slurm_commands.SlurmError, match="lumi-g"):
        cluster_draft.init("mine")


def test_a_short_partition_shortens_the_jobs_and_types_have_names_of_their_own(folder: Path) -> None:
    alike = [nodes("gpu.1", 1, cores=8), nodes("gpu_1", 1, cores=8)]
    (folder / "s.toml").write_text(cluster_draft.draft("s", alike, []))
    site = clusters.read_cluster("s")
    assert site.slurm.time == "00:20:00"
    assert {n.name: n.partition for n in site.nodes.values()} == {"gpu-1": "gpu.1", "gpu-1-2": "gpu_1"}


@pytest.fixture
def on_cluster(cluster: rehearsal.Cluster, monkeypatch: pytest.MonkeyPatch) -> rehearsal.Cluster:
    """This process as on a login node of the rehearsal cluster."""
    for name, value in cluster.environment().items():
        monkeypatch.setenv(name, value)
    return cluster


def test_a_real_slurm_is_drafted_and_takes_what_the_draft_asks_for(
    on_cluster: rehearsal.Cluster, folder: Path
) -> None:
    path = cluster_draft.init()
    assert path == folder / f"{on_cluster.name}.toml"
    drafted = clusters.read_cluster(on_cluster.name)
    node = drafted.node()
    assert (node.partition, node.gpus, node.most_nodes, node.gres) == ("gpu", 4, len(on_cluster.nodes), "")
    # Slurm itself is asked whether it would run such a job.
    command = ["sbatch", "--test-only", f"--partition={node.partition}", f"--nodes={node.most_nodes}"]
    command += [f"--gpus-per-node={node.gpus}", f"--cpus-per-task={node.cores}", f"--time={drafted.slurm.time}"]
    command += [f"--account={drafted.slurm.account}"] if drafted.slurm.account else []
    environment = slurm_commands.clean_environment() | on_cluster.environment()
    asked = subprocess.run([*command, "--wrap=true"], env=environment, capture_output=True, text=True, timeout=60)
    assert asked.returncode == 0, asked.stderr
    with pytest.raises(clusters.ClusterError, match="exists already: give another name"):
        cluster_draft.init()
