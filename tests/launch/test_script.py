"""A user's own training loop, as a script: `hpc run my_loop.py`, its study, and what an edit of it does."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpc_utils import records, source_code, workspace
from hpc_utils.config import ConfigError
from hpc_utils.launch import local
from hpc_utils.launch import study as studies
from hpc_utils.launch.request import Layout, prepare
from hpc_utils.launch.study_file import StudyError
from hpc_utils.records.folder import read_json

from .conftest import Bench

LOOP = """
import argparse, os
import torch
from torch import distributed as dist
from hpc_utils.train import Recorder
import layers

parser = argparse.ArgumentParser()
parser.add_argument("--global_batch", type=int, default=32)
parser.add_argument("--width", type=int, default=8)
parser.add_argument("--bias", action=argparse.BooleanOptionalAction)
args = parser.parse_args()
batch = args.global_batch
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    batch //= dist.get_world_size()
model = layers.model(args.width)
if dist.is_initialized():
    model = torch.nn.parallel.DistributedDataParallel(model)
loader = [torch.randn(batch, 4)] * 6
with Recorder("my-loop", global_batch=args.global_batch) as run:
    for epoch in range(2):
        for x in run.epoch(loader):
            loss = model(x).square().mean()
            loss.backward()
            run.step(samples=len(x), loss=loss)
"""
SEEDED = LOOP.replace("args = ", 'parser.add_argument("--seed", type=int, default=0)\nargs = ')
STUDY = """
title = "A loop"
repeats = 1
[[series]]
name = "baseline"
notebook = "my_loop.py"
ranks = [1]
parameters = { parallel = "none", global_batch = 32 }
[[series]]
name = "strong"
notebook = "my_loop.py"
ranks = [1, 2]
parameters = { parallel = "ddp", global_batch = 32 }
[[series]]
name = "weak"
notebook = "my_loop.py"
ranks = [1, 2]
parameters = { parallel = "ddp", batch_per_device = 32 }
"""
LAYERS = "import torch\n\n\ndef model(width):\n    return torch.nn.Linear(4, width)\n"


def write_loop(folder: Path, loop: str = LOOP) -> Path:
    (folder / "layers.py").write_text(LAYERS)
    script = folder / "my_loop.py"
    script.write_text(loop)
    return script


def config(run: Path) -> dict:
    return read_json(run / "run.json")["config"]


@pytest.fixture
def here(tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a loop, as the working folder."""
    write_loop(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def study(here: Path) -> Path:
    """A study of the loop, beside it."""
    path = here / "mine.toml"
    path.write_text(STUDY)
    return path


def test_ranks_execute_a_script_with_its_batch_and_parameters(bench: Bench) -> None:
    write_loop(bench.folder)
    outcome = bench.hpc(
        "run", "my_loop.py", "--nproc", 2, "-p", "width=16", "-p", "bias=true", "-p", "batch_per_device=8"
    )
    assert outcome.code == 0, outcome.err
    recorded = config(bench.run)
    assert recorded["workload_args"] == {"width": 16, "bias": True}
    assert (recorded["workload"], recorded["parallel"], recorded["global_batch"]) == ("my_loop.py", "ddp", 16)
    record_set = records.load(bench.results)
    run = record_set.runs.iloc[0]
    assert (run.world_size, run.samples, run.threads_per_rank) == (2, 2 * 6 * 16, 1)
    assert read_json(bench.run / "run.json")["pinned"] is True
    assert (
        bench.hpc(
            "run", "my_loop.py", "--nproc", 2, "-p", "bias=true", "-p", "width=16", "-p", "batch_per_device=8"
        ).code
        == 0
    )
    assert len(bench.runs) == 1, "it is complete"


@pytest.mark.parametrize(
    "launcher",
    [[], ["--", sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--log-dir", "/dev/null"]],
)
def test_one_process_without_a_group_whoever_starts_it(bench: Bench, launcher: list[str]) -> None:
    write_loop(bench.folder)
    outcome = bench.hpc("run", "my_loop.py", "-p", "parallel=none", *launcher)
    assert outcome.code == 0, outcome.err
    assert config(bench.run) | {"parallel": "none", "global_batch": 32} == config(bench.run), "the script's default"


@pytest.mark.parametrize(
    ("loop", "parameter", "reason"),
    [
        (LOOP, "width=wide", "argument --width: invalid int value: 'wide'"),
        (LOOP.replace("global_batch=args.global_batch)", "global_batch=64)"), "width=3", "global_batch=64"),
        (LOOP.replace('if "RANK"', 'if "NEVER"'), "width=3", "parallel=ddp"),
        (LOOP.replace("loss.backward()", "loss.backwards()"), "width=3", 'my_loop.py", line 25'),
    ],
)  # fmt: skip
def test_a_loop_that_does_not_train_what_it_was_started_for_fails(
    bench: Bench, loop: str, parameter: str, reason: str
) -> None:
    write_loop(bench.folder, loop)
    outcome = bench.hpc("run", "my_loop.py", "-p", parameter)
    assert outcome.code == 1 and reason in bench.status()["reason"]


def test_the_whole_time_of_a_script_is_recorded_and_an_interruption_is_remarked(bench: Bench) -> None:
    loop = LOOP.replace("import layers\n", "import layers, time\n") + "        time.sleep(0.3)\n"
    write_loop(
        bench.folder,
        loop + "        if not os.path.exists('evaluated'):\n            open('evaluated', 'w'); os._exit(9)\n",
    )
    assert bench.hpc("run", "my_loop.py", "-p", "parallel=none").code == 1
    assert bench.hpc("run", "my_loop.py", "-p", "parallel=none").code == 0
    epochs = records.load(bench.results).epochs
    assert (epochs.eval_seconds.astype(float) > 0.29).all() and len(epochs) == 2
    run = read_json(bench.run / "run.json")
    assert 0 < run["setup_seconds"] < 60 and ["interrupted" in text for text in run["remarks"]] == [True]


def test_a_script_that_hangs_ends_after_the_timeout_of_collectives(bench: Bench) -> None:
    hanging = "            if os.environ['RANK'] == '1': import time; time.sleep(600)\n            loss.backward()"
    write_loop(bench.folder, LOOP.replace("            loss.backward()", hanging))
    begun = time.monotonic()
    assert bench.hpc("run", "my_loop.py", "--nproc", 2, "-p", "collective_timeout=3").code == 1
    assert time.monotonic() - begun < 60
    assert "my_loop.py" in bench.status()["reason"]


def test_samples_of_one_batch_where_a_step_has_two_are_remarked(bench: Bench) -> None:
    step = "            run.step(samples=len(x), loss=loss)"
    write_loop(
        bench.folder,
        LOOP.replace("for x in", "for n, x in")
        .replace("run.epoch(loader)", "enumerate(run.epoch(loader))")
        .replace(step, f"            if n % 2:\n    {step}"),
    )
    assert bench.hpc("run", "my_loop.py", "-p", "parallel=none").code == 0
    [remark] = read_json(bench.run / "run.json")["remarks"]
    assert "6 batches in 3 steps" in remark


REPLAYING = "from hpc_utils.train.ranks import Ranks\nRanks.has_graphs = True\n"  # which reduce them unseen


@pytest.mark.parametrize(("parallel", "first", "code"), [("ddp", "", 1), ("own", "", 0), ("ddp", REPLAYING, 0)])
def test_ranks_that_do_not_reduce_their_gradients_are_refused_as_ddp(
    bench: Bench, parallel: str, first: str, code: int
) -> None:
    write_loop(bench.folder, first + LOOP.replace("model(x)", 'getattr(model, "module", model)(x)'))
    assert bench.hpc("run", "my_loop.py", "--nproc", 2, "-p", f"parallel={parallel}").code == code
    assert code == 0 or "no collective" in bench.status()["reason"]


def test_ranks_that_stop_reducing_are_refused_in_that_epoch(bench: Bench) -> None:
    write_loop(bench.folder, LOOP.replace("model(x)", "(model.module if epoch else model)(x)"))
    assert bench.hpc("run", "my_loop.py", "--nproc", 2).code == 1
    assert "no collective" in bench.status()["reason"]


def test_a_rank_that_steps_for_all_is_no_fault(bench: Bench) -> None:
    """Such as of a parameter server: the weights of the others are given to them."""
    given = (
        "dist.get_rank() or optimizer.step()\n            [dist.broadcast(w.data, 0) for w in model.parameters()]\n"
    )
    write_loop(bench.folder, UNREDUCED.replace("optimizer.step()\n", given))
    assert bench.hpc("run", "my_loop.py", "--nproc", 2).code == 0


UNREDUCED = LOOP.replace("loader =", "optimizer = torch.optim.SGD(model.parameters(), 0.1)\nloader =").replace(
    "            loss = model(x).square().mean()\n            loss.backward()\n",
    "            with model.no_sync():\n                loss = (model(x) * (1 + dist.get_rank())).square().mean()\n"
    "                loss.backward()\n            dist.all_reduce(loss.detach().clone())\n            optimizer.step()\n",
)


@pytest.mark.parametrize(("parallel", "code"), [("ddp", 1), ("own", 0), ("fsdp", 0)])
def test_ranks_of_different_weights_are_refused_as_ddp(bench: Bench, parallel: str, code: int) -> None:
    """Although they start collectives, for the loss."""
    write_loop(bench.folder, UNREDUCED)
    assert bench.hpc("run", "my_loop.py", "--nproc", 2, "-p", f"parallel={parallel}").code == code
    assert code == 0 or "different weights" in bench.status()["reason"]


def test_ranks_that_hold_all_weights_are_refused_as_fsdp(bench: Bench) -> None:
    write_loop(bench.folder, UNREDUCED.replace("with model.no_sync()", "if True"))
    assert bench.hpc("run", "my_loop.py", "--nproc", 2, "-p", "parallel=fsdp").code == 1
    assert "parallel=ddp" in bench.status()["reason"]


def test_steps_of_a_batch_where_the_optimizer_steps_rarely_are_remarked(bench: Bench) -> None:
    rare = "optimizer = torch.optim.SGD(model.parameters(), 0.1)\nloader ="
    loop = LOOP.replace("loader =", rare).replace(
        "for x in run.epoch(loader)", "for n, x in enumerate(run.epoch(loader))"
    )
    write_loop(
        bench.folder, loop.replace("loss.backward()", "loss.backward()\n            n % 3 or optimizer.step()")
    )
    assert bench.hpc("run", "my_loop.py", "-p", "parallel=none").code == 0
    [remark] = read_json(bench.run / "run.json")["remarks"]
    assert remark.startswith("6 steps, but an optimizer has made 2")


def test_batch_and_precision_are_the_script_s_own_defaults(here: Path) -> None:
    precise = LOOP.replace("args = ", 'parser.add_argument("--precision", default="bf16")\nargs = ')
    write_loop(here, precise)
    assert prepare(Path("my_loop.py"), {}).config.precision == "bf16"
    assert prepare(Path("my_loop.py"), {"precision": "fp32"}).arguments == ["--global_batch=32", "--precision=fp32"]
    for was, now, why in (
        ("default=32", "default=BATCH", "no plain default"),
        ('default="bf16"', 'default="bfloat16"', "is none of fp32"),
    ):
        write_loop(here, precise.replace(was, now))
        with pytest.raises(ConfigError, match=why):
            prepare(Path("my_loop.py"), {})


def test_a_switch_that_is_off_is_left_out_and_a_list_is_several_words(here: Path) -> None:
    write_loop(here, LOOP.replace("args = ", 'parser.add_argument("--fast", action="store_true")\nargs = '))
    given = {"fast": False, "bias": False, "width": [8, 16]}
    assert prepare(Path("my_loop.py"), given).arguments == ["--global_batch=32", "--no-bias", "--width", "8", "16"]


def test_a_script_that_starts_its_own_ranks_is_refused(here: Path) -> None:
    write_loop(here, LOOP + "\nseeds = numpy.random.SeedSequence(1).spawn(2)  # formerly mp.spawn(main)\n")
    assert prepare(Path("my_loop.py"), {})
    write_loop(here, LOOP + "\ntorch.multiprocessing.spawn(print, nprocs=2)\n")
    with pytest.raises(ConfigError, match="starts its own ranks"):
        prepare(Path("my_loop.py"), {})


def test_an_edited_module_elsewhere_is_another_measurement(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = here.parent / "elsewhere/shared_layers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from . import sizes\n")
    (package / "sizes.py").write_text("WIDTH = 8\n")
    write_loop(here, LOOP.replace("import layers", "import layers, shared_layers"))
    unknown = prepare(Path("my_loop.py"), {}).run_id
    monkeypatch.syspath_prepend(package.parent)
    known = prepare(Path("my_loop.py"), {}).run_id
    (package / "sizes.py").write_text(
        "import argparse\nargparse.ArgumentParser().add_argument('--seed', default=9)\n"
    )
    edited = prepare(Path("my_loop.py"), {})
    assert len({unknown, known, edited.run_id}) == 3
    assert edited.arguments == ["--global_batch=32"], "an option of another package is none of the script's"
    (package / "__init__.py").unlink()  # a package without it
    write_loop(here, LOOP.replace("import layers", "import layers, shared_layers.sizes"))
    assert package / "sizes.py" in source_code.files("my_loop.py")


def test_a_script_without_recorder_or_batch_and_one_elsewhere_are_refused(here: Path) -> None:
    wrong_scripts = {
        "Recorder": "print('--global_batch')",
        "--global_batch": LOOP.replace("--global_batch", "--batch"),
        "line 1": "def (",
    }
    for reason, script in wrong_scripts.items():
        (here / "wrong.py").write_text(script)
        with pytest.raises(ConfigError, match=rf"wrong\.py.*{reason}"):
            prepare(Path("wrong.py"), {})
    with pytest.raises(ConfigError, match="--widht: did you mean width"):
        prepare(Path("my_loop.py"), {"widht": 3})
    with pytest.raises(ConfigError):
        prepare(write_loop(here.parent), {})
    (here.parent / "my_loop.py").unlink()


def test_an_edited_loop_or_module_beside_it_is_another_measurement(here: Path) -> None:
    first = prepare(Path("my_loop.py"), {})
    for file in ("layers.py", "my_loop.py"):
        before = prepare(Path("my_loop.py"), {}).run_id
        with (here / file).open("a") as code:
            code.write("\nmore = 1\n")
        assert prepare(Path("my_loop.py"), {}).run_id != before
    assert prepare(Path("my_loop.py"), {}, Layout(1, 2)).config == first.config


def test_its_study_is_planned_and_names_former_runs(here: Path, study: Path) -> None:
    plan = studies.plan(str(study))
    layouts = {(point.series, point.request.config.parallel, point.ranks) for point in plan.points}
    assert {("baseline", "none", 1), ("strong", "ddp", 1), ("weak", "ddp", 1)} <= layouts
    assert {point.request.arguments[0] for point in plan.points if point.series != "weak"} == {"--global_batch=32"}
    plan.index.write()
    former = plan.requests[0]
    former.path.mkdir(parents=True)
    (here / "my_loop.py").write_text(LOOP.replace("range(2)", "range(3)"))
    (line,) = studies.plan(str(study)).changes()
    assert former.run_id in line and plan.command in line


def test_what_was_edited_since_it_was_planned_is_not_started(here: Path) -> None:
    planned = prepare(Path("my_loop.py"), {})
    (here / "layers.py").write_text(LAYERS.replace("Linear(4, width)", "Linear(4, width, bias=False)"))
    with pytest.raises(ConfigError, match=planned.run_id):
        local.run(planned)


def test_a_study_whose_script_is_beside_its_file_says_where_to_run_it(
    here: Path, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    with pytest.raises(StudyError, match=f"is in {here}"):
        studies.plan(str(study))


def test_one_value_of_a_script_s_own_parameter_is_chosen(study: Path) -> None:
    study.write_text(STUDY.replace("parameters = {", "matrix = { width = [8, 16] }\nparameters = {"))
    chosen = studies.plan(str(study)).to_do(only={"width": [16]})
    assert chosen and {request.config.workload_args["width"] for request in chosen} == {16}


def test_a_loop_started_by_hand_is_identified_by_its_code(bench: Bench) -> None:
    script = write_loop(bench.folder)
    environment = workspace.child_environment() | {"HPC_RESULTS": str(bench.results)}
    for width, given in ((8, ""), (9, ", sources=[__file__]")):
        script.write_text(
            LOOP.replace("default=8", f"default={width}").replace(
                "args.global_batch) as", f"args.global_batch{given}) as"
            )
        )
        subprocess.run([sys.executable, script], cwd=bench.folder, env=environment, check=True, capture_output=True)
    sources = {config(run)["source"] for run in bench.runs}
    assert len(bench.runs) == 2 and len(sources) == 2
    assert len(set(records.load(bench.results).runs.settings)) == 2, "not repeats of one point"


@pytest.mark.soak
def test_a_loop_started_by_hand_is_identified_by_its_options(bench: Bench) -> None:
    script = write_loop(bench.folder, SEEDED)
    environment = workspace.child_environment() | {"HPC_RESULTS": str(bench.results)}
    for options in (
        "--width=16 --seed 1",
        "--seed=2 --width 16",
        "--width=128",
        "--width 128 --bias --global_batch 32",
    ):
        command = [sys.executable, script, *options.split()]
        subprocess.run(command, cwd=bench.folder, env=environment, check=True, capture_output=True)
    runs = records.load(bench.results).runs
    assert sorted(runs.groupby("settings").size()) == [1, 1, 2], "those of two seeds are repeats"


def test_the_repeats_of_a_script_have_seeds_of_their_own(here: Path) -> None:
    write_loop(here, SEEDED)
    assert prepare(Path("my_loop.py"), {"seed": 3}).arguments == ["--global_batch=32", "--seed=3"]
    write_loop(here)
    assert prepare(Path("my_loop.py"), {"seed": 3}).arguments == ["--global_batch=32"]


def test_the_name_of_a_script_is_its_path_below_where_modules_are_found(here: Path) -> None:
    (here / "loops").mkdir()
    (here / "loops/mine.py").write_text("")
    assert source_code.script_name(Path("loops/mine.py")) == "loops/mine.py"
    assert source_code.files("loops/mine.py") == [here / "loops/mine.py"]
    assert source_code.script_name(Path(pytest.__file__)) is None, "a library's"
