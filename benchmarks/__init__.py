"""Side-by-side measurements. A promise that is not kept is printed; it is not an error.

    python -m benchmarks                      without `loaders` and `optimizations`, in five to six minutes (`make bench`)
    python -m benchmarks --full               all, with larger work, ResNet-18 included: half an hour
    python -m benchmarks loaders --quick      one benchmark, a smoke run of seconds
    python -m benchmarks startup records --repeats 9

The variants of a comparison run alternately, each in a fresh process. Values are medians with their range. Ratios are formed
within each round before the median is taken, so that a slower machine (heat, neighbours) does not favour a variant.
`results/bench/<benchmark>.csv` holds the last measurement, `results/bench/quick/` the last smoke run.
"""
