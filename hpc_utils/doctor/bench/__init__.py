"""`hpc bench`: links, storage and a model's computing, measured until a model can be fitted to them.

    torchrun ... -m hpc_utils.doctor.bench allreduce

The doctor asks within seconds whether something is wrong; the benches ask in a minute how fast it is.
"""

SECONDS = 60.0  # that a bench measures: fewer repeats or smaller sizes where that is too short
LIMIT = 4 * SECONDS  # s after which a rank ends itself, whatever hangs
GRACE = 5.0  # s that ranks have to remove their files when they are ended
