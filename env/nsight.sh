#!/usr/bin/env bash
# Unpacks Nsight Systems (2022.4) from Debian 12 into a folder, without root, GPU or driver:
#
#     PATH=$(env/nsight.sh):$PATH nsys --version        # or env/nsight.sh PREFIX
#
# It prints the folder of `nsys`. For CI and machines without a CUDA toolkit, which contains a newer nsys that opens more
# reports. apt verifies the downloads by Debian's signatures (apt-secure(8)); nothing is installed.
set -euo pipefail

stop() {
    echo "error: $1" >&2
    exit 2
}

prefix=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/scaling-compendium/nsight-debian12}
[[ $prefix == /* ]] || prefix=$PWD/$prefix
programs=$prefix/usr/bin
if [ ! -e "$prefix/complete" ]; then
    # The folder appears complete or not at all: one that is neither empty nor complete holds other files.
    shopt -s nullglob dotglob
    inside=("$prefix"/*)
    [ ${#inside[@]} -eq 0 ] || stop "$prefix holds other files: give an empty or a new folder"
    for tool in apt-get dpkg-deb; do
        command -v "$tool" >/dev/null || stop "no $tool here: put the nsys of a CUDA toolkit on PATH instead"
    done
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -e "$keys" ] || stop "no $keys to verify Debian's packages by: install debian-archive-keyring"

    mkdir -p "$(dirname "$prefix")"
    work=$(mktemp -d "$prefix.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    # A separate apt state: the machine's own does not change.
    mkdir -p "$work"/apt/{lists/partial,archives/partial,none} "$work/tree"
    : >"$work/apt/status"
    echo "deb [signed-by=$keys] http://deb.debian.org/debian bookworm main non-free" >"$work/apt/sources"
    cat >"$work/apt/conf" <<CONF
Dir::State "$work/apt";
Dir::State::status "$work/apt/status";
Dir::Cache "$work/apt";
Dir::Etc::SourceList "$work/apt/sources";
Dir::Etc::SourceParts "$work/apt/none";
APT::Architecture "amd64";
APT::Architectures {"amd64";};
APT::Sandbox::User "$(id -un)";
Acquire::Languages "none";
Acquire::Retries "3";
CONF
    export APT_CONFIG=$work/apt/conf
    apt-get update -qq >&2
    (cd "$work" && apt-get download -qq nsight-systems nsight-systems-target libssh-4 >&2)
    for package in "$work"/*.deb; do
        dpkg-deb --extract "$package" "$work/tree"
    done

    # Two repairs: nsys looks for its importer beside the target's files, and its libssh is a link to a package's.
    library=$work/tree/usr/lib
    host=$library/nsight-systems/host-linux-x64
    ln -sfn ../../nsight-systems/host-linux-x64 "$library/x86_64-linux-gnu/nsight-systems/host-linux-x64"
    for link in libssh.so libssh.so.4; do
        ln -sf ../../x86_64-linux-gnu/libssh.so.4 "$host/$link"
    done

    touch "$work/tree/complete"
    mv -T "$work/tree" "$prefix" 2>/dev/null || [ -e "$prefix/complete" ] || stop "cannot write $prefix"
fi
echo "$programs"
