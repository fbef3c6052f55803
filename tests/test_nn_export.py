"""Compressed layers that are traced, exported, compiled, packaged or run in ONNX Runtime, with other inputs."""

import warnings

import pytest
import torch

from topsign import nn
from topsign.heads.onnx import session_options
from topsign.nn.onnx import decoded_layers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:.*torch.jit.*:DeprecationWarning"),
]
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
ROWS = ({0: torch.export.Dim("rows")},)


class Model(torch.nn.Module):
    """Model with a body and a compressed head that returns all logits and the best classes."""

    def __init__(self, **parameters):
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Linear(48, 48)
        self.head = nn.compress(torch.nn.Linear(48, 300), random_state=7, **parameters or ADAPTIVE)
        self.eval().requires_grad_(False)

    def forward(self, x):
        x = self.body(x)
        best = self.head.topk(x, 3)
        return self.head(x), best.values, best.indices


ADAPTIVE = {"family": "adaptive", "n_bits": 12, "n_pool": 96}
GROUPED = {"family": "grouped", "n_bytes": 6}
TRELLIS = {"family": "trellis", "n_bytes": 6}
SIGN = {"family": "sign", "n_bytes": 9}
VARIANTS = [
    TRELLIS,
    GROUPED,
    SIGN,
    ADAPTIVE,
    ADAPTIVE | {"basis": "gaussian"},
    GROUPED | {"shortlist": 5},
    ADAPTIVE | {"shortlist": 5, "shortlist_storage": "int8"},
]


def assert_same(actual, expected):
    """Assert equal logits within the rounding of the body, whose 48 terms may be added in another order."""
    for one, other in zip(actual, expected, strict=True):
        one = torch.as_tensor(one).cpu()
        other = other.cpu()
        if other.dtype == torch.int64:
            assert torch.equal(one, other)
        else:
            finite = other.isfinite()
            assert torch.equal(one.isfinite(), finite)
            assert (one[finite] - other[finite]).abs().max() <= 4 * 48 * 2**-24 * other[finite].abs().max()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("parameters", VARIANTS, ids=str)
def test_traced_and_exported_models_give_the_eager_answers(device, parameters):
    """Inputs differ from the example in values and in batch size."""
    model = Model(**parameters).to(device)
    example, other = torch.randn(3, 48, device=device), torch.randn(5, 48, device=device)
    expected = model(other)
    with warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)  # warns that a value was frozen
        traced = torch.jit.trace(model, example)
    assert_same(traced(other), expected)
    exported = torch.export.export(model, (example,), dynamic_shapes=ROWS)
    assert "topsign.topk.default" in {str(node.target) for node in exported.graph.nodes}
    assert_same(exported.module()(other), expected)


@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")  # advice about speed
@pytest.mark.parametrize("device", DEVICES)
def test_compiled_models_give_the_eager_answers(device):
    model = Model().to(device)
    compiled = torch.compile(model, fullgraph=True)
    for rows in (3, 5):
        x = torch.randn(rows, 48, device=device)
        assert_same(compiled(x), model(x))


@pytest.mark.parametrize("parameters", [ADAPTIVE, GROUPED, TRELLIS], ids=str)
def test_operators_keep_their_contracts(parameters):
    """PyTorch checks schemas, shape functions and the absence of aliasing."""
    head, x = Model(**parameters).head, torch.randn(3, 48)
    held = x, head.codes, head.bias, head._recipe_text
    for name, arguments in {"linear": held, "topk": (*held, 3)}.items():
        found = torch.library.opcheck(getattr(torch.ops.topsign, name).default, arguments)
        assert {"test_schema", "test_faketensor"} <= set(found)
        assert set(found.values()) == {"SUCCESS"}


def test_shapes_that_do_not_fit_are_refused_while_tracing():
    with pytest.raises(Exception, match="inputs must have 48 features in the last axis"):
        torch.export.export(Model().head, (torch.randn(3, 47),))


def test_operands_that_do_not_fit_their_recipe_are_refused():
    """Graphs may come from untrusted sources."""
    head, x = Model().head, torch.randn(3, 48)
    for codes, bias in [
        (head.codes[:, :-1], head.bias),
        (head.codes.int(), head.bias),
        (head.codes, head.bias[:-1]),
    ]:
        with pytest.raises(ValueError, match="do not fit uint8 codes of"):
            torch.ops.topsign.linear(x, codes, bias, head._recipe_text)
    other = head.codes.T.contiguous().T  # another memory order is the same code
    assert torch.equal(torch.ops.topsign.linear(x, other, head.bias, head._recipe_text), head(x))


@pytest.mark.parametrize(
    "parameters",
    [
        ADAPTIVE,
        GROUPED,
        TRELLIS,
        {"bias": False},
        *(GROUPED | {"shortlist": 5, "shortlist_storage": kind} for kind in ("float32", "float16", "int8")),
    ],
    ids=str,
)
def test_onnx_runtime_gives_the_eager_answers(tmp_path, parameters):
    """The session uses topsign's operators, without PyTorch."""
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxruntime_extensions")
    model = Model(**parameters) if parameters.get("bias", True) else Model()
    if not parameters.get("bias", True):
        model.head = nn.compress(torch.nn.Linear(48, 300, bias=False), n_bytes=6, random_state=7)
    model.body = torch.nn.Identity()  # inputs are rounded, so their last bits may matter
    path = tmp_path / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nn.export_onnx(model, (torch.randn(1, 48),), path, verbose=False)  # any batch size, also from one row
    session = onnxruntime.InferenceSession(path, session_options())
    x = torch.randn(5, 48)
    found = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert_same(found, model(x))
    if model.head.shortlist is None:
        assert all(torch.equal(torch.as_tensor(one), other) for one, other in zip(found, model(x), strict=True))
    with pytest.raises(Exception, match="not a registered function/op"):
        onnxruntime.InferenceSession(path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "parameters",
    [ADAPTIVE, GROUPED, TRELLIS, SIGN, ADAPTIVE | {"shortlist": 5, "shortlist_storage": "int8"}],
    ids=str,
)
def test_standard_operators_run_without_topsign(tmp_path, parameters):
    """Decoded weights are rounded to 8 bits, with an error of half a step of their row, over 48 inputs."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model, path = Model(**parameters), tmp_path / "model.onnx"
    model.body, head = torch.nn.Identity(), model.head
    nn.export_onnx(model, (torch.randn(3, 48),), path, operators="standard", verbose=False)
    assert model.head is head
    session = onnxruntime.InferenceSession(path)  # without topsign's operators
    x = torch.randn(5, 48)
    logits, values, indices = map(torch.as_tensor, session.run(None, {session.get_inputs()[0].name: x.numpy()}))
    expected = model(x)
    if head.shortlist is None:
        decoded = torch.from_numpy(head.recipe.weight_encoder().decode(head.codes.numpy()))
        exact = x @ decoded.T + head.bias
        steps = decoded.abs().amax(1) / 127
        assert ((logits - exact).abs() <= x.abs().sum(1, keepdim=True) * steps / 2 + 1e-5).all()
        assert (logits - exact).abs().max() > 0
        assert (logits - expected[0]).abs().max() < 0.02 * expected[0].abs().max()
        order = logits.topk(3)
        assert torch.equal(indices, order.indices)
        assert torch.equal(values, order.values)
    else:  # exact logits for nearly the same classes
        same = logits.isfinite() & expected[0].isfinite()
        assert same.sum() >= 20
        assert_same([logits[same]], [expected[0][same]])


@pytest.mark.filterwarnings("ignore")
def test_shapes_can_be_fixed_and_layers_shared(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    layer, path = Model().head, tmp_path / "model.onnx"
    nn.export_onnx(layer, (torch.randn(3, 48),), path, operators="standard", dynamic_shapes=None, verbose=False)
    assert onnxruntime.InferenceSession(path).get_inputs()[0].shape == [3, 48]
    both = torch.nn.ModuleDict({"one": layer, "two": layer})
    with decoded_layers(both) as plain:
        assert plain["one"] is plain["two"]
        assert not isinstance(plain["one"], nn.CompressedLinear)
    assert both["one"] is both["two"] is layer
    with pytest.raises(ValueError, match="operators must be one of"):
        nn.export_onnx(layer, (torch.randn(3, 48),), path, operators="plain")
