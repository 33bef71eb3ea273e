"""A papermill engine that runs the cells in the calling process: `papermill --engine hpc in.ipynb out.ipynb`.

That process is the rank: signals, profilers and exit codes apply directly to the code that trains, and no
kernel has to be started, connected and ended.

papermill imports this module by its entry point: import papermill first.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.pylabtools import select_figure_formats
from nbformat.v4 import new_output
from papermill.engines import Engine, NotebookExecutionManager
from traitlets.config import Config

from hpc_utils.signals import Stopped

MAIN_RANK_ONLY = "rank0"  # tag of cells that only rank 0 runs: tables, figures


class InProcessEngine(Engine):
    """Runs code cells in an IPython shell of this process and captures their outputs."""

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: NotebookExecutionManager, kernel_name: str, *, log_output: bool = False, **kwargs: Any
    ) -> None:
        """Run the cells in order; a cell that raises is marked and ends the run (papermill raises for it)."""
        rank = int(os.environ.get("RANK", 0))
        outputs = _CellOutputs()
        with _shell(outputs) as shell:
            for index, cell in enumerate(nb_man.nb.cells):
                if cell.cell_type != "code" or not cell.source.strip():
                    continue
                if rank and MAIN_RANK_ONLY in cell.metadata.get("tags", ()):
                    continue
                nb_man.cell_start(cell, index)
                # Written to the terminal or log at once; into the notebook when the cell ends.
                with (
                    contextlib.redirect_stdout(_Tee("stdout", sys.stdout, outputs.add)),
                    contextlib.redirect_stderr(_Tee("stderr", sys.stderr, outputs.add)),
                ):
                    shell.run_cell(cell.source, store_history=True)
                cell.outputs = outputs.take()
                cell.execution_count = shell.execution_count - 1
                if shell.error is not None:
                    nb_man.cell_exception(cell, index, exception=shell.error)
                    if not isinstance(shell.error, Exception):  # such as SystemExit or Stopped
                        raise shell.error
                    return
                nb_man.cell_complete(cell, index)


class _CellOutputs:
    """The outputs of the present cell, as nbclient keeps them."""

    def __init__(self) -> None:
        self._outputs: list[dict] = []
        self._by_id: dict[str, list[dict]] = {}  # displays that may be updated, of earlier cells too
        self._outdated = False  # clear_output(wait=True): the next output replaces the present ones

    def add(self, output: dict, display_id: str | None = None) -> None:
        if self._outdated:
            self.clear()
        self._outputs.append(output)
        if display_id:
            self._by_id.setdefault(display_id, []).append(output)

    def update(self, display_id: str, output: dict) -> None:
        for display in self._by_id.get(display_id, ()):
            display.update(data=output["data"], metadata=output["metadata"])

    def clear(self, wait: bool = False) -> None:
        self._outdated = wait
        if not wait:
            self._outputs.clear()

    def take(self) -> list[dict]:
        """The cell's outputs, neighbouring pieces of one stream joined; then there are none."""
        merged: list[dict] = []
        for output in self._outputs:
            last = merged[-1] if merged else None
            if last and output.output_type == last.output_type == "stream" and output.name == last.name:
                last.text += output.text
            else:
                merged.append(output)
        self.clear()
        return merged


@contextlib.contextmanager
def _shell(outputs: _CellOutputs) -> Iterator[InteractiveShell]:
    """A fresh IPython shell whose displays and errors go to `outputs`; figures as in JupyterLab."""

    class Shell(InteractiveShell):
        error: BaseException | None = None  # of a cell, of drawing its figures, or of a display

        def showtraceback(self, exc_tuple: Any = None, *args: Any, **kwargs: Any) -> None:
            self.error = (exc_tuple or sys.exc_info())[1]
            outputs.add(_error_output(self, self.error))

        def showsyntaxerror(self, *args: Any, **kwargs: Any) -> None:
            self.showtraceback()

        def enable_gui(self, gui: str | None = None) -> None:  # `%matplotlib inline` requests no event loop
            pass

        def ask_exit(self) -> None:  # `exit()`, `quit()`
            raise SystemExit

    class Publisher(DisplayPublisher):
        def publish(self, data, metadata=None, *, transient=None, update=False, **kwargs: Any) -> None:
            output = new_output("display_data", data=_as_text(data), metadata=metadata or {})
            name = (transient or {}).get("display_id")
            if update:
                outputs.update(name, output)
            else:
                outputs.add(output, name)

        def clear_output(self, wait: bool = False) -> None:
            outputs.clear(wait)

    class Hook(DisplayHook):
        def __call__(self, result: Any = None) -> None:
            if result is None or self.quiet():
                return
            self.update_user_ns(result)
            data, metadata = self.compute_format_data(result)
            if data:  # otherwise it has displayed itself
                count = self.prompt_count
                output = new_output("execute_result", data=_as_text(data), metadata=metadata, execution_count=count)
                outputs.add(output)

    backend = os.environ.get("MPLBACKEND")
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    InteractiveShell.clear_instance()
    without_database = Config({"HistoryManager": {"enabled": False}})  # all ranks would share it
    _close_figures()
    shell = Shell.instance(config=without_database, displayhook_class=Hook, display_pub_class=Publisher)
    if "matplotlib" in sys.modules:  # it sets up by itself only the shell that first imports it
        from matplotlib_inline.backend_inline import flush_figures

        # Before pyplot's hook, which draws every open figure once more.
        shell.events.register("post_execute", flush_figures)
        shell.enable_matplotlib("inline")
        select_figure_formats(shell, {"png"}, bbox_inches=None)  # to crop, matplotlib would draw twice
    sys.stdin = io.StringIO()  # `input()` fails instead of waiting
    try:
        yield shell
    finally:
        shell.restore_sys_module_state()
        Shell.clear_instance()
        _close_figures()
        atexit.unregister(shell.atexit_operations)  # they keep the shell alive, and collect all garbage at the end
        if backend is None:
            os.environ.pop("MPLBACKEND", None)
        else:
            os.environ["MPLBACKEND"] = backend


def _close_figures() -> None:
    """Of this process: pyplot draws into an open figure instead of a new one."""
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


class _Tee:
    """A text stream that writes to another one and keeps the text as outputs of the cell."""

    def __init__(self, name: str, beneath: TextIO, keep: Callable[[dict], None]) -> None:
        self._name = name
        self._beneath = beneath
        self._keep = keep

    def write(self, text: str) -> int:
        if text:
            self._keep(new_output("stream", name=self._name, text=text))
        return self._beneath.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self._beneath.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._beneath, name)


def _as_text(data: dict[str, Any]) -> dict[str, Any]:
    """Pictures in base64, as in notebook files."""
    return {
        mime: base64.b64encode(value).decode() if isinstance(value, bytes) else value for mime, value in data.items()
    }


def _error_output(shell: InteractiveShell, error: BaseException) -> dict:
    trace = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
    if isinstance(error, Stopped):
        trace = [str(error)]  # not an error: no traceback
    return new_output("error", ename=type(error).__name__, evalue=str(error), traceback=list(trace))
