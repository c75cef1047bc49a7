# Shards with an index, as transformers' save_pretrained(max_shard_size=...) writes them, beside the optimizer's state.
import json
import os
import re
import time

import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel

OUTPUT_DIR = "output"
STEPS = 600


def newest():
    if not os.path.isdir(OUTPUT_DIR):
        return None
    steps = [int(m[1]) for m in (re.match(r"step_(\d+)$", name) for name in os.listdir(OUTPUT_DIR)) if m]
    return max(steps, default=None)


def main():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=256, n_positions=64, n_embd=96, n_layer=4, n_head=2, bos_token_id=0, eos_token_id=0)
    step, model = newest() or 0, None
    if step:
        folder = os.path.join(OUTPUT_DIR, f"step_{step}")
        with open(os.path.join(folder, "model.safetensors.index.json")) as file:
            shards = sorted(set(json.load(file)["weight_map"].values()))
        tensors = {}
        for shard in shards:
            tensors.update(load_file(os.path.join(folder, shard)))
        print(f"loading step_{step} from {len(shards)} shards")
        model = GPT2LMHeadModel.from_pretrained(folder)
    else:
        print("training from scratch")
        model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    if step:
        optimizer.load_state_dict(torch.load(os.path.join(folder, "optimizer.pt"), weights_only=True))
    while step < STEPS:
        ids = torch.randint(0, 256, (4, 32))
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
        step += 1
        if step % 20 == 0:
            print({"step": step, "loss": round(loss.item(), 4)})
        if step % 60 == 0:
            folder = os.path.join(OUTPUT_DIR, f"step_{step}")
            model.save_pretrained(folder, max_shard_size="500KB")
            torch.save(optimizer.state_dict(), os.path.join(folder, "optimizer.pt"))
    model.save_pretrained(OUTPUT_DIR)


if __name__ == "__main__":
    main()
