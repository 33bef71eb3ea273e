#!/usr/bin/env bash
# Runs a command in the compendium's container, on this clone: env/apptainer/run.sh hpc study plan laptop
#
# The image is env/apptainer/rocm.sif if there is an AMD GPU, else cuda.sif, which also runs without a GPU; HPC_IMAGE names
# another. HPC_DATA, HPC_RESULTS, HPC_DATA_MIRROR and HPC_NODE_LOCAL have the same meaning inside and outside.
set -euo pipefail

stop() {
    echo "error: $1" >&2
    exit 2
}

clone=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
[ $# -gt 0 ] || stop "nothing to run: env/apptainer/run.sh hpc --help"
apptainer=$(command -v apptainer || command -v singularity) || stop "neither apptainer nor singularity is on PATH (a module?)"

flags=()
variant=cuda
if [ -e /dev/kfd ]; then
    variant=rocm flags=(--rocm)
elif [ -e /dev/nvidiactl ]; then
    flags=(--nv)
fi
image=${HPC_IMAGE:-$clone/env/apptainer/$variant.sif}
[ -e "$image" ] || stop "no image $image: cd $clone && apptainer build env/apptainer/$variant.sif env/apptainer/$variant.def"

export HPC_RESULTS=${HPC_RESULTS:-$clone/results} HPC_DATA=${HPC_DATA:-$clone/data}
for folder in "$clone" "$HPC_RESULTS" "$HPC_DATA" "${HPC_DATA_MIRROR:-}" "${HPC_NODE_LOCAL:-}"; do
    [ -n "$folder" ] || continue
    case $folder in
    *[:,]*) stop "$folder: Apptainer cannot mount a folder with a colon or a comma in its name" ;;
    /*) flags+=(--bind "$folder") ;;
    *) stop "$folder: not an absolute path (HPC_RESULTS, HPC_DATA, HPC_DATA_MIRROR and HPC_NODE_LOCAL must be)" ;;
    esac
done
mkdir -p "$HPC_RESULTS" "$HPC_DATA"
# Only the clone's code, whatever PYTHONPATH the shell has.
export APPTAINERENV_PYTHONPATH=$clone SINGULARITYENV_PYTHONPATH=$clone
exec "$apptainer" exec "${flags[@]}" "$image" "$@"
