"""Tiny models of the real architectures with two towers and a tokenizer, saved as a download would be."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

WORDS = ["red", "green", "blue", "mug", "class", "a", "photo", "of", "with", "handle", *map(str, range(10))]
_SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def tiny_tokenizer(kind: str, folder: Path) -> int:
    """Save a tokenizer of whole words, with the special ones of its family; return how many words it knows."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    special = ["<pad>", "<unk>", "<bos>", "<eos>"]
    known = {word: number for number, word in enumerate([*special, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [("<bos>", 2), ("<eos>", 3)]
    single = "<bos> $A <eos>" if kind == "clip" else "$A <eos>"
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=ends)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", bos_token="<bos>", eos_token="<eos>"
    )
    fast.save_pretrained(folder)
    return len(known)


def tiny_towers(kind: str, folder: Path) -> str:
    """Save a tiny CLIP or SigLIP with random weights and its tokenizer; return the backbone's name."""
    transformers = pytest.importorskip("transformers")
    words = tiny_tokenizer(kind, folder)
    text: dict[str, Any] = {**_SMALL, "vocab_size": words, "max_position_embeddings": 12}
    text |= {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
    vision = {**_SMALL, "hidden_size": 24, "image_size": 32, "patch_size": 8}
    torch.manual_seed(0)
    if kind == "clip":
        config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=12)
    else:
        vision["hidden_size"] = 16
        config = transformers.SiglipConfig(text_config={**text, "projection_size": 16}, vision_config=vision)
    model = transformers.AutoModel.from_config(config)
    with torch.no_grad():  # of the size that trained weights have, so that different images differ
        for value in model.parameters():
            value.normal_(0, 0.3)
    model.save_pretrained(folder)
    processor = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "size": {"height": 32, "width": 32}}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return f"hf/{folder}"
