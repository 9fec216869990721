"""Hard negative class mining uses every class about as often as the others, and still gives hard batches."""

from collections import Counter

import numpy as np
import pytest

from tophit.batches import RepresentativeBatchSampler

CLASSES = 805
RHO = 6.0


def embeddings_of_classes(seed):
    """Unit vectors (805, 32) in groups of very different density: what makes a few classes near to many others."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(40, 32))
    spread = random.uniform(0.1, 2.0, size=(40, 1))
    group = random.integers(40, size=CLASSES)
    vectors = centres[group] + spread[group] * random.normal(size=(CLASSES, 32))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def classes_of_batches(hncm, seed=0, projections=1, classes=64, rho=RHO):
    """Return the classes of the batches of some projections, by a bank that is full from the beginning."""
    labels = [i // 4 for i in range(4 * CLASSES)]
    sampler = RepresentativeBatchSampler(labels, classes, 2, seed, rho, hncm=hncm)
    sampler.update(np.arange(CLASSES) * 4, embeddings_of_classes(seed))
    count = projections * sampler.steps_per_projection
    return [sampler.class_of_row[sampler.next_batch()[::2]].tolist() for _ in range(count)]


@pytest.mark.parametrize("hncm", [True, "seeds", "pool"])
@pytest.mark.parametrize("classes", [10, 32, 64])
@pytest.mark.parametrize("rho", [3.0, RHO])
def test_every_class_is_used_about_rho_times_in_each_projection(hncm, classes, rho):
    batches = classes_of_batches(hncm, projections=3, classes=classes, rho=rho)
    steps = len(batches) // 3
    for projection in range(3):
        used = Counter(number for batch in batches[projection * steps : (projection + 1) * steps] for number in batch)
        assert len(used) == CLASSES
        assert max(used.values()) <= 3 * rho


@pytest.mark.parametrize("seed", [0, 1])
def test_mined_batches_are_harder_than_dealt_ones(seed):
    """Each class of a batch is nearer to its nearest other one; the batch as a whole is nearer together too."""
    vectors = embeddings_of_classes(seed)

    def distances(hncm):
        mean, nearest = [], []
        for batch in classes_of_batches(hncm, seed):
            apart = np.linalg.norm(vectors[batch][:, None] - vectors[batch][None], axis=2)
            mean.append(apart.sum() / (len(batch) * (len(batch) - 1)))
            nearest.append((apart + 9 * np.eye(len(batch))).min(axis=1).mean())
        return np.mean(mean), np.mean(nearest)

    dealt = distances(False)
    for hncm in ("seeds", "pool"):
        mined = distances(hncm)
        assert mined[0] < dealt[0]
        assert mined[1] < 0.9 * dealt[1]
