"""What a run leaves behind, and how it is read back: the contract between training and analysis.

It speaks of ranks, samples, seconds and bytes, not of torch: an MPI program can leave the same records.
"""

from .claim import ClaimedElsewhere
from .folder import AlreadyComplete, RunFolder
from .identity import run_id
from .load import Records, UnknownStudy, collect, load, load_run, read_study, study_index

__all__ = [
    "AlreadyComplete",
    "ClaimedElsewhere",
    "Records",
    "RunFolder",
    "UnknownStudy",
    "collect",
    "load",
    "load_run",
    "read_study",
    "run_id",
    "study_index",
]
