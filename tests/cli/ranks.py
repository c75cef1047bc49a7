"""One rank of a gang, with the standard library alone: ranks meet at MASTER_ADDR and add numbers."""
import json, os, pathlib, signal, socket, sys, time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
folder = pathlib.Path(os.environ["LAMP_CHECKPOINT_DIR"])
folder.mkdir(parents=True, exist_ok=True)
state = folder / "state.json"
step = json.loads(state.read_text())["step"] if state.exists() else 0
last = int(sys.argv[1]) if len(sys.argv) > 1 else 40
print(f"rank {rank} of {world} begins at step {step}, epoch {os.environ['LAMP_EPOCH']}", flush=True)


def save(*_):
    if rank == 0:
        part = folder / "state.part"
        part.write_text(json.dumps({"step": step}))
        part.replace(state)


signal.signal(signal.SIGUSR1, save)


def meet():
    """Rank 0 listens, the others connect."""
    if rank == 0:
        with socket.create_server(address) as server:
            server.settimeout(60)
            return [server.accept()[0] for _ in range(world - 1)]
    for _ in range(600):
        try:
            return [socket.create_connection(address, timeout=60)]
        except OSError:
            time.sleep(0.1)
    sys.exit("rank 0 does not listen")


peers = meet()
for peer in peers:
    peer.settimeout(60)
while step < last:
    time.sleep(float(os.environ.get("STEP_SECS", "0.1")))
    if rank == 0:
        for peer in peers:
            if not peer.recv(1):
                sys.exit("a rank is gone")
        for peer in peers:
            peer.sendall(b"y")
    else:
        peers[0].sendall(b"x")
        if not peers[0].recv(1):
            sys.exit("rank 0 is gone")
    step += 1
    if rank == 0:
        with open(os.environ["LAMP_PROGRESS"], "a") as progress:
            progress.write(json.dumps({"step": step, "total": last}) + "\n")
    if step % 10 == 0:
        save()
    if os.environ.get("FAIL_AT") == f"{rank}:{step}" and os.environ["LAMP_EPOCH"] == "1":
        sys.exit(9)
save()
print(f"rank {rank} finished at step {step}", flush=True)
