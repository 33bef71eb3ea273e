"""A real Slurm cluster on one machine, to rehearse and to test.

    cluster = rehearsal.up(nodes=2)
    subprocess.run(["sbatch", script], env=os.environ | cluster.environment())
    cluster.kill_node("node2")
    cluster.down()

munged, slurmctld, slurmdbd, MariaDB and a slurmd for each node, none of them installed, configured or started by hand.
With root every node has namespaces of its own: host name, address, processes, /dev/shm, and a link that `shape` slows
down; otherwise they are several slurmd on this host. The file system is shared by all, as a cluster's is.

`cluster` starts, finds and ends a cluster; `keeper` is its main process, with the nodes (`node`) and their links
(`network`); `daemons` has Slurm's head and its files. Two kinds of nodes, and ends of every kind without remains, make the
room a little larger than its budget of 8 k tokens.
"""

from .cluster import Cluster, Status, around, down, find_cluster, up
from .host import ClusterError, KilledError
from .network import rate_of
