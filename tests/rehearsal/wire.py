"""Two tasks on two nodes: the second sends, the first prints the Mbit/s at which it received.

srun --nodes=2 --ntasks-per-node=1 python3 wire.py ADDRESS-OF-THE-FIRST SENDER(0|1) MEGABYTES
"""

import os
import socket
import sys
import time

PORT = 27_182
address, sender, megabytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
rank = os.environ["SLURM_PROCID"]
if rank == "0":
    with socket.create_server(("", PORT)) as server:
        link, _ = server.accept()
else:
    for _ in range(300):
        try:
            link = socket.create_connection((address, PORT))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
with link:
    if rank == sender:
        for _ in range(megabytes):
            link.sendall(bytes(1_000_000))
        link.shutdown(socket.SHUT_WR)
        link.recv(1)  # until the other has it all
    else:
        began, received = time.perf_counter(), 0
        while chunk := link.recv(1 << 20):
            received += len(chunk)
        print(received * 8 / 1e6 / (time.perf_counter() - began))
