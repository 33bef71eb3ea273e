"""`hpc cluster init`: what is read from Slurm's own words, and the draft that comes of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hpc_utils import paths, rehearsal
from hpc_utils.launch import cluster as clusters
from hpc_utils.launch import cluster_draft, slurm_commands
from hpc_utils.launch.cluster_draft import Nodes, Partition, SlurmFacts

# As `scontrol show partition --oneliner` prints it: Slurm 23.11, shortened to one line a partition.
PARTITIONS = """\
PartitionName=cpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A DefaultTime=01:00:00 \
DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=1-00:00:00 MinNodes=0 LLN=NO \
MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=UNLIMITED Nodes=nid[001008-001011,001020-001023] PriorityJobFactor=0 \
PriorityTier=0 RootOnly=NO ReqResv=NO OverSubscribe=EXCLUSIVE OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=2048 \
TotalNodes=8 SelectTypeParameters=NONE JobDefaults=(null) DefMemPerCPU=920 MaxMemPerCPU=1840 \
TRES=cpu=2048,mem=1960000M,node=8,billing=2048 TRESBillingWeights=CPU=1
PartitionName=gpu AllowGroups=ALL AllowAccounts=ALL AllowQos=normal,high AllocNodes=login[1-2] Default=NO QoS=N/A \
DefaultTime=00:10:00 MaxNodes=4 MaxTime=00:30:00 MinNodes=0 Nodes=g[384-385] OverSubscribe=NO OverTimeLimit=NONE \
PreemptMode=OFF State=UP TotalCPUs=128 TotalNodes=2 SelectTypeParameters=CR_SOCKET_MEMORY JobDefaults=DefMemPerGPU=29440 \
DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=128,mem=496000M,node=2,billing=72,gres/gpu=8
PartitionName=old AllowGroups=ALL Default=NO MaxNodes=UNLIMITED MaxTime=UNLIMITED OverSubscribe=NO State=DOWN TotalNodes=3
"""


def test_partitions_are_read_as_slurm_prints_them() -> None:
    assert cluster_draft.read_partitions(PARTITIONS) == {
        "cpu": Partition("cpu", True, "1-00:00:00", 0, True, "DefMemPerCPU=920"),
        "gpu": Partition("gpu", False, "00:30:00", 4, False, "DefMemPerNode=UNLIMITED"),
    }


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("gpu:4", [("", 4)]),
        ("gpu:a100:4(S:0-1)", [("a100", 4)]),
        ("gpu:a100:4(S:0,2),shard:16", [("a100", 4)]),
        ("lscratch:3570,gpu:nvidia_a100-sxm4-80gb:4(S:0-1)", [("nvidia_a100-sxm4-80gb", 4)]),
        ("gpu:a100:2,gpu:v100:2", [("a100", 2), ("v100", 2)]),
        ("(null)", []),
        ("craynetwork:4", []),
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
    group = "standard-g|2700|nid[005002-007955]|128|2|gpu:mi250:8"
    assert cluster_draft.read_nodes(group, NODE) == [
        Nodes("standard-g", 2700, "nid005016", 56, 2, 8, "mi250", "AMD_EPYC_7A53,x1104")
    ]
    old = NODE.replace("CPUEfctv=112 ", "")
    assert cluster_draft.read_nodes("p|1|n|128|2|(null)", old) == [
        Nodes("p", 1, "nid005016", 64, 2, 0, "", "AMD_EPYC_7A53,x1104")
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where drafts go instead of jobs/clusters."""
    monkeypatch.setattr(paths, "clusters", lambda: tmp_path)
    return tmp_path


SITE = SlurmFacts(
    "Big Site",
    {
        "all": Partition("all", default=True, max_time="2-00:00:00"),
        "short": Partition("short", max_time="00:20:00", exclusive=True, max_nodes=2),
    },
    [
        Nodes("all", 100, "c1", cores=64, threads=2),
        Nodes("all", 4, "v1", cores=40, threads=2, gpus=4, gres="tesla_v100"),
        Nodes("all", 2, "g1", cores=32, threads=2, gpus=8, features="avx,a40,ib"),
        Nodes("all", 2, "x1", cores=32, threads=2, gpus=2, gres="xyz_9000"),
        Nodes("short", 10, "g9", cores=64, threads=1, gpus=4, gres="a100-sxm4-40gb"),
    ],
    ["theory", "vision"],
)


def test_a_draft_is_a_cluster_file_with_every_guess_explained(folder: Path) -> None:
    text = cluster_draft.draft(SITE, {"WORK": "/work"})
    (folder / "site.toml").write_text(text)
    site = clusters.read("site")
    assert list(site.nodes) == ["all-v100", "all-a40", "all-xyz-9000", "short", "all-64cores"]
    v100, a40, unknown, a100, cpu = site.nodes.values()
    assert (v100.gpu, v100.gres, v100.precisions) == ("v100", "gpu:tesla_v100", ["fp32", "fp16"])
    assert (a40.gpu, a40.gres, a40.gpus) == ("a40", "", 8)
    assert (unknown.gpu, unknown.precisions) == ("xyz-9000", ["fp32", "fp16"])
    assert (a100.gpu, a100.cores, a100.exclusive, a100.most_nodes) == ("a100", 64, True, 2)
    assert (cpu.gpus, cpu.ranks, cpu.precisions) == (0, 64, ["fp32", "bf16"])
    assert (site.slurm.account, site.slurm.options) == ("", ["--hint=nomultithread"])
    assert "FILL IN: one of theory, vision" in text and "$WORK/study" in text
    unsaid = [line for line in text.splitlines() if "= " in line and "#" not in line]
    assert [line.split()[0] for line in unsaid if line.split()[0] not in ("title", "about", "unit", "gres")] == [
        "precisions"
    ] * 4
    assert 'precisions = ["fp32", "fp16"]  # FILL IN' in text


def test_a_short_partition_shortens_the_jobs(folder: Path) -> None:
    only = SlurmFacts("s", SITE.partitions, [SITE.nodes[-1]], [])
    (folder / "s.toml").write_text(cluster_draft.draft(only, {}))
    assert clusters.read("s").slurm.time == "00:20:00"


def test_types_of_node_have_names_of_their_own(folder: Path) -> None:
    alike = [Nodes("gpu.1", 1, "a", 8, 1), Nodes("gpu_1", 1, "b", 8, 1)]
    both = SlurmFacts("s", {name: Partition(name) for name in ("gpu.1", "gpu_1")}, alike, [])
    (folder / "s.toml").write_text(cluster_draft.draft(both, {}))
    assert {n.name: n.partition for n in clusters.read("s").nodes.values()} == {"gpu-1": "gpu.1", "gpu-1-2": "gpu_1"}


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
    drafted = clusters.read(on_cluster.name)
    node = drafted.node()
    assert (node.partition, node.gpus, node.most_nodes, node.gres) == ("gpu", 4, len(on_cluster.nodes), "")
    # Slurm itself is asked whether it would run such a job.
    command = ["sbatch", "--test-only", f"--partition={node.partition}", f"--nodes={node.most_nodes}"]
    command += [f"--gpus-per-node={node.gpus}", f"--cpus-per-task={node.cores}", f"--time={drafted.slurm.time}"]
    command += [f"--account={drafted.slurm.account}"] if drafted.slurm.account else []
    environment = slurm_commands.clean_environment() | on_cluster.environment()
    asked = subprocess.run([*command, "--wrap=true"], env=environment, capture_output=True, text=True, timeout=60)
    assert asked.returncode == 0, asked.stderr


def test_a_file_that_is_there_is_not_overwritten(on_cluster: rehearsal.Cluster, folder: Path) -> None:
    (folder / "mine.toml").write_text("precious")
    with pytest.raises(clusters.ClusterError, match=r"mine\.toml exists already: give another name"):
        cluster_draft.init("mine")
    assert (folder / "mine.toml").read_text() == "precious"
