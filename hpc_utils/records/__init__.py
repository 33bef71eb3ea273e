"""The records of runs: written by training, checked and read by analysis. The contract between the two.

They hold ranks, samples, seconds and bytes, nothing of torch: a program of another kind can write the same records.

schema       every column of every table (`schema.toml`)
folder       the folder of a run; `claim` gives it to one process at a time
identity     a run's id, and the columns in which runs of one configuration are equal
load         reads a result set and refuses runs that fail `checks`
packed       a committed result set in a few files
accounting   Slurm's accounting of the jobs that made runs
fingerprint  detects changed evidence
probes, compute_profile  measurements of machines
study        the index of a study

"""

from .claim import ClaimedElsewhere
from .folder import AlreadyComplete, RunFolder
from .identity import run_id
from .load import Records, by_absent_code, by_former_code, by_other_code, collect, load, load_rounds, load_run
from .study import StudyIndex, UnknownStudy, read_study, studies, study_index
