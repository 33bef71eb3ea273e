#!/bin/bash
# Two nodes on one machine: each a network, a host name and mounts of its own, joined by a link.
#   unshare --net --uts --mount --pid --fork --kill-child --mount-proc nodes.sh FOLDER
# FOLDER holds `hosts` (their /etc/hosts) and the programs `nodea` and `nodeb`, which run there. All ends with this.
set -euo pipefail
folder=$1

mount --bind "$folder/hosts" /etc/hosts
ip link set lo up
hostname nodea
unshare --net --uts --mount bash -c '
    hostname nodeb
    ip link set lo up
    echo $$ >"$0/pid"
    until [ -e "$0/linked" ]; do sleep 0.05; done
    exec "$0/nodeb"' "$folder" &
until [ -s "$folder/pid" ]; do sleep 0.05; done
other=$(cat "$folder/pid")

ip link add eth1 type veth peer name eth1 netns "$other"
ip link set eth1 up
ip addr add 10.99.0.1/24 dev eth1
nsenter --target "$other" --net ip link set eth1 up
nsenter --target "$other" --net ip addr add 10.99.0.2/24 dev eth1
if [ -s "$folder/rate" ]; then
    shape=(tc qdisc add dev eth1 root tbf rate "$(cat "$folder/rate")" burst 1mbit latency 100ms)
    "${shape[@]}"
    nsenter --target "$other" --net "${shape[@]}"
fi
touch "$folder/linked"

code=0
"$folder/nodea" || code=$?
wait
exit "$code"
