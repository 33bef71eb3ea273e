#!/usr/bin/env bash
# Starts what benchmarks/gpu_day/bundle.py packed, on a machine without network: unpacks it, runs the GPU day, packs the results.
set -uo pipefail

usage="usage: bash start.sh [--work FOLDER] [--output FOLDER] [--size MIB] [options of benchmarks/gpu_day/gpu-day.sh]
  --work FOLDER     where the bundle is unpacked and runs (default: ~/gpu-day); pieces that arrive one after another are
                    gathered there: call start.sh with each lot
  --output FOLDER   where the results go, as results.tar.gz.NN (default: beside start.sh); what is packed there already is
                    taken up
  --size MIB        of such a file at most (default: 15)"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$HOME/gpu-day output=$here size=15 rest=()
while [ $# -gt 0 ]; do
    case $1 in
        --work) work=${2:?$usage} && shift 2 ;;
        --output) output=${2:?$usage} && shift 2 ;;
        --size) size=${2:?$usage} && shift 2 ;;
        -h | --help) echo "$usage" && exit ;;
        *) rest+=("$1") && shift ;;
    esac
done
[[ $size =~ ^[1-9][0-9]*$ ]] || { echo "start.sh: --size takes a whole number of MiB, not $size" >&2 && exit 2; }
mkdir -p "$work/pieces" "$output" || exit
work=$(cd "$work" && pwd) output=$(cd "$output" && pwd)
cd "$work" || exit

cp "$here"/SHA256SUMS "$here"/bundle.tar.gz.* pieces
if ! lacking=$(cd pieces && sha256sum --check --quiet SHA256SUMS 2>/dev/null); then
    echo "start.sh: not all pieces are here and whole, call it with the others:
$lacking"
    exit 75
fi
if ! cmp -s pieces/SHA256SUMS unpacked; then
    rm -rf code wheels data site
    (cd pieces && cut -c 67- SHA256SUMS | xargs cat) | tar xz || exit
    if compgen -G 'wheels/*.whl' >/dev/null; then
        "${PYTHON:-python3}" -m pip install --quiet --no-index --no-deps --no-compile --target site wheels/*.whl || exit
    fi
    cp pieces/SHA256SUMS unpacked
fi
if [ -e "$output/results.tar.gz.00" ]; then # of another machine, or of this one: the newer files count
    cat "$output"/results.tar.gz.* | tar xz --keep-newer-files --warning=no-ignore-newer || exit
fi

export PYTHONPATH=$work/code:$work/site HPC_DATA=$work/data HPC_RESULTS=$work/results
code/benchmarks/gpu_day/gpu-day.sh "${rest[@]}" &
child=$! status=0
trap 'kill -TERM $child' TERM INT
while kill -0 $child 2>/dev/null; do
    wait $child
    status=$?
done

# Without checkpoints, which are large, and claims, whose processes no other machine can ask.
[ -d results ] || exit $status
tar cz --exclude='*.pt' --exclude=claims results | split -b "${size}m" -d - "$output/.new." || exit
rm -f "$output"/results.tar.gz.*
for piece in "$output"/.new.*; do mv "$piece" "$output/results.tar.gz.${piece##*.}"; done
du -h "$output"/results.tar.gz.*
exit $status
