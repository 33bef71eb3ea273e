"""From a notebook and its parameters to processes and jobs. No torch at import.

A request travels once: it is resolved (`request`, `parameters`), claimed, started, monitored and closed (`local`);
each rank executes the notebook in its own process (`rank`, `notebook_engine`), forked from a forkserver
(`forkserver`) or started by a launcher (`launcher`). A study (`study`, `ablation`) plans many requests for a target
(`target`), which `measure` makes, those of a repeat in `turns`; on a cluster (`cluster`) `submit` hands them to Slurm (`slurm_commands`, `job_environment`), and `status`
and `failure` report on them.

The room is larger than its budget of 25 k tokens, because profilers that must start the rank, turns, and the
catalogue of symptoms each need a file or two of their own.
"""
