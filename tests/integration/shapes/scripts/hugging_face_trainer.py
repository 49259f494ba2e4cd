"""Hugging Face's Trainer on a randomly initialised tiny model, with evaluation, clipping and checkpoints."""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Sentences(torch.utils.data.Dataset):
    """Made-up token numbers."""

    def __init__(self, num_sentences):
        self.tokens = torch.randint(1, 50, (num_sentences, 12))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        tokens = self.tokens[index]
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": int(tokens[0]) % 3}


def main():
    """Trains and evaluates."""
    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=3
    )
    options = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=8,
        num_train_epochs=100000,
        use_cpu=True,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=5,
        report_to="none",
    )
    data, held_out = Sentences(96), Sentences(40)
    Trainer(BertForSequenceClassification(config), options, train_dataset=data, eval_dataset=held_out).train()
    print("THE END")


if __name__ == "__main__":
    main()
