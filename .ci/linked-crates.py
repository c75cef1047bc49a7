"""Prints a CycloneDX bill with only the crates that stdin lists, one `name vVERSION` a line (`cargo tree`)."""

import json
import re
import sys

linked = set(re.findall(r"^(\S+) v(\S+)", sys.stdin.read(), re.M))
with open(sys.argv[1]) as file:
    bill = json.load(file)
parts = bill["components"]
bill["components"] = [part for part in parts if (part["name"], part["version"]) in linked]
kept = {part["bom-ref"] for part in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
bill["dependencies"] = [
    {**entry, "dependsOn": [ref for ref in entry.get("dependsOn", []) if ref in kept]}
    for entry in bill.get("dependencies", [])
    if entry["ref"] in kept
]
json.dump(bill, sys.stdout, indent=2)
print()
