"""Fine-tune a transformer of the Hugging Face Hub with LoRA: python fine_tune_transformer.py [NAME OR FOLDER].

It needs ``pip install 'tophit[lora]'``. The weights are merged when they are saved, so searching costs no more.
"""

import sys

import tophit

name = sys.argv[1] if len(sys.argv) > 1 else "facebook/dinov2-small"
result = tophit.train(
    "photos/",
    "last",
    out="runs/transformer",
    embedder={"backbone": f"hf/{name}", "trainable": "lora", "pooling": "cls"},
    schedule={"epochs": 1},
)
print(result)
