"""PyTorch layers give the same results as classifiers on every path and with every format of weights."""

import io
import subprocess
import sys

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from pages import ROOT, blocks

import topsign as ts
from topsign import nn
from topsign.families import Recipe
from topsign.nn import layer, operators
from topsign.nn.operators import DecodedHead

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::topsign.heads.SizeWarning")]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def make_linear(in_features=48, out_features=30, *, bias=True, dtype=torch.float32):
    return torch.nn.Linear(in_features, out_features, bias=bias, dtype=dtype).requires_grad_(False)


FAMILIES = [
    {"family": "adaptive", "n_bits": 12},
    {"family": "adaptive", "n_bits": 12, "n_pool": 100, "basis": "gaussian"},
    {"family": "grouped", "n_bytes": 6},
    {"family": "grouped", "n_bytes": 4, "basis": "circulant"},
    {"family": "sign", "n_bytes": 9},
    {"family": "trellis", "n_bytes": 8},
]


def assert_close(actual, expected, n_terms):
    """Assert equality within the rounding of float32 sums of n_terms in two orders, relative to the largest sum."""
    assert actual.shape == expected.shape
    assert (actual - expected).abs().max() <= n_terms * 2**-24 * expected.abs().max()


# Layers


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("parameters", FAMILIES, ids=str)
def test_layers_estimate_what_heads_and_classifiers_do(bias, parameters):
    linear, x = make_linear(bias=bias), torch.randn(6, 48)
    linear.weight[4] = 0
    layer = nn.compress(linear, random_state=7, **parameters)
    weights, biases = linear.weight.numpy(), linear.bias.numpy() if bias else None
    head = ts.Head.from_weights(weights, biases=biases, random_state=7, **parameters)
    classifier = ts.CompressedLinearClassifier.from_weights(weights, intercept=biases, random_state=7, **parameters)
    assert_array_equal(layer(x).numpy(), head.logits(x.numpy()).astype(np.float32))
    assert_array_equal(classifier.decision_function(x.numpy()), head.logits(x.numpy()))
    assert_array_equal(layer.topk(x, 4).indices.numpy(), head.topk(x.numpy(), 4).indices)
    assert torch.equal(layer(x)[:, 4], (linear.bias[4] if bias else torch.tensor(0.0)).expand(6))


@pytest.mark.parametrize("parameters", FAMILIES, ids=str)
def test_decoded_weights_give_the_logits_within_rounding(monkeypatch, parameters):
    """Other devices multiply with weights rounded to 8 bits, half a step of the row each; inputs have 16 bits."""
    layer, x = nn.compress(make_linear(), random_state=7, **parameters), torch.randn(6, 48)
    monkeypatch.setattr("topsign.nn.operators.BLOCK_VALUES", 7 * 48)
    head = DecodedHead(layer.recipe, layer.codes, layer.bias)
    assert head.weights.dtype == torch.int8
    decoded = torch.from_numpy(layer.recipe.weight_encoder().decode(layer.codes.numpy()))
    steps = decoded.abs().amax(1) / 127
    assert ((head.weights * head.scales[:, None] - decoded).abs() <= 0.501 * steps[:, None]).all()
    errors = x.abs().sum(1, keepdim=True) * steps / 2
    assert ((head.logits(x) - layer(x)).abs() <= errors + 1e-3 * layer(x).abs().max()).all()
    values, classes = head.topk(x, 5)
    order = head.logits(x).argsort(dim=1, descending=True, stable=True)[:, :5]
    assert torch.equal(classes, order)
    assert torch.equal(values, head.logits(x).gather(1, order))
    layer.codes[:2] = layer.codes[2:3]  # ties go to the lower class
    equal = DecodedHead(layer.recipe, layer.codes, None)
    assert equal.topk(x, 30)[1].tolist() == equal.logits(x).argsort(dim=1, descending=True, stable=True).tolist()


def test_other_devices_use_decoded_weights(monkeypatch):
    """A layer whose device has no kernels is searched by its decoded weights, which are made once."""
    layer, x = nn.compress(make_linear(), n_bytes=6, random_state=7), torch.randn(6, 48)
    exact, made = layer(x), []

    class Counted(DecodedHead):
        def __init__(self, *operands):
            made.append(operands)
            super().__init__(*operands)

    monkeypatch.setattr(operators, "_make_head", Counted)
    operators._heads.clear()
    assert_close(layer(x), exact, 2**17)  # 8 bits instead of 24
    assert_close(layer.topk(x, 1).values[:, 0], exact.amax(1), 2**17)
    assert len(made) == 1
    operators._heads.clear()


def test_layers_notice_that_their_tensors_changed():
    """Codes are searched in another form, which is made again after a change and forgotten with the layer."""
    layer, x = nn.compress(make_linear(), n_bytes=6, random_state=7), torch.randn(6, 48)
    operators._heads.clear()
    before = layer(x)
    assert len(operators._heads) == 1
    layer.codes[:2] = layer.codes[2:3].clone()
    assert_close(layer(x)[:, 0] - layer.bias[0], layer(x)[:, 2] - layer.bias[2], 4)
    layer.bias += 1
    assert_close(layer(x)[:, 2:], before[:, 2:] + 1, 4)
    with torch.inference_mode():
        fresh = nn.compress(make_linear(), n_bytes=6, random_state=8)
        fresh(x)
        fresh.codes.copy_(layer.codes)  # tensors of inference mode count no versions
        fresh.load_state_dict(layer.state_dict())
        assert torch.equal(fresh(x), layer(x))
    del layer, fresh
    other = nn.compress(make_linear(), n_bytes=6, random_state=7)
    other(x)
    assert len(operators._heads) == 1
    for _ in range(operators.LAYERS + 1):
        torch.ops.topsign.linear(x, other.codes.clone(), other.bias, other._recipe_text)
    assert len(operators._heads) <= operators.LAYERS


@pytest.mark.parametrize("storage", ["float32", "bfloat16", "int8"])
def test_shortlists_are_multiplied_block_by_block(monkeypatch, storage):
    linear, x = make_linear(), torch.randn(2, 9, 48)
    small = nn.compress(linear, n_bytes=6, shortlist=5, shortlist_storage=storage, random_state=7)
    whole, best = small(x), small.topk(x, 3)
    monkeypatch.setattr(layer, "BLOCK_VALUES", 4 * 5 * 48)
    assert_close(small(x)[whole.isfinite()], whole[whole.isfinite()], 48)
    assert torch.equal(small.topk(x, 3).indices, best.indices)
    exact = linear(x).where(whole.isfinite(), torch.tensor(-torch.inf))
    assert torch.equal(best.indices, whole.topk(3).indices)
    assert_close(whole[whole.isfinite()], exact[whole.isfinite()], 48 if storage == "float32" else 2**17)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_types_of_inputs_and_weights(dtype):
    linear, x = make_linear(dtype=dtype), torch.randn(6, 48, dtype=dtype)
    layer = nn.compress(linear, n_bytes=6, random_state=7)
    logits = layer(x)
    assert logits.dtype == dtype
    assert torch.equal(logits, layer(x.float()).to(dtype))  # computed in float32 for every type
    best = layer.topk(x, k=4)
    assert best.values.dtype == dtype
    assert torch.equal(best.indices, layer.topk(x.float(), k=4).indices)
    wide = nn.compress(make_linear().to(dtype), n_bytes=6, random_state=7)
    assert wide.bias.dtype == torch.float32


def test_casting_a_model_leaves_codes_and_biases_alone():
    layer, x = nn.compress(make_linear(), n_bytes=6, random_state=7), torch.randn(6, 48)
    before, state = layer(x), {name: buffer.clone() for name, buffer in layer.named_buffers()}
    for cast in (layer.half, layer.bfloat16, layer.double, layer.float):
        cast()
        assert all(torch.equal(buffer, state[name]) for name, buffer in layer.named_buffers())
    assert torch.equal(layer(x), before)


def test_shapes_follow_the_input():
    layer = nn.compress(make_linear(), n_bytes=6, random_state=7)
    x = torch.randn(2, 3, 48)
    flat = layer(x.view(6, 48))
    assert torch.equal(layer(x), flat.view(2, 3, 30))
    assert torch.equal(layer(x[0, 0]), flat[0])
    assert layer.topk(x, k=4).values.shape == layer.topk(x, k=4).indices.shape == (2, 3, 4)
    assert layer(torch.empty(0, 48)).shape == (0, 30)
    assert DecodedHead(layer.recipe, layer.codes, layer.bias).logits(torch.empty(0, 48)).shape == (0, 30)
    assert layer.topk(torch.empty(0, 48), k=4).indices.shape == (0, 4)


def test_layers_stay_in_eval_mode_and_out_of_graphs():
    model = torch.nn.Sequential(torch.nn.Linear(20, 48), nn.compress(make_linear(), n_bytes=6, random_state=7))
    model.train()
    assert model.training
    assert not model[1].training
    assert not model(torch.randn(3, 20)).requires_grad
    assert not list(model[1].parameters())


# Families


def test_a_new_family_is_a_layer(scalar_family, tmp_path):
    """A layer that decodes its codes gives the logits of a head, and its state loads into an empty layer."""
    linear, x = make_linear(), torch.randn(6, 48)
    layer = nn.compress(linear, family="scalar")
    assert layer.codes.shape == (30, 50)
    decoded = torch.from_numpy(layer.recipe.weight_encoder().decode(layer.codes.numpy()))
    assert_close(layer(x), x @ decoded.T + linear.bias, 48)
    assert_close(DecodedHead(layer.recipe, layer.codes, layer.bias).logits(x), layer(x), 2**17)  # 8 bits
    assert torch.equal(layer.topk(x, 4).indices, layer(x).argsort(dim=1, descending=True, stable=True)[:, :4])
    assert_array_equal(layer.to_head().logits(x.numpy()).astype(np.float32), layer(x).numpy())
    fresh = nn.CompressedLinear(48, 30, family=layer.recipe)
    fresh.load_state_dict(layer.state_dict())
    assert torch.equal(fresh(x), layer(x))
    assert "family='scalar'" in repr(layer)
    with pytest.raises(ValueError, match="family='scalar' with these options learns from weights"):
        nn.CompressedLinear(48, 30, family="scalar")
    with pytest.raises(ValueError, match=r"no further options, got in_features=47 and \{'n_bytes': 3\}"):
        nn.CompressedLinear(47, 30, family=layer.recipe, n_bytes=3)


@pytest.fixture
def scalar_family():
    """The family of docs/how-to/families.md, which only encodes and decodes: one byte per feature."""
    code = blocks(ROOT / "docs" / "how-to" / "families.md", "python")[0]
    exec(code.replace("ts.testing.check_family(ScalarRecipe)", ""), {"__name__": "example"})
    yield
    del Recipe.families["scalar"]


# State


@pytest.mark.parametrize("basis", ["hadamard", "gaussian"])
def test_states_round_trip(basis):
    """States also round-trip through a file that is read without unpickling code, and they include the seed."""
    shape = {"family": "adaptive", "n_bits": 12, "n_pool": 60, "basis": basis}
    layer, x = nn.compress(make_linear(), random_state=7, **shape), torch.randn(6, 48)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    fresh = nn.CompressedLinear(48, 30, random_state=8, **shape)
    assert not fresh(x).any()  # nothing loaded yet
    fresh.load_state_dict(state)
    assert fresh.recipe.projection == layer.recipe.projection
    assert torch.equal(fresh(x), layer(x))
    assert set(state) == {"codes", "bias", "_extra_state"}


def test_states_of_other_layers_are_refused(monkeypatch):
    shape = {"family": "adaptive", "n_bits": 12}
    layer = nn.compress(make_linear(), **shape, random_state=7)
    state = layer.state_dict()
    with pytest.raises(RuntimeError, match="size mismatch for codes"):
        nn.CompressedLinear(48, 31, **shape).load_state_dict(state)
    other = nn.CompressedLinear(48, 30, **shape, n_pool=47)
    assert other.codes.shape == state["codes"].shape  # the same number of bytes with another meaning
    with pytest.raises(RuntimeError, match=r"n_pool': 48.*this layer has.*n_pool': 47"):
        other.load_state_dict(state)
    monkeypatch.setattr(type(layer.recipe.projection), "revision", 99)
    with pytest.raises(RuntimeError, match="the projection it was written with has the fingerprint"):
        nn.CompressedLinear(48, 30, **shape).load_state_dict(state)


def test_hostile_states_are_refused_before_anything_is_taken():
    """States are also validated inside a model and with assign=True."""
    shape = {"family": "adaptive", "n_bits": 12, "n_pool": 300, "random_state": 7}
    layer = nn.compress(make_linear(), **shape)
    model = torch.nn.Sequential(torch.nn.ReLU(), nn.CompressedLinear(48, 30, **shape))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    good = {f"1.{name}": value for name, value in layer.state_dict().items()}
    for name, value, words in [
        ("codes", torch.full_like(layer.codes, 255), "1: codes is not a packed code at row 0"),
        ("codes", torch.zeros_like(layer.codes), "1: codes is not a packed code at row 0"),
        ("codes", layer.codes.float(), "1: codes must be of type torch.uint8, got torch.float32"),
        ("bias", torch.full((30,), torch.nan), "1: bias holds NaN, infinity, or values above 1e"),
        ("bias", torch.full((30,), 3e38), "1: bias holds NaN, infinity, or values above 1e"),
        ("_extra_state", torch.tensor([1, 2], dtype=torch.uint8), "1: "),
        ("_extra_state", torch.tensor(list(b"{}"), dtype=torch.uint8), "1: the extra state, recipe: cannot be read"),
        ("_extra_state", torch.tensor(list(b"[]"), dtype=torch.uint8), "1: the extra state, recipe: cannot be read"),
    ]:
        for assign in (False, True):
            with pytest.raises(RuntimeError, match=words):
                model.load_state_dict(good | {f"1.{name}": value}, assign=assign)
            assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    model.load_state_dict(good)
    x = torch.randn(6, 48)
    assert torch.equal(model[1](x), layer(x))


# Compressing


def test_a_layer_of_a_model_is_replaced_in_place():
    model = torch.nn.ModuleDict({"body": torch.nn.Sequential(torch.nn.ReLU(), make_linear()), "fc": make_linear()})
    kept = model["fc"]
    assert nn.compress_module(model, "body.1", n_bytes=6, random_state=7) is model
    assert isinstance(model["body"][1], nn.CompressedLinear)
    assert model["fc"] is kept


def test_blocks_of_weights_make_no_difference(monkeypatch):
    linear = make_linear()
    linear.weight[[0, 9, 29]] = 0
    whole = nn.compress(linear, n_bytes=6, random_state=7)
    monkeypatch.setattr(layer, "BLOCK_VALUES", 7 * 48)
    parts = nn.compress(linear, n_bytes=6, random_state=7)
    for name, buffer in whole.named_buffers():
        assert torch.equal(buffer, getattr(parts, name))
    assert whole.nbytes == sum(buffer.nbytes for buffer in whole.buffers())


PROGRAM = """
import resource
import torch, topsign as ts

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

torch.set_num_threads(1)
linear = torch.nn.Linear(1024, 30_000, bias=False, dtype=torch.bfloat16)
ts.nn.layer.BLOCK_VALUES = 2**20
ts.nn.compress(torch.nn.Linear(1024, 20), n_bytes=8, random_state=7)
before = peak()
layer = ts.nn.compress(linear, n_bytes=8, random_state=7)
print(peak() - before, layer.nbytes // 2**20)
"""


def test_a_large_head_is_compressed_without_a_second_copy():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    grown, held = map(int, done.stdout.split())
    # Blocks of 4 MiB and their projections, besides the codes; the weights have 59 MiB in bfloat16, 117 in float32.
    assert grown < held + 30


# Bad input and missing packages

LAYER = nn.CompressedLinear(48, 30, n_bytes=6, random_state=7)
CALLS = [
    (lambda: LAYER(torch.randn(2, 47)), ValueError, "inputs must have 48 features in the last axis, got shape (2, 47)"),
    (lambda: LAYER(torch.full((2, 48), torch.nan)), ValueError, "NaN or infinity in inputs, first at row 0, column 0"),
    (lambda: LAYER.topk(torch.randn(2, 48), k=31), ValueError, "k must be in [1, 30], got 31"),
    (lambda: nn.compress(torch.nn.ReLU()), TypeError, "a torch.nn.Linear can be compressed, found ReLU;"),
    (lambda: nn.compress_module(torch.nn.Sequential(make_linear()), "fc"), TypeError, "found nothing at 'fc'"),
    (lambda: nn.CompressedLinear(0, 30), ValueError, "in_features must be at least 1, got 0"),
]


@pytest.mark.parametrize(("call", "error", "words"), CALLS)
def test_bad_input_is_explained(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


def test_weights_that_are_not_finite_are_named():
    linear = make_linear()
    linear.weight[5, 6] = torch.nan
    with pytest.raises(ValueError, match="NaN or infinity in weights, first at row 5, column 6"):
        nn.compress(linear, n_bytes=6)


WITHOUT_TORCH = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'")

sys.meta_path.insert(0, Absent())
import topsign
print("imported")
topsign.nn
"""


def test_torch_is_asked_for_by_name():
    """Without PyTorch everything else works, and topsign.nn names the missing package."""
    shown = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True)
    assert "ImportError: topsign.nn needs PyTorch" in shown.stderr
    assert shown.stdout.strip() == "imported"
    with pytest.raises(AttributeError, match="module 'topsign' has no attribute 'missing'"):
        _ = ts.missing
