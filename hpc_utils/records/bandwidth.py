"""What a recorded all-reduce says in byte/s, as nccl-tests defines it (doc/PERFORMANCE.md).

It stands with the records, as throughput does: who measures judges by it, who analyses computes with it, and neither
may read the other.
"""

from __future__ import annotations


def bandwidths(size: float, seconds: float, ranks: int) -> tuple[float, float]:
    """(algorithm, bus) bandwidth in byte/s of an all-reduce of `size` bytes.

    Algorithm bandwidth is size / time; bus bandwidth is that times 2(n-1)/n, what each rank must send and receive,
    which compares with the link whatever the number of ranks.
    """
    algorithm = size / seconds
    return algorithm, algorithm * 2 * (ranks - 1) / ranks
