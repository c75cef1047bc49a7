"""One machine of a Ray cluster. The first one is the head: it runs the command when all are there."""
import os, signal, subprocess, sys, time

role, address, host, nodes, *command = sys.argv[1:]
ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--node-ip-address", host]
ray += ["--min-worker-port=0", "--max-worker-port=0"]
if role == "worker":
    # The head may start later.
    for _ in range(60):
        began = time.monotonic()
        code = subprocess.call(ray + ["--address", address], stdout=subprocess.DEVNULL)
        if code == 0 or time.monotonic() - began > 60:
            break
        time.sleep(1)
    sys.exit(code)

port = address.rsplit(":", 1)[1]
ray += ["--head", "--port", port, "--include-dashboard=false", "--disable-usage-stats"]
head = subprocess.Popen(ray, stdout=subprocess.DEVNULL)
import ray as cluster

while True:
    try:
        cluster.init(address=address, logging_level="CRITICAL", log_to_driver=False)
        break
    except Exception as error:
        if head.poll() is not None:
            sys.exit(f"lamp: the head of Ray ended with code {head.returncode}: {error}")
        time.sleep(0.5)
while sum(node["Alive"] for node in cluster.nodes()) < int(nodes):
    time.sleep(0.5)
cluster.shutdown()
print(f"lamp: {nodes} machines have joined Ray at {address}", flush=True)
job = subprocess.Popen(command, env={**os.environ, "RAY_ADDRESS": address})
signal.signal(signal.SIGTERM, lambda *_: job.send_signal(signal.SIGTERM))
code = job.wait()
head.terminate()
try:
    head.wait(10)
except subprocess.TimeoutExpired:
    head.kill()
sys.exit(code if code >= 0 else 128 - code)
