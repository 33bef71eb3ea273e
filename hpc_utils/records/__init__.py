"""What a run leaves behind, and how it is read back: the contract between training and analysis.

It speaks of ranks, samples, seconds and bytes, not of torch: an MPI program can leave the same records.
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
