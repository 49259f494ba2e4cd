"""A Hugging Face Trainer's script: GPT-2 with random weights and made-up tokens; it says when its first step has ended.

Arguments: the number of steps to do, or `forever`; then the size: `gpt2` (124 million weights) or `tiny`. As in most
scripts of its kind the arguments of the training come before the model.
"""

import sys
import time

import torch
from datasets import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

SIZES = {
    "gpt2": {"n_positions": 1024},
    "tiny": {"n_positions": 64, "n_layer": 2, "n_head": 2, "n_embd": 64, "vocab_size": 1024},
}
NUM_SAMPLES = {"gpt2": 512, "tiny": 256}
LENGTHS = {"gpt2": 512, "tiny": 32}


class SaysFirst(TrainerCallback):
    """Says when the first step has ended, on the device too."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 1:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            print("first step ended at", time.monotonic(), flush=True)


def main(num_steps, size):
    args = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=8,
        max_steps=num_steps,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        bf16=torch.cuda.is_available() and torch.cuda.is_bf16_supported(),
    )
    config = GPT2Config(**SIZES[size])
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(config.vocab_size, (NUM_SAMPLES[size], LENGTHS[size]), generator=generator).tolist()
    samples = Dataset.from_dict({"input_ids": tokens, "labels": tokens})
    torch.manual_seed(7)
    model = GPT2LMHeadModel(config)
    Trainer(model=model, args=args, train_dataset=samples, callbacks=[SaysFirst()]).train()


if __name__ == "__main__":
    main(10**9 if sys.argv[1] == "forever" else int(sys.argv[1]), sys.argv[2])
