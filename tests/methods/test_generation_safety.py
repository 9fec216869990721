"""What one needs to trust a generator in the loop: precision, failures named, collapse told, state restored."""

import math

import pytest
import torch
from tests.methods.test_generation import PARTS, groups, make, make_batch, spy_on
from torch import nn

from tophit.errors import NonFinite
from tophit.methods import GenerationSettings, TrainingBatch
from tophit.methods.generation import _PARTS


def test_under_bf16_autocast_the_losses_stay_float32():
    method, dtypes = make(), []
    for network in method.networks.children():
        network.register_forward_hook(lambda _, __, output: dtypes.append(output.dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert method.embed(make_batch().inputs).dtype == torch.bfloat16
        first = method.step(make_batch())
        second = method.step(make_batch(1))
    assert len(dtypes) >= 20
    assert set(dtypes) == {torch.float32}
    assert all(p.dtype == torch.float32 for ps in groups(method).values() for p in ps)
    exact = make()
    torch.testing.assert_close(exact.step(make_batch())["LD2"], first["LD2"], rtol=0.02, atol=0)
    assert all(math.isfinite(float(v)) for v in second.values())


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_not_finite_is_named_and_takes_no_step(part):
    method = make()
    method.step(make_batch())
    stepped = []
    spy_on(method, stepped.append)
    network = {"f": "classifier"}.get(part, part)
    if part == "f":
        method.settings = GenerationSettings(pretrain_epochs=0, phi=math.inf)
    else:
        with torch.no_grad():
            next(getattr(method.networks, network).parameters()).fill_(math.nan)
    named = {"g1": "d1", "g2": "d2"}.get(part, part)  # a generator's samples reach its discriminator first
    with pytest.raises(NonFinite) as error:
        method.step(make_batch(1))
    assert f"In the generation method {_PARTS[named]} became infinite or not a number." == str(error.value)
    assert named not in stepped


def test_a_gradient_that_is_not_finite_is_named():
    class BadGradient(nn.Module):
        def forward(self, embeddings, labels, indices_tuple=None):
            return (embeddings - embeddings.detach()).abs().sum().sqrt()  # 0, with an infinite slope

    method = make(loss=BadGradient())
    before = method.embed.head.weight.detach().clone()
    with pytest.raises(NonFinite, match=r"the gradient of the loss of the embedder \(Eq\. 5\) became"):
        method.step(make_batch())
    assert torch.equal(before, method.embed.head.weight)


def test_collapse_is_reported_once():
    rates = {"classifier_lr": 1e-3, "discriminator_lr": 1e-4}
    method = make(generator_lr=0.0, **rates)
    with torch.no_grad():  # a generator that makes nearly the same vector of anything
        for layer in (method.networks.g2.layers[0], method.networks.g2.layers[2]):
            layer.weight.mul_(1e-3)
    results = [method.step(make_batch(number)) for number in range(50)]
    warnings = [values["warning"] for values in results if "warning" in values]
    assert len(warnings) == 1
    assert "Generation has collapsed" in warnings[0]
    assert "100% of the classes" in warnings[0]
    assert all(values["collapsed"] == 1 and values["diversity"] < 0.01 for values in results)
    healthy = [make(generator_lr=1e-3, **rates).step(make_batch(number)) for number in range(3)]
    assert all(values["collapsed"] < 0.5 for values in healthy)


def test_batches_without_triplets_teach_nothing():
    method = make()
    before = method.state_dict()["networks"]["g1.layers.0.weight"].clone()
    batch = TrainingBatch(torch.randn(4, 10), torch.tensor([0, 1, 2, 3]), torch.arange(4))
    assert method.step(batch) == {"loss": 0.0, "triplets": 0.0}
    assert torch.equal(before, method.networks.g1.layers[0].weight)


def test_settings_leave_weight_for_the_reconstruction():
    with pytest.raises(ValueError, match=r"2 eta \+ mu must be at most 1"):
        GenerationSettings(eta=0.4, mu=0.3)


def run(method, numbers):
    """Three steps an epoch, the state taken in the middle of the second one."""
    results = []
    for number in numbers:
        method.begin_epoch(number // 2)
        results.append(method.step(make_batch(number)))
    return results


@pytest.mark.parametrize("settings", [{}, {"buffer_steps": 3, "pretrain_epochs": 1}, {"second_stage": False}])
def test_state_restores_every_network_optimizer_weight_and_threshold(settings):
    whole, parted = make(**settings), make(**settings)
    torch.manual_seed(1)
    expected = run(whole, range(6))
    torch.manual_seed(1)
    got = run(parted, range(3))
    random_state = torch.get_rng_state()  # the loop saves it
    fresh = make(seed=9, **settings)
    torch.set_rng_state(random_state)
    fresh.load_state_dict(parted.state_dict())
    fresh.embed.load_state_dict(parted.embed.state_dict())  # type: ignore[attr-defined]
    got += run(fresh, range(3, 6))
    assert got == expected
    torch.testing.assert_close(fresh.state_dict(), whole.state_dict(), rtol=0, atol=0)
