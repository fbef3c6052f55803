"""Built-in families and the example of docs/how-to/families.md satisfy the contract of a recipe."""

import sys
from pathlib import Path

import numpy as np
import pytest
from emulator import COMPILER, EmulatedDevice

import topsign as ts
from topsign import nn
from topsign.errors import StorageError
from topsign.families import AdaptiveRecipe, GroupedRecipe, Recipe, SignRecipe, TrellisRecipe
from topsign.heads import Head
from topsign.index import Index

DESIGN_ARRAYS = ("coded", "first", "book_of_step", "levels", "amplitudes", "gains", "emphases")


def family(kind, **options):
    return lambda sample: kind.learn(sample, n_features=sample.shape[1], random_state=7, **options)


FAMILIES = {
    "sign": family(SignRecipe, n_bytes=5),
    "sign, gaussian, inner products": family(SignRecipe, basis="gaussian", metric="inner_product"),
    "grouped": family(GroupedRecipe),
    "grouped, centred": family(GroupedRecipe, n_bytes=5, center=True),
    "grouped, gaussian, inner products": family(GroupedRecipe, n_bytes=4, basis="gaussian", metric="inner_product"),
    "adaptive": family(AdaptiveRecipe, n_bits=16),
    "adaptive, centred": family(AdaptiveRecipe, n_bits=16, n_pool=80, center=True),
    "adaptive, inner products": family(AdaptiveRecipe, n_bits=16, metric="inner_product"),
    "trellis": family(TrellisRecipe, n_bytes=8),
    "trellis, inner products": family(TrellisRecipe, n_bytes=8, metric="inner_product"),
    "trellis, random basis": family(TrellisRecipe, n_bytes=8, basis="hadamard", center=False),
}


pytestmark = pytest.mark.filterwarnings("ignore:axes of:UserWarning", "ignore:.*shrunk")


@pytest.mark.parametrize("name", FAMILIES)
def test_built_in_families_keep_the_contract(name):
    ts.testing.check_family(FAMILIES[name])


@pytest.mark.slow
@pytest.mark.skipif(not COMPILER, reason="the kernels of the emulated GPU are compiled")
@pytest.mark.parametrize("name", ["adaptive", "grouped", "sign", "trellis"])
def test_built_in_families_keep_the_contract_on_a_gpu(name):
    ts.testing.check_family(FAMILIES[name], device=EmulatedDevice())


def test_a_family_that_decodes_wrongly_is_noticed():
    class Wrong(SignRecipe):
        def decode(self, codes):
            return -super().decode(codes)

    with pytest.raises(AssertionError, match="resemble the signals"):
        ts.testing.check_family(lambda sample: Wrong.learn(sample, n_features=sample.shape[1], random_state=7))


def test_a_family_whose_search_misses_entries_is_noticed():
    class Blind(SignRecipe):
        def prepare(self, queries, **options):
            return super().prepare(-np.asarray(queries), **options)

    with pytest.raises(AssertionError, match="definition"):
        ts.testing.check_family(lambda sample: Blind.learn(sample, n_features=sample.shape[1], random_state=7))


CALL = "ts.testing.check_family(ScalarRecipe)"
PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "families.md"
EXAMPLE = PAGE.read_text().split("```python\n")[1].split("```")[0]


def test_installed_packages_define_families(tmp_path, monkeypatch, rng):
    """An entry point of the group topsign.families is loaded when its family is asked for, or read from a file."""
    (tmp_path / "scalar_package.py").write_text(EXAMPLE.replace(CALL, ""))
    info = tmp_path / "scalar_package-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: scalar_package\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[topsign.families]\nscalar = scalar_package:ScalarRecipe\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(Recipe.families, "scalar", raising=False)  # the page that another test runs
    signals = rng.standard_normal((300, 64)).astype(np.float32)
    path = tmp_path / "index.topsign"
    try:
        ts.Index(64, family="scalar", path=path).add(signals)
        del Recipe.families["scalar"], sys.modules["scalar_package"]
        assert ts.open_index(path).search(signals[5], k=1).ids.tolist() == [[5]]
        del Recipe.families["scalar"], sys.modules["scalar_package"]
        assert ts.Head.from_weights(signals[:9], family="scalar").recipe.family == "scalar"
    finally:
        Recipe.families.pop("scalar", None)
        sys.modules.pop("scalar_package", None)


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, processes=False, dashboard_address=":0") as cluster,
        cluster.get_client() as client,
    ):
        yield client


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adaptive", "grouped", "trellis"])
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
    learned = [recipe.mean, getattr(recipe.projection, "axes", None)]
    learned += [getattr(getattr(recipe, "design", None), part, None) for part in DESIGN_ARRAYS]
    if name == "trellis, random basis":
        learned = []
    assert recipe.shared_nbytes == sum(array.nbytes for array in learned if array is not None)
    assert Recipe.from_json(recipe.to_json(), "test").shared_nbytes == recipe.shared_nbytes
    if recipe.center is not None:
        return  # heads do not support these recipes
    head = Head.of(recipe, sample[:50], np.zeros(50), np.arange(50))
    assert head.nbytes == head.codes.nbytes + recipe.shared_nbytes
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
    assert one.disagreement("adaptive", n_features=16, n_bits=8, random_state=7) is None


@pytest.mark.parametrize("kind", [SignRecipe, GroupedRecipe, AdaptiveRecipe])
def test_a_recipe_accepts_its_own_parameters(kind):
    recipe = kind.make(n_features=32, random_state=7)
    assert recipe.disagreement(**recipe.parameters()) is None
    size = kind.size_name
    assert f"{size}=" in recipe.disagreement(**{size: getattr(recipe, size) + 1})
    assert recipe.disagreement(random_state=8) == "random_state=7, got random_state=8"
    assert "center=True" in recipe.disagreement(center=True)


@pytest.mark.parametrize(("kind", "per_byte"), [(SignRecipe, 8), (GroupedRecipe, 16)])
def test_n_bytes_sets_the_size_of_the_pool(kind, per_byte):
    recipe = kind.make(n_features=100, n_bytes=9, random_state=7)
    assert recipe.n_pool == 9 * per_byte
    assert recipe.code_bytes == 9
    assert kind.make(n_features=100, n_bytes=9, metric="inner_product", random_state=7).code_bytes == 11
    assert kind.make(n_features=100, random_state=7).n_pool <= 100
    with pytest.raises(ValueError, match="n_bytes must be"):
        kind.make(n_features=100, n_bytes=0)
    record = recipe.to_json() | {"n_bytes": 8}
    with pytest.raises(StorageError, match="shape"):
        Recipe.from_json(record, "a file")


@pytest.mark.parametrize(
    "name",
    ["sign", "grouped", "grouped, gaussian, inner products", "adaptive, inner products", "trellis, random basis"],
)
def test_p_values_of_impostors_are_uniform(name, rng):
    """Of isotropic impostors, a share alpha has p-values of at most alpha, within four standard errors."""
    index = Index.from_recipe(FAMILIES[name](np.zeros((2, 64), np.float32)))
    index.add(rng.standard_normal((40, 64)))
    found = index.search(rng.standard_normal((1000, 64)), k=40).p_values
    for level in (0.5, 0.1, 0.01):
        shares = (found <= level).mean(axis=1)  # of each query, which are independent given the entries
        assert abs(shares.mean() - level) < 4 * shares.std() / np.sqrt(1000) + 0.02 * level
