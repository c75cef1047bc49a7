#!/usr/bin/env python3
"""Writes the shipped catalogue from a folder of collected facts: `python3 config/catalog/generate.py FOLDER [INTO]`.

The folder holds gpu_instances.csv, gpu_on_demand_prices.csv and gpu_offerings_by_az_id.csv, each row with its source. Only
rows of sources with a licence that allows it are taken: the snapshots in moto (Apache-2.0) and the generated price table of
karpenter-provider-aws (Apache-2.0). extras.csv is written by hand. INTO is another folder than this one: a test writes it anew there
and compares (tests/formats/catalogue.rs).
"""

import csv
import pathlib
import sys

TYPES = ("instance_type", "gpu_maker", "gpu_name", "gpus", "gpu_memory_mib", "vcpus", "memory_mib", "arch")
MODELS = {"radeon-pro-v520": "Radeon Pro V520"}


def rows(folder, name):
    with open(folder / name, newline="") as file:
        return list(csv.DictReader(file))


def write(name, head, columns, lines):
    with open(INTO / name, "w", newline="") as file:
        file.write("".join(f"# {line}\n" for line in head))
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(sorted(lines))


def main(folder):
    allowed = lambda source: source.startswith(("moto ", "karpenter-provider-aws"))
    types = []
    for row in rows(folder, "gpu_instances.csv"):
        if allowed(row["spec_source"]):
            memory = row["gpu_mem_mib_each"]
            model = MODELS.get(row["gpu_name"], row["gpu_name"])
            maker = "AMD" if model.startswith("Radeon") else "NVIDIA"
            types.append((row["instance_type"], maker, model, row["gpu_count"], memory, row["vcpus"], row["ram_mib"], row["arch"]))
    known = {row[0] for row in types}
    write(
        "types.csv",
        ["as of 2026-10-27", "moto 5.2.5's snapshot of DescribeInstanceTypes; g4ad of karpenter-provider-aws 1d92708 (both Apache-2.0)"],
        TYPES,
        types,
    )
    prices = [
        (row["instance_type"], row["region"], row["on_demand_usd_per_hour"])
        for row in rows(folder, "gpu_on_demand_prices.csv")
        if allowed(row["source"]) and row["instance_type"] in known
    ]
    write(
        "on_demand.csv",
        ["as of 2026-07-20", "Linux, dollars an hour: karpenter-provider-aws 1d92708, zz_generated.pricing_aws.go (Apache-2.0)"],
        ("instance_type", "region", "usd_per_hour"),
        prices,
    )
    zones = {}
    for row in rows(folder, "gpu_offerings_by_az_id.csv"):
        zones.setdefault((row["instance_type"], row["region"]), []).append(row["az_id"])
    write(
        "zones.csv",
        ["as of 2026-10-27", "ids of availability zones: moto 5.2.5's snapshot of DescribeInstanceTypeOfferings (Apache-2.0)"],
        ("instance_type", "region", "zone_ids"),
        [(*key, " ".join(sorted(ids))) for key, ids in zones.items() if key[0] in known],
    )


INTO = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else pathlib.Path(__file__).parent
main(pathlib.Path(sys.argv[1]))
