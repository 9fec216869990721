"""The registry: names and options read from source files, and what is registered while a program runs."""

import subprocess
import sys
from collections.abc import Iterator
from inspect import Parameter

import pytest

from tophit import registry
from tophit.errors import UsageError
from tophit.registry import entries, find, find_metric, names, register
from tophit.signatures import Foreign, decorated_definitions, member_at, parameters_of

SOURCE = '''
"""Some module."""

@dataclass
class Plain:
    """Not registered."""

@register(
    "loss",
    "mine",
    title="My loss",
    make=lambda: 3,
)
@other
class MyLoss(Base):
    """What it does.

    More of it.
    """

def register_nothing() -> None: ...
'''


@pytest.fixture
def own_registrations() -> Iterator[None]:
    before = dict(registry._registered)
    yield
    for key in set(registry._registered) - set(before):
        del registry._registered[key]


def test_checking_and_explaining_recipes_and_listing_names_import_no_torch() -> None:
    code = """
import sys
from tophit.errors import UsageError
from tophit.recipe import read_recipe, recipe_fields
from tophit.registry import KINDS, entries
assert all(entries(kind) for kind in KINDS)
assert list(recipe_fields())
read_recipe("pnp/sop", ["data.manifest=x", "loss.variant=Ds", "evaluation.metric=recall@10"])
try:
    read_recipe("head", ["data.manifest=x", "embedder.backbone=resnet"])
except UsageError as error:
    assert "resnet50" in str(error)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_files_say_is_what_python_says() -> None:
    """Options read from a file have the names and defaults of the imported signature."""
    for kind in ("loss", "sampler"):
        for entry in entries(kind):
            imported = parameters_of(entry.load())
            assert {name: option.default for name, option in entry.options.items()} == {
                name: imported[name].default for name in entry.options
            }
            given = registry.KINDS[kind].given
            assert set(entry.options) == {name for name in imported if name not in given}


@pytest.mark.parametrize(("kind", "member"), [("loss", "compares_images"), ("method", "make_sampler")])
def test_members_read_from_files_are_those_of_the_imported_class(kind: str, member: str) -> None:
    for entry in entries(kind):
        found, imported = member_at(entry.module, entry.attribute, member), entry.load()
        owner = next(each for each in imported.__mro__ if member in vars(each))
        value = vars(owner)[member]
        assert found == (owner.__name__, value if isinstance(value, bool) else None)


def test_decorators_are_read_with_names_plain_facts_and_the_summary() -> None:
    (found,) = decorated_definitions(SOURCE, ("register", ""))
    assert (found.name, found.summary) == ("MyLoss", "What it does.")
    assert found.decorators == [("register", ("loss", "mine"), {"title": "My loss"})]
    assert not list(decorated_definitions(SOURCE, ("benchmark_set",)))


def test_types_that_are_no_plain_values_are_no_options() -> None:
    assert Foreign.Tensor[0] is Foreign
    options = find("loss", "pnp").options
    assert list(options) == ["variant", "alpha", "b", "temperature", "include_self", "normalize"]
    assert options["variant"].default == "Dq"
    assert "settings" not in find("method", "generation").options


@pytest.mark.usefixtures("own_registrations")
def test_a_class_of_a_running_program_can_be_registered() -> None:
    @register("loss", "of-this-test", wants="little")
    class Mine:
        """Mine."""

        def __init__(self, num_classes: int, margin: float = 0.25) -> None: ...

    entry = find("loss", "of-this-test")
    assert "of-this-test" in names("loss")
    assert (entry.summary, entry.facts) == ("Mine.", {"wants": "little"})
    assert list(entry.options) == ["margin"]
    assert entry.options["margin"].default == 0.25
    assert entry.options["margin"].kind is Parameter.POSITIONAL_OR_KEYWORD


def test_unknown_names_and_kinds_say_what_there_is() -> None:
    with pytest.raises(
        UsageError, match=r"There is no loss 'pnpp'\. Did you mean 'pnp'\? Choices: .*triplet.*; or pack"
    ):
        find("loss", "pnpp")
    with pytest.raises(UsageError, match=r"There is no search backend 'milvs'\. Did you mean 'milvus'"):
        find("backend", "milvs")
    with pytest.raises(UsageError, match=r"There is no kind 'losses'.*; the kinds are loss, miner"):
        register("losses", "x")
    with pytest.raises(UsageError, match=r"metric recall needs a number of results of at least 1, as in recall@10"):
        find_metric("recall")
    with pytest.raises(UsageError, match=r"metric mAP takes no number of results: write mAP, not mAP@3"):
        find_metric("mAP@3")
