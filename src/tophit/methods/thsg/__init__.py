"""The parts of THSG: its equations, and the networks, triplets, threshold, buffer and check that they use."""

from tophit.methods.thsg.components import EpochMean, GenerationNetworks, SampleBuffer, random_triplets
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

__all__ = [
    "EpochMean",
    "GenerationNetworks",
    "SampleBuffer",
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
    "random_triplets",
    "reconstruction",
    "reverse_margin",
    "softmax_sum",
    "triplet",
]
