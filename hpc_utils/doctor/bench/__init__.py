"""`hpc bench`: links and the compute time of a model, measured precisely enough to fit a model.

    torchrun ... -m hpc_utils.doctor.bench allreduce

The doctor checks within seconds whether something is wrong; a bench measures for a minute how fast it is.
"""

SECONDS = 60.0  # of a bench; where that is too short it makes fewer repeats or skips sizes
LIMIT = 4 * SECONDS  # s after which a rank ends itself, whatever hangs
GRACE = 5.0  # s that ranks have to remove their files when they are ended
