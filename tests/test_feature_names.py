"""Feature names of tables: every method that takes signals refuses other names or another order."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from test_trellis import steep

import topsign as ts
from topsign.signals import open_files

pd = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")

NAMES = tuple(f"f{i:02d}" for i in range(32))
TURNED = (*NAMES[1:], NAMES[0])

# The signals here are strongly anisotropic, and a random basis warns about it.
pytestmark = pytest.mark.filterwarnings("ignore::topsign.errors.CalibrationWarning")

FRAMES = {
    "pandas": lambda values: pd.DataFrame(values, columns=list(NAMES)),
    "polars": lambda values: pytest.importorskip("polars").DataFrame(values, schema=list(NAMES)),
    "arrow": lambda values: pyarrow.table({name: values[:, i] for i, name in enumerate(NAMES)}),
}


def turned(frame):
    return frame.select(list(TURNED)) if hasattr(frame, "select") else frame[list(TURNED)]


def some_index(kind, **options):
    if kind == "trellis":
        return ts.Index(32, n_bytes=5, random_state=1, **options)
    return ts.Index(32, family="adaptive", n_bits=8, random_state=1, **options)


@pytest.mark.parametrize("kind", ["trellis", "adaptive"])
@pytest.mark.parametrize("frame", FRAMES)
def test_columns_in_another_order_are_refused(rng, kind, frame, tmp_path):
    values = steep(rng, 700)
    table, path = FRAMES[frame](values), tmp_path / "i.topsign"
    index = some_index(kind, path=path)
    index.add(table)
    assert index._state.feature_names == NAMES
    index.close()
    index = ts.open_index(path)  # names are stored in the file
    other = turned(table)
    for call in (
        lambda: index.add(other),
        lambda: index.add_table(other),
        lambda: index.upsert(other, ids=np.arange(700)),
        lambda: index.search(other),
        lambda: index.within(other, threshold=0.9),
        lambda: index.project(other),
        lambda: index.calibrate(other),
        lambda: index.check(other, recall=None).null,
    ):
        with pytest.raises(ValueError, match=r"column 0 is 'f01', and was 'f00'; reorder the columns first"):
            call()
    assert len(index) == 700
    assert index.sources == {}
    assert_array_equal(index.search(table[:5], k=2).ids, index.search(values[:5], k=2).ids)  # arrays have no names
    index.add_table(table)
    assert_array_equal(index.get(np.arange(700, 710)).codes.data, index.get(np.arange(10)).codes.data)


def test_other_columns_are_refused(rng):
    frame = FRAMES["pandas"](steep(rng, 700))
    index = some_index("trellis").fit(frame)
    assert index._state.feature_names == NAMES
    with pytest.raises(ValueError, match="column 3 is 'x', and was 'f03'; give a table of the same columns first"):
        index.add(frame.rename(columns={"f03": "x"}))
    with pytest.raises(ValueError, match="it has 31 columns, and had 32"):
        index.add(frame[list(NAMES[:31])])
    index.add(pd.DataFrame(frame.to_numpy()))  # integers are not feature names
    assert len(index) == 700


def test_a_table_after_arrays_gives_the_names(rng):
    values = steep(rng, 700)
    index = some_index("adaptive")
    index.add(values)
    assert index._state.feature_names is None
    frame = FRAMES["pandas"](values)
    index.add(frame)
    with pytest.raises(ValueError, match="columns of earlier tables"):
        index.add(turned(frame))


def test_a_first_table_that_is_refused_leaves_no_names(rng):
    frame = FRAMES["pandas"](steep(rng, 700))
    index = some_index("adaptive")
    with pytest.raises(ValueError, match="got 1 ids for 700 signals"):
        index.add(turned(frame), ids=[1])
    index.add(frame)
    assert index._state.feature_names == NAMES


@pytest.mark.parametrize(
    "encoder", [ts.Encoder(n_bytes=5), ts.Encoder(family="adaptive", n_bits=8)], ids=["trellis", "adaptive"]
)
def test_encoders_refuse_them_too(rng, encoder):
    frame = FRAMES["pandas"](steep(rng, 700))
    encoder.fit(frame)
    encoder.encode(frame)
    for call in (encoder.encode, encoder.project):
        with pytest.raises(ValueError, match="column 0 is 'f01', and was 'f00'"):
            call(turned(frame))


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_files_of_a_folder_must_have_the_same_columns(rng, tmp_path, suffix):
    from typer.testing import CliRunner

    from topsign.cli import app

    pytest.importorskip("pyarrow.csv")
    pytest.importorskip("pyarrow.parquet")
    table = FRAMES["arrow"](steep(rng, 700))
    write = pyarrow.parquet.write_table if suffix == ".parquet" else pyarrow.csv.write_csv
    folder = tmp_path / "both"
    folder.mkdir()
    for name, one in (("a", table), ("b", turned(table))):
        write(one, folder / f"{name}{suffix}")
    with pytest.raises(ValueError, match=rf"b\{suffix} must have the columns of earlier tables"):
        open_files(folder)
    index, run = str(tmp_path / "i.topsign"), CliRunner()
    built = run.invoke(app, ["build", str(folder / f"a{suffix}"), "-o", index, "--family", "trellis", "--n-bytes", "5"])
    assert built.exit_code == 0, built.output
    for command in (["add", index, str(folder / f"b{suffix}")], ["search", index, str(folder / f"b{suffix}")]):
        refused = run.invoke(app, command)
        assert refused.exit_code in (1, 2)
        assert "column 0 is 'f01', and was 'f00'" in " ".join(refused.output.split())
    assert len(ts.open_index(index)) == 700
