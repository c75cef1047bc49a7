"""A function with a known lowest point: x = 1, rate = 0.01, shape = round. Its value there is 0."""

import argparse
import json
import math
import os

parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float, required=True)
parser.add_argument("--rate", type=float, required=True)
parser.add_argument("--shape", choices=["round", "flat"], required=True)
parser.add_argument("--steps", type=int, default=10)
args = parser.parse_args()

lowest = (args.x - 1) ** 2 + (math.log10(args.rate) + 2) ** 2
lowest += 1.0 if args.shape == "flat" else 0.0

with open(os.environ["LAMP_PROGRESS"], "a", encoding="utf-8") as progress:
    for step in range(1, args.steps + 1):
        # As a training does: far away at first, and near the end value at last.
        loss = lowest + 5 * math.exp(-step)
        print(json.dumps({"step": step, "total": args.steps, "loss": loss}), file=progress)
        progress.flush()
print(f"loss {lowest:.4f}")
