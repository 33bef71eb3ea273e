"""`hpc bench`: link and storage, measured until a model can be fitted to them.

    torchrun ... -m hpc_utils.probe.benchmark allreduce

The doctor asks within seconds whether something is wrong; these ask in a minute how fast it is.
"""

SECONDS = 60.0  # that one of them measures: fewer or smaller points where that is too short
LIMIT = 4 * SECONDS  # s after which a rank ends itself, whatever hangs
GRACE = 5.0  # s that ranks have to tidy up when they are ended
