"""Side-by-side measurements, apart from tests: a promise not kept is printed, never an error.

    python -m benchmarks                      everything in five minutes (`make bench`), tables on stdout
    python -m benchmarks --full               larger work, ResNet-18 too: half an hour
    python -m benchmarks loaders --quick      one benchmark, a smoke run of seconds
    python -m benchmarks startup records --repeats 9

Whatever is compared runs in one session, in alternation, each in a fresh process; numbers are medians with
their range, and ratios are formed within each round before their median is taken, so that a machine that
grows slower meanwhile (heat, neighbours) does not favour a side. `results/bench/<benchmark>.csv` keeps the last
measurement, `results/bench/quick/` the last smoke run.
"""
