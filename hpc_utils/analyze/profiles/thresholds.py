"""The thresholds that decide between verdicts: shares of the time unless noted. A run within all of them has no bottleneck."""

from __future__ import annotations

UTILISATION = 0.80  # the GPU is busy, at least
EXPOSED = 0.20  # on the wire and nothing computed, or copying inside and between devices and nothing else
WAITING = 0.10  # waiting for other ranks; a balanced run has some percent
LOADER = 0.05  # idle for data
COPIES = 0.10  # copying input and nothing else
EFFICIENCY = 0.50  # of its peak that a kernel should reach
LOW_INTENSITY = 0.50  # of the compute time in kernels that do few operations per byte
SHORT_KERNEL = 10_000  # ns; a launch costs the host about as much, so shorter kernels do not hide the next launch
LONG_GAP = 1_000_000  # ns; a longer gap between kernels is not the cost of a launch
LOAD = 0.10  # of a device's cores, used by other processes or stolen by the hypervisor; a profiler takes some percent
SLOWED = 1.25  # a profiled step over one without the profiler; a profiler takes some percent
STEPS = 5  # marked ones that suffice
MANY = 10  # kernels on each device: fewer show no pattern; operations a launch: more are replays of CUDA graphs
EXPLAINED = 0.50  # of the remaining idle time that late launches or short gaps must explain
CAUSED = 0.50  # of all waiting that is for one rank, which is then the straggler
CHANCE = 0.01  # probability that a rank is last so often by chance; below it, it is so systematically

# The most that each share of `devices.Devices` should be.
LIMITS = {
    "wire": EXPOSED, "waiting": WAITING, "loader": LOADER, "outside": LOADER, "copies": COPIES, "moves": EXPOSED,
}  # fmt: skip

HIGH, MEDIUM = 0.75, 0.4  # least confidence of these words
