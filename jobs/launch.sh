# shellcheck shell=bash
# Sourced by the job scripts beside this file: the cluster's environment, the launcher, and the handling of signals.

early=0
trap 'early=1' USR1 # a signal before the run has started

# Modules, environment, container, network: written from the cluster file by `hpc submit`, or once for all jobs that
# you submit by hand by `hpc cluster use NAME`. Without either it is the clone's own environment.
# shellcheck disable=SC1090,SC1091
if [ -n "${HPC_JOB_ENVIRONMENT:-}" ]; then
    source "$HPC_JOB_ENVIRONMENT"
elif [ -f jobs/environment.sh ]; then
    source jobs/environment.sh
elif [ -f .venv/bin/activate ]; then
    source .venv/bin/activate
else
    echo "no jobs/environment.sh and no .venv in $PWD: submit from the clone, after installing as env/README.md says, or after 'hpc cluster use NAME'" >&2
    exit 2
fi
[ -n "${in_container+set}" ] || in_container=()

ranks=${RANKS_PER_NODE:-${SLURM_GPUS_ON_NODE:-1}}
nodes=$SLURM_JOB_NUM_NODES
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
if ! getent hosts "$head" >/dev/null; then # a name that only Slurm knows
    head=$(scontrol --oneliner show node "$head" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
fi
port=$((10000 + SLURM_JOB_ID % 20000)) # below the range of ephemeral ports

on_each_node=(srun --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1)

# One launcher a node, which starts that node's ranks; they meet at the first node. The module that every rank runs is
# appended by `hpc run`.
launcher=(
    "${on_each_node[@]}" --cpus-per-task="${SLURM_CPUS_PER_TASK:-${SLURM_CPUS_ON_NODE:-1}}" --cpu-bind=cores
    --kill-on-bad-exit=1
    "${in_container[@]}" torchrun --nnodes="$nodes" --nproc-per-node="$ranks" --log-dir=/dev/null
    --rdzv-backend=c10d --rdzv-endpoint="$head:$port"
    --rdzv-id="$(</proc/sys/kernel/random/uuid)" # secret: torchrun unpickles what anyone stores under it
)

if [ "${LAUNCHER:-torchrun}" = srun ]; then # ranks are Slurm's tasks, such as MPI's; each pins itself to its cores
    launcher=(
        srun --nodes="$nodes" --ntasks=$((nodes * ranks)) --ntasks-per-node="$ranks"
        --cpus-per-task=$((${SLURM_CPUS_PER_TASK:-${SLURM_CPUS_ON_NODE:-1}} / ranks)) --cpu-bind=none
        ${MPI_TYPE:+--mpi="$MPI_TYPE"} --kill-on-bad-exit=1
        "${in_container[@]}" python
    )
fi

# Copies the data sets to a disk of each node, where the cluster file names one (node_local), because shared file systems
# are slow at reading small files repeatedly. Each job has its own copy, removed at its end: it never reads an incomplete
# copy of another job.
staged=
stage() {
    local from=${HPC_DATA:-$PWD/data}
    [ -n "${HPC_NODE_LOCAL:-}" ] && [ -d "$from" ] || return 0 # digits need no folder
    export HPC_DATA=$HPC_NODE_LOCAL/data-$SLURM_JOB_ID
    staged=$HPC_DATA
    trap unstage EXIT
    # shellcheck disable=SC2016
    "${on_each_node[@]}" bash -c 'mkdir -p -m 700 "$1" && [ -O "$1" ] && [ ! -L "$1" ]' mkdir "$HPC_DATA" ||
        { echo "$HPC_DATA: Permission denied, or another user made it" >&2; exit 1; }
    # One after another where nodes share that disk, as on a rehearsal cluster.
    "${on_each_node[@]}" flock "$HPC_DATA" cp -r "$from/." "$HPC_DATA"
    echo "data sets are read from $HPC_DATA on each node"
}

unstage() {
    [ -z "$staged" ] || "${on_each_node[@]}" rm -rf "$staged" || true
    staged=
}

# Forwards a signal to the run; repeated for some seconds, because a run that is just starting does not handle it yet.
forward() {
    echo "forwarded $1, $(date -Is)"
    (
        for _ in 1 2 3 4 5; do
            kill -"$1" "$run" 2>/dev/null || exit 0
            sleep 2
        done
    ) &
}

# Runs `hpc "$@"` with that launcher and forwards signals. Before the time limit Slurm sends USR1: the ranks write a
# checkpoint, hpc exits with 75, and the job is requeued. After TERM (scancel) they write one too, but the job ends.
launch() {
    echo "job $SLURM_JOB_ID on $SLURM_JOB_NODELIST: $nodes x $ranks ranks, attempt $((${SLURM_RESTART_COUNT:-0} + 1)), $(date -Is)"
    local code=0 run last
    (
        trap '' USR1 # it would end a Python that is starting
        exec hpc "$@" -- "${launcher[@]}"
    ) &
    run=$!
    trap 'forward USR1' USR1
    trap 'forward TERM' TERM
    [ "$early" -eq 0 ] || forward USR1
    wait "$run" || code=$?
    while kill -0 "$run" 2>/dev/null; do # a signal interrupts `wait`, not the run
        code=0
        wait "$run" || code=$?
    done
    last=0
    wait "$run" 2>/dev/null || last=$?
    [ "$last" -eq 127 ] || code=$last # it ended while a signal was handled
    trap - USR1 TERM
    if [ "$code" -eq 75 ]; then
        echo "checkpointed before the time limit: requeued"
        unstage # scontrol requeue ends this script at once
        # Only this task of an array: one of the tasks has the array's own number as its id.
        scontrol requeue "${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}"
    fi
    return "$code"
}
