#!/usr/bin/env bash
# All measurements on one GPU, the most important first. Called again, it continues where it stopped. See docs/gpu-day.md.
set -uo pipefail

usage="usage: gpu-day.sh [--minutes N] [--rehearse]
  --minutes N   end after N minutes; the next call goes on (default: when all is measured)
  --rehearse    all steps on the CPU, with a small network and tiny sizes, into results/gpu-day-rehearsal"

minutes=100000 rehearse=
while [ $# -gt 0 ]; do
    case $1 in
        --minutes) minutes=${2:?$usage} && shift 2 ;;
        --rehearse) rehearse=yes && shift ;;
        -h | --help) echo "$usage" && exit ;;
        *) echo "gpu-day.sh: unknown option $1
$usage" >&2 && exit 2 ;;
    esac
done

[[ $minutes =~ ^[0-9]+$ ]] || { echo "gpu-day.sh: --minutes takes a whole number, not $minutes" >&2 && exit 2; }
seconds=$((10#$minutes * 60))

cd "$(dirname "$0")/../.." || exit
python=${PYTHON:-python3}
hpc=("$python" -m hpc_utils.cli)
resnet=(-p workload=resnet18 -p dataset=cifar10 -p precision=bf16 -p channels_last=true)
batches=64,128,256,512,1024 tiny=() quick=(--full --repeats 2)
if [ "$rehearse" ]; then
    export HPC_RESULTS=${HPC_RESULTS:-$PWD/results}/gpu-day-rehearsal
    resnet=(-p workload=cnn -p dataset=digits -p device=cpu)
    batches=16,32 quick=(--quick)
    # As equal as studies can be: what is the same run is made once.
    tiny=("${resnet[@]}" -p epochs=1 -p steps_per_epoch=5 -p global_batch=64 -p evaluate_every=1 -p schedule=constant
        -p lr_warmup_epochs=0 -p label_smoothing=0 -p compile=off -p step_graph=false
        -p flip=random -p evaluate_mirrored=false --repeats 1)
fi
results=${HPC_RESULTS:-$PWD/results}
mapfile -t gpu_tests < <(grep -rl --include='*.py' 'mark\.gpu' tests companions)
mkdir -p "$results/gpu-day"
# Another commit or another GPU measures anew; a study then keeps those of its runs that are the same.
state="$(cat COMMIT 2>/dev/null || git rev-parse HEAD 2>/dev/null) $(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | sort -u | paste -sd,)"

# The list. A step ends within nine minutes or is cut and goes on in the next round; a study skips its complete runs. A
# benchmark, which would begin anew, is not cut.
steps() {
    [ "$rehearse" ] || step data "${hpc[@]}" data fetch cifar10 mnist
    step doctor "${hpc[@]}" doctor
    step gpu-tests "$python" -m pytest -q -m gpu "${gpu_tests[@]}"
    study speed gpu-speed
    study ddp gpu-ddp
    study ddp-64 gpu-ddp-64
    study precisions gpu-precisions
    is_done to-accuracy || study to-accuracy-1 cifar10-gpu --repeats 1
    study profiles gpu-profiles
    for trace in "$results"/runs/*/profile/*.trace.json.gz; do
        [ -e "$trace" ] && step "verdict-$(basename "${trace%/profile/*}")" "${hpc[@]}" explain "${trace%/profile/*}"
    done
    study accuracy-kept optimization
    study to-accuracy cifar10-gpu
    study to-96 cifar10-gpu-96
    step compute "${hpc[@]}" bench compute "${resnet[@]}" --batches $batches
    [ "$rehearse" ] || step compute-captured "${hpc[@]}" bench compute "${resnet[@]}" -p loader=device -p fused_optimizer=true \
        -p compile=default -p step_graph=true --batches 64,128,256,512,1024,2048,4096
    [ "$rehearse" ] || step bench-mpi_step "$python" -m benchmarks mpi_step
    [ "$rehearse" ] || study mpi-cuda mpi-cuda
    for name in optimizations overhead loaders; do step "bench-$name" "$python" -m benchmarks "${quick[@]}" $name; done
}

study() { # NAME STUDY OPTION...
    step "$1" "${hpc[@]}" study run "${@:2}" --no-report "${tiny[@]}" ${rehearse:+--as "$2-tiny"}
}

is_done() { [ "$(head -n 1 "$results/gpu-day/$1.done" 2>/dev/null)" = "$state" ]; } # NAME

step() { # NAME COMMAND...: unless it is done, has failed in this call, or the time is over
    local name=$1 status limit=$((seconds - SECONDS)) begun=$SECONDS log=$results/gpu-day/$1.log
    shift
    is_done "$name" && return
    [[ " ${failed[*]} " = *" $name "* ]] && return
    [ $limit -lt 20 ] && unfinished+=("$name") && return
    [ $limit -gt 540 ] && [[ $name != bench-* ]] && limit=540
    echo "== $name, after $((SECONDS / 60)) min $((SECONDS % 60)) s: $*"
    timeout --kill-after=60 $limit "$@" > >(tee -ia "$log") 2>&1 &
    child=$!
    wait $child
    status=$?
    child=
    if [ $status = 0 ]; then
        printf '%s\n' "$state" "$*" >"$results/gpu-day/$name.done"
    elif [ $((SECONDS - begun)) -ge $limit ]; then
        echo "== $name: cut after its time" && unfinished+=("$name")
    else
        echo "== $name: failed with exit code $status, see $log" && failed+=("$name")
    fi
}

stop() { # a signal: the step ends in order, and what it has measured stays
    trap '' TERM INT
    [ "$child" ] && kill -TERM "$child" && while kill -0 "$child" 2>/dev/null; do wait "$child"; done
    echo "== stopped; the same command goes on" >&2
    exit 143
}

progress() { find "$results" \( -name '*.done' -o -name epochs.csv -o -name 'step*.pt' \) | sort | cksum; }

child='' failed=()
trap stop TERM INT
while :; do # a round may leave steps that were cut; another follows while it brings something and there is time
    before=$(progress) unfinished=()
    steps
    [ ${#unfinished[@]} -eq 0 ] || [ $((seconds - SECONDS)) -lt 20 ] || [ "$(progress)" = "$before" ] && break
done
[ ${#failed[@]} -eq 0 ] || echo "== failed: ${failed[*]}"
[ ${#unfinished[@]} -eq 0 ] || echo "== to be continued by the same command: ${unfinished[*]}"
[ ${#unfinished[@]} -eq 0 ] || exit 75
[ ${#failed[@]} -eq 0 ]
