"""Built-in families and the example of docs/how-to/families.md satisfy the contract of a recipe."""

from pathlib import Path

import numpy as np
import pytest
from emulator import COMPILER, EmulatedDevice

import topsign as ts
from topsign import nn
from topsign.families import AdaptiveRecipe, Recipe, SignRecipe, TrellisRecipe
from topsign.heads import Head

DESIGN_ARRAYS = ("coded", "offsets", "amplitudes", "gains", "emphases", "deviations")

FAMILIES = {
    "adaptive": lambda sample: AdaptiveRecipe.learn(sample, n_features=sample.shape[1], n_bits=16, random_state=7),
    "adaptive, fast, centred": lambda sample: AdaptiveRecipe.learn(
        sample, n_features=sample.shape[1], n_bits=16, n_pool=80, layout="fast", center=True, random_state=7
    ),
    "adaptive without norms": lambda sample: AdaptiveRecipe.learn(
        sample, n_features=sample.shape[1], n_bits=16, norms=False, random_state=7
    ),
    "sign": lambda sample: SignRecipe.learn(sample, n_features=sample.shape[1], n_pool=50, random_state=7),
    "sign, gaussian": lambda sample: SignRecipe.learn(
        sample, n_features=sample.shape[1], projection="gaussian", random_state=7
    ),
    "trellis": lambda sample: TrellisRecipe.learn(sample, n_bytes=8, norms=True, random_state=7),
    "trellis, local bases": lambda sample: TrellisRecipe.learn(sample, n_bytes=8, n_local=2, random_state=7),
    "trellis, random basis": lambda sample: TrellisRecipe.learn(
        sample, n_bytes=8, basis="hadamard", center=False, norms=True, random_state=7
    ),
}


pytestmark = pytest.mark.filterwarnings("ignore:axes of:UserWarning", "ignore:.*shrunk")


@pytest.mark.parametrize("name", FAMILIES)
def test_built_in_families_keep_the_contract(name):
    ts.testing.check_family(FAMILIES[name])


@pytest.mark.slow
@pytest.mark.skipif(not COMPILER, reason="the kernels of the emulated GPU are compiled")
@pytest.mark.parametrize("name", ["adaptive", "sign", "trellis"])
def test_built_in_families_keep_the_contract_on_a_gpu(name):
    ts.testing.check_family(FAMILIES[name], device=EmulatedDevice())


def test_a_family_that_decodes_wrongly_is_noticed():
    class Wrong(SignRecipe):
        def decode(self, codes, columns):
            return -super().decode(codes, columns)

    with pytest.raises(AssertionError, match="resemble the signals"):
        ts.testing.check_family(lambda sample: Wrong.learn(sample, n_features=sample.shape[1], random_state=7))


def test_a_family_whose_search_misses_entries_is_noticed():
    class Blind(SignRecipe):
        def prepare(self, queries, **options):
            return super().prepare(-np.asarray(queries), **options)

    with pytest.raises(AssertionError, match="definition"):
        ts.testing.check_family(lambda sample: Blind.learn(sample, n_features=sample.shape[1], random_state=7))


def test_a_family_whose_columns_are_lost_is_noticed():
    class Forgetful(SignRecipe):
        def pack(self, codes):
            return bytes(codes.nbytes)

    with pytest.raises(AssertionError, match="survive to_bytes"):
        ts.testing.check_family(lambda sample: Forgetful.learn(sample, n_features=sample.shape[1], random_state=7))


CALL = "ts.testing.check_family(ScalarRecipe)"
PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "families.md"
EXAMPLE = PAGE.read_text().split("```python\n")[1].split("```")[0]


def test_the_example_of_the_documentation_fits_on_a_page():
    assert CALL in EXAMPLE
    assert len(EXAMPLE.splitlines()) <= 100


def test_every_family_is_registered():
    assert {"adaptive", "sign", "trellis"} <= set(Recipe.families)


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, processes=False, dashboard_address=None) as cluster,
        cluster.get_client() as client,
    ):
        yield client


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adaptive", "trellis, local bases"])
def test_built_in_families_keep_the_contract_on_a_cluster(name, client):
    ts.testing.check_family(FAMILIES[name], client=client)


@pytest.mark.slow
def test_the_example_of_the_documentation_keeps_the_contract_on_a_cluster(client):
    names = {"__name__": "example"}
    try:
        exec(EXAMPLE.replace(CALL, ""), names)
        ts.testing.check_family(names["ScalarRecipe"], client=client)
    finally:
        del Recipe.families["scalar"]


@pytest.mark.parametrize("name", FAMILIES)
def test_shared_bytes_are_reported_consistently(name, rng):
    """A recipe, its copy from a file, a head and a layer count each learned array once."""
    sample = rng.standard_normal((600, 40)).astype(np.float32) + 0.5
    recipe = FAMILIES[name](sample)
    learned = [recipe.mean, *(getattr(recipe.projection, part, None) for part in ("axes", "means"))]
    learned += [getattr(design, part) for design in getattr(recipe, "designs", ()) for part in DESIGN_ARRAYS]
    if name == "trellis, random basis":
        learned = []
    assert recipe.shared_nbytes == sum(array.nbytes for array in learned if array is not None)
    assert Recipe.from_json(recipe.to_json(), "test").shared_nbytes == recipe.shared_nbytes
    if name in ("adaptive, fast, centred", "adaptive without norms", "trellis, local bases"):
        return  # heads do not support these recipes
    head = Head.of(recipe, sample[:50], np.zeros(50), np.arange(50))
    held = [head.codes, *head.columns.values()]
    assert head.nbytes == sum(array.nbytes for array in held) + recipe.shared_nbytes
    layer = nn.CompressedLinear.from_head(head)
    assert layer.nbytes == sum(buffer.nbytes for buffer in layer.buffers()) + recipe.shared_nbytes
    assert layer.nbytes == head.nbytes


def test_recipes_are_equal_if_they_make_the_same_codes():
    sample = np.random.default_rng(0).standard_normal((300, 16)).astype(np.float32)
    one = AdaptiveRecipe.learn(sample, n_features=16, n_bits=8, random_state=7)
    assert one == AdaptiveRecipe.learn(sample, n_features=16, n_bits=8, random_state=7)
    assert one != AdaptiveRecipe.learn(sample, n_features=16, n_bits=8, random_state=8)
    assert one != "adaptive"
    assert one.center is None
    assert one.parameters()["metric"] == "correlation"
    assert not AdaptiveRecipe.needs_sample(n_features=16, n_bits=8)
    assert AdaptiveRecipe.needs_sample(n_features=16, n_bits=8, center=True)
    assert AdaptiveRecipe.agree(one, n_features=16, n_bits=8, random_state=7) is None


def test_the_recipe_of_weights_has_their_features():
    weights = np.random.default_rng(0).standard_normal((5, 16)).astype(np.float32)
    recipe = Recipe.for_weights.__func__(SignRecipe, weights, random_state=7)
    assert recipe.n_features == 16
