# After the transformers documentation: "Trainer", "Causal language modeling", and the examples' own way to go on from the
# last checkpoint (examples/pytorch/language-modeling/run_clm.py). A model from its configuration, a byte for a token.
import os
import time

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


class Bytes(Dataset):
    def __init__(self, length=64):
        text = (__doc__ or open(__file__, encoding="utf-8").read()).encode() * 40
        self.blocks = [list(text[i : i + length]) for i in range(0, len(text) - length, length)]

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, i):
        ids = torch.tensor(self.blocks[i])
        return {"input_ids": ids, "labels": ids}


class Slow(TrainerCallback):
    """A bigger model, in time."""

    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(0.04)


def main():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0))
    training_args = TrainingArguments(
        output_dir="./results",
        per_device_train_batch_size=8,
        max_steps=700,
        logging_steps=25,
        save_strategy="steps",
        save_steps=50,
        save_total_limit=2,
        report_to="none",
        use_cpu=True,
    )
    last_checkpoint = None
    if os.path.isdir(training_args.output_dir):
        last_checkpoint = get_last_checkpoint(training_args.output_dir)
    print(f"resuming from {last_checkpoint}" if last_checkpoint else "training from scratch")
    trainer = Trainer(model=model, args=training_args, train_dataset=Bytes(), callbacks=[Slow()])
    result = trainer.train(resume_from_checkpoint=last_checkpoint)
    trainer.save_model()
    trainer.save_metrics("train", result.metrics)
    trainer.save_state()


if __name__ == "__main__":
    main()
