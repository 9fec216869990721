"""The parts of THSG: its equations, networks, random triplets, collapse check and buffer."""

from tophit.methods.thsg.epoch_mean import EpochMean
from tophit.methods.thsg.equations import (
    adaptive_reverse_triplet,
    balance_weights,
    discriminator1_loss,
    discriminator2_loss,
    embedding_loss,
    generator1_loss,
    generator2_loss,
    pair_distance,
    plm,
    plm_lambda,
    reconstruction,
    reverse_margin,
    softmax_sum,
    triplet,
)
from tophit.methods.thsg.networks import GenerationNetworks
from tophit.methods.thsg.settings import GenerationSettings

__all__ = [
    "EpochMean",
    "GenerationNetworks",
    "GenerationSettings",
    "adaptive_reverse_triplet",
    "balance_weights",
    "discriminator1_loss",
    "discriminator2_loss",
    "embedding_loss",
    "generator1_loss",
    "generator2_loss",
    "pair_distance",
    "plm",
    "plm_lambda",
    "reconstruction",
    "reverse_margin",
    "softmax_sum",
    "triplet",
]
