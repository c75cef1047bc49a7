"""Computes pi on all machines of a Ray cluster. It runs on the head, and finds it by RAY_ADDRESS."""

import json
import os
import random
import sys

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20


@ray.remote
def inside(points):
    found = sum(random.random() ** 2 + random.random() ** 2 < 1 for _ in range(points))
    return found, ray.get_runtime_context().get_node_id()


ray.init(log_to_driver=False)
print(f"{len(ray.nodes())} machines", flush=True)
total, machines = 0, set()
for step in range(1, STEPS + 1):
    places = [On(node["NodeID"], soft=True) for node in ray.nodes()]
    parts = [inside.options(scheduling_strategy=place).remote(20_000) for place in places]
    for found, machine in ray.get(parts):
        total += found
        machines.add(machine)
    with open(os.environ.get("LAMP_PROGRESS", os.devnull), "a") as progress:
        progress.write(json.dumps({"step": step, "total": STEPS}) + "\n")
points = 20_000 * len(ray.nodes()) * STEPS
print(f"pi is about {4 * total / points:.4f}, by {len(machines)} machines", flush=True)
