"""The engine, through papermill itself and beside papermill's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import matplotlib
import nbformat
import papermill
import pytest
from IPython.core.interactiveshell import InteractiveShell
from matplotlib import pyplot
from papermill.exceptions import PapermillExecutionError

from hpc_utils.records.folder import read_json

from .conftest import PARAMETERS, TRAIN, notebook

pytestmark = pytest.mark.filterwarnings(
    "ignore:To exit", "ignore:Can not control echo", "ignore:InlineBackend._figure_format_changed"
)


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """A folder of its own, IPython's too; matplotlib's own look, whatever an earlier test has set."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.chdir(tmp_path)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        yield


def execute(*cells, engine: str | None = "hpc") -> list[nbformat.NotebookNode]:
    """The code cells after execution; an error in one raises, and the notebook is out.ipynb."""
    nbformat.write(notebook(cells), "in.ipynb")
    papermill.execute_notebook("in.ipynb", "out.ipynb", engine_name=engine, kernel_name="python3", progress_bar=False)
    return executed()


def executed() -> list[nbformat.NotebookNode]:
    """The code cells of out.ipynb; papermill puts a banner above a failed one."""
    return [cell for cell in nbformat.read("out.ipynb", 4).cells if cell.cell_type == "code"]


def fails(*cells, **kwargs) -> PapermillExecutionError:
    with pytest.raises(PapermillExecutionError) as caught:
        execute(*cells, **kwargs)
    return caught.value


def seen(cells) -> list[tuple]:
    """(execution count, outputs) of each, in what must be the same in both engines."""
    return [(cell.execution_count, _joined(_comparable(output) for output in cell.outputs)) for cell in cells]


def _joined(outputs) -> list[tuple]:
    """With neighbouring pieces of one stream as one: where it is cut depends on time, in a kernel."""
    joined: list[tuple] = []
    for output in outputs:
        if joined and len(output) == 2 and joined[-1][:1] == output[:1]:
            joined[-1] = (output[0], joined[-1][1] + output[1])
        else:
            joined.append(output)
    return joined


def _comparable(output) -> tuple:
    if output.output_type == "stream":
        return output.name, output.text
    if output.output_type == "error":
        return "error", output.ename, output.evalue, re.sub(r"\x1b\[[0-9;]*m", "", output.traceback[-1])
    data = {mime: "a picture" if mime.startswith("image/") else value for mime, value in output.data.items()}
    return output.output_type, output.get("execution_count"), data, dict(output.metadata)


SAME = [
    "print('one'); print('two', end='')",
    "import sys\nsys.stdout.writelines(['x\\n', 'y\\n'])",
    "print(end='')",
    "",
    "print('below', file=sys.stderr)",
    "1 + 1",
    "_ * 3, Out[5]",
    "quiet = 3; quiet;",
    "None",
    "import pandas as pd\npd.DataFrame({'a': [1]})",
    "from IPython.display import HTML, Markdown, clear_output, display\ndisplay(Markdown('**h**'), HTML('<b>'))\n5",
    "print('old'); clear_output(); print('new')",
    "print('old'); clear_output(wait=True); print('new')",
    "print('old'); clear_output(wait=True)",
    "shown = display('first', display_id=True)\nshown.update('second')",
    "shown.update('third')",
    "class Itself:\n    def _ipython_display_(self): print('shown')\nItself()",
    "from PIL import Image\nImage.new('RGB', (4, 4))",
    "import matplotlib.pyplot as plt\nplt.plot([1, 2]);",
    "%matplotlib inline\n%config InlineBackend.figure_format = 'retina'",
    "figure, axes = plt.subplots()\nfigure",
    "!echo shell $((1 + 1))",
    "listed = !echo captured\nlisted",
    "%%bash\necho bash\n",
    "%%capture captured\nprint('in')\n7",
    "captured.stdout",
    "import asyncio\nawait asyncio.sleep(0)\nprint('slept')\n8",
    "import threading\nthread = threading.Thread(target=print, args=('from a thread',))\nthread.start(); thread.join()",
    "import logging\nlogging.basicConfig(level='INFO', force=True)",
    "logging.info('logged')",
    "__name__, 'In' in globals()",
    "def function(): return 9\nimport pickle\npickle.loads(pickle.dumps(function))()",
    "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise ValueError('two\\nlines') from error",
    "print('never')",
]


def test_outputs_are_those_of_papermills_own_engine():
    outcomes = {}
    for engine in (None, "hpc"):
        error = fails(*SAME, engine=engine)
        metadata = nbformat.read("out.ipynb", 4).metadata.papermill
        outcomes[engine] = seen(executed()), (error.ename, error.evalue, error.exec_count), metadata.exception
    for theirs, ours, source in zip(outcomes[None][0], outcomes["hpc"][0], SAME, strict=True):
        assert ours == theirs, source
    assert outcomes["hpc"][1:] == outcomes[None][1:]
    assert any("image/png" in output.get("data", {}) for cell in executed() for output in cell.outputs)


def test_executions_in_one_process_share_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    pyplot.figure()  # of the caller: a cell's figure is drawn all the same

    def streams() -> tuple:
        return sys.stdin, sys.stdout, sys.stderr, sys.displayhook, sys.excepthook, sys.modules["__main__"]

    before = streams()
    figure = "import matplotlib.pyplot as plt\nplt.plot([1, 2]);"
    for _ in range(2):
        first, _, third, _ = execute("'secret' in globals()", "secret = 1", figure, "print('through')")
        assert (first.execution_count, first.outputs[0].data["text/plain"]) == (1, "False")
        assert "image/png" in third.outputs[0].data
    assert streams() == before
    assert os.environ["MPLBACKEND"] == "agg"
    assert not InteractiveShell.initialized()
    assert capsys.readouterr().out.count("through") == 2
    assert not list(tmp_path.rglob("history.sqlite")), "a database that all ranks would share"


def test_cells_of_rank_0_are_skipped_elsewhere(monkeypatch):
    cells = ["print('all')", ("print('main')", "rank0")]
    assert [len(cell.outputs) for cell in execute(*cells)] == [1, 1]
    monkeypatch.setenv("RANK", "1")
    assert [len(cell.outputs) for cell in execute(*cells)] == [1, 0]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("1 +", "SyntaxError"),
        ("%nosuchmagic", "UsageError"),
        ("input('name? ')", "EOFError"),
        ("class Broken:\n    def _repr_html_(self): raise RuntimeError('no table')\nBroken()", "RuntimeError"),
        ("import matplotlib.pyplot as plt\nplt.plot([1], [1])[0].draw = None", "TypeError"),
    ],
)
def test_error_ends_the_notebook(source, name):
    error = fails("print('before')", source, "print('after')")
    assert error.ename == name
    before, failed, after = executed()
    assert before.outputs[0].text == "before\n"
    traceback = next(output.traceback for output in failed.outputs if output.output_type == "error")
    assert name in "".join(traceback)
    assert failed.metadata.papermill.status == "failed"
    assert not after.outputs
    assert after.execution_count is None


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("import sys; sys.exit(3)", SystemExit),
        ("raise KeyboardInterrupt", KeyboardInterrupt),
    ],
)
def test_exit_and_interrupt_reach_the_caller_and_are_kept(source, kind):
    stdout = sys.stdout
    with pytest.raises(kind):
        execute(source, "print('after')")
    assert sys.stdout is stdout
    first, after = executed()
    assert first.outputs[-1].ename == kind.__name__
    assert not after.outputs


@pytest.mark.soak
def test_plain_papermill_makes_a_complete_run(tmp_path, bench):
    path = bench.notebook(TRAIN, "result.run_id", parameters=PARAMETERS + 'parallel = "none"\n')
    command = [sys.executable, "-m", "papermill", path, "out.ipynb", "-p", "epochs", "2", "--engine", "hpc"]
    env = os.environ | {"HPC_RESULTS": str(bench.results), "PYTHONPATH": str(bench.folder)}
    subprocess.run(command, env=env, cwd=tmp_path, check=True, capture_output=True)
    assert bench.status()["state"] == "complete"
    assert read_json(bench.run / "run.json")["config"]["epochs"] == 2
    assert bench.run.name in executed()[-1].outputs[0].data["text/plain"]
