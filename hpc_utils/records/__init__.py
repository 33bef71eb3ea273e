"""The records of runs: written by training, checked and read by analysis. The contract between the two.

They hold ranks, samples, seconds and bytes, nothing of torch: an MPI program can leave the same records.

`schema` lists every column. `folder` is a run's folder, `claim` who works on it, `identity` its id and what makes two
runs the same. `load` reads a result set and refuses what `checks` finds false; `packed` is a committed set in a few
files. `fingerprint` tells whether evidence has changed, `probes` and `compute_profile` are records of machines, `foreign`
imports other people's tables. The last one and `packed` are more than half of the code here: the formats and errors of
others, and a conversion that must lose nothing.
"""

from .claim import ClaimedElsewhere
from .folder import AlreadyComplete, RunFolder
from .identity import run_id
from .load import Records, collect, load, load_run
from .study import StudyIndex, UnknownStudy, read_study, studies, study_index

__all__ = [
    "AlreadyComplete",
    "ClaimedElsewhere",
    "Records",
    "RunFolder",
    "StudyIndex",
    "UnknownStudy",
    "collect",
    "load",
    "load_run",
    "read_study",
    "run_id",
    "studies",
    "study_index",
]
