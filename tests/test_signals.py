"""Signal files: every format gives the same rows on local and other file systems, and errors name the problem."""

import pickle
import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_array_equal

import topsign as ts
from topsign._rows import SparseRows
from topsign.signals import FilesRows, Place, open_file, open_files

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

N_FEATURES = 6


@pytest.fixture
def signals(rng):
    return rng.standard_normal((50, N_FEATURES)).astype(np.float32)


def write_all(folder, signals):
    """Write the same signals in every format, each with the name of its array."""
    np.save(folder / "a.npy", signals)
    np.savez(folder / "stored.npz", x=signals)
    np.savez_compressed(folder / "packed.npz", x=signals, y=signals[:3])
    cells = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(signals.ravel()), N_FEATURES)
    table = pyarrow.table({"row": range(len(signals)), "x": cells, "lists": signals.tolist()})
    parquet.write_table(table, folder / "t.parquet", row_group_size=17)
    forms = [("a.npy", None), ("stored.npz", None), ("packed.npz", "x"), ("t.parquet", "x"), ("t.parquet", "lists")]
    save_file = pytest.importorskip("safetensors.numpy").save_file
    save_file({"x": signals, "y": signals[:2]}, folder / "s.safetensors")
    return [*forms, ("s.safetensors", "x")]


def test_every_form_gives_the_same_rows_anywhere(tmp_path, signals):
    fsspec = pytest.importorskip("fsspec")
    forms = write_all(tmp_path, signals)
    memory = fsspec.filesystem("memory")
    for path in tmp_path.iterdir():
        memory.pipe_file(f"/signals/{path.name}", path.read_bytes())
    try:
        for root in (str(tmp_path), f"file://{tmp_path}", "memory://signals"):
            for name, array in forms:
                file = pickle.loads(pickle.dumps(open_file(Place.at(f"{root}/{name}"), array)))
                assert (file.n_signals, file.n_features) == (50, N_FEATURES)
                rows = file.rows()
                assert (len(rows), rows.shape) == (50, signals.shape)
                for part in (slice(0, 7), slice(30, 50), slice(3, 4), slice(50, 50)):
                    assert_array_equal(np.asarray(rows[part], np.float32), signals[part], err_msg=name)
                assert_array_equal(np.asarray(rows, np.float32), signals)
                index = ts.Index(N_FEATURES, family="adaptive", n_bits=3, random_state=1)
                assert index.add(rows, rows=slice(10, 20)).tolist() == list(range(10))
                assert_array_equal(index.search(file.rows(), k=1).ids, index.search(signals, k=1).ids)
        assert len(open_files("memory://signals/a.npy")) == 1
    finally:
        memory.rm("/signals", recursive=True)


def test_the_identity_of_a_file_is_its_shape_type_and_ends(tmp_path, signals):
    identities = [
        open_file(Place.at(tmp_path / name), array).identity() for name, array in write_all(tmp_path, signals)
    ]
    assert len({one["crc32"] for one in identities[:4]}) == 1
    np.save(tmp_path / "a.npy", signals[::-1])
    assert open_file(Place.at(tmp_path / "a.npy")).identity()["crc32"] != identities[0]["crc32"]


def test_lists_of_different_lengths_are_refused_and_not_reshaped(tmp_path):
    lengths = [3, 5, 4, 4]  # 16 values in four rows would fit a matrix of four columns
    parquet.write_table(pyarrow.table({"x": [[1.0] * n for n in lengths]}), tmp_path / "ragged.parquet")
    with pytest.raises(ts.StorageError, match="column x: signals differ in length: row 1 has 5, row 0 has 3"):
        open_files(tmp_path / "ragged.parquet")
    table = pyarrow.table({"x": [[1.0, 2.0]] * 1500 + [[1.0, 2.0, 3.0]] * 1024})
    parquet.write_table(table, tmp_path / "late.parquet")
    (file,) = open_files(tmp_path / "late.parquet")
    with pytest.raises(ts.StorageError, match="signals differ in length: row 1500 has 3, row 1024 has 2"):
        file.rows()[0:2000]


def test_every_so_many_rows_are_those_of_an_array(tmp_path, rng):
    """Files have several lengths; single rows are found in the last slice, as error messages need them."""
    whole = rng.standard_normal((23, 4)).astype(np.float32)
    for number, part in enumerate(np.split(whole, [7, 8, 20])):
        np.save(tmp_path / f"{number}.npy", part)
    for rows in (FilesRows(open_files(str(tmp_path))), SparseRows(scipy.sparse.csr_array(whole))):
        for step in (1, 2, 3, 9, 30):
            for start, stop in ((0, 23), (2, 19), (8, 9), (21, 30), (5, 5)):
                wanted = slice(start, stop, step)
                assert_array_equal(rows[wanted], whole[wanted])
                for row in range(*wanted.indices(23)):
                    assert_array_equal(rows[row], whole[row])


def test_errors_name_the_row_of_the_file(tmp_path, signals):
    signals[33, 2] = np.nan
    np.savez_compressed(tmp_path / "packed.npz", x=signals)
    (file,) = open_files(tmp_path)
    index = ts.Index(N_FEATURES, family="adaptive", n_bits=3, random_state=1)
    with pytest.raises(ValueError, match="NaN or infinity in signals, first at row 33, column 2"):
        index.add(file.rows(), rows=slice(30, 50))
    assert len(index) == 0


@pytest.mark.parametrize(
    ("name", "content", "array", "error", "words"),
    [
        ("x.txt", b"1 2 3", None, ValueError, "x.txt must be one of .npy, .npz, .parquet, .safetensors"),
        ("x.npy", b"nothing", None, ts.StorageError, "x.npy, signals: "),
        ("x.npy", b"", None, ts.StorageError, r"empty: it has no bytes; write it with numpy\.save"),
        ("x.npz", b"nothing", None, ts.StorageError, "x.npz, signals: File is not a zip file"),
        ("x.parquet", b"PAR1 nothing", None, ts.StorageError, "x.parquet, signals: "),
        ("x.safetensors", b"\xff" * 20, None, ts.StorageError, "x.safetensors, header: not a safetensors file"),
        ("x.safetensors", b"123", None, ts.StorageError, "x.safetensors, header: "),
    ],
)
def test_foreign_files_are_named(tmp_path, name, content, array, error, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=words):
        open_files(tmp_path / name, array)


def test_an_ambiguous_array_is_refused(tmp_path, signals):
    write_all(tmp_path, signals)
    with pytest.raises(ValueError, match=r"packed.npz has 2 arrays \(x, y\); choose one with vector_column"):
        open_files(tmp_path / "packed.npz")
    with pytest.raises(ValueError, match=r"t.parquet: column 'row' holds int64, not lists of numbers; it has row"):
        open_files(tmp_path / "t.parquet", "row")
    with pytest.raises(ValueError, match=r"a.npy has only one array"):
        open_files(tmp_path / "a.npy", "x")
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        open_files(tmp_path / "nowhere")
    np.save(tmp_path / "cube.npy", signals[None])
    with pytest.raises(ts.StorageError, match=r"cube.npy, signals: must hold one matrix .* got shape \(1, 50, 6\)"):
        open_files(tmp_path / "cube.npy")
    np.save(tmp_path / "flat.npy", signals[0])
    assert open_files(tmp_path / "flat.npy")[0].rows().shape == (1, N_FEATURES)
    np.save(tmp_path / "words.npy", np.array([["a"]]))
    with pytest.raises(ts.StorageError, match=r"words.npy, signals: signals must be real numbers"):
        open_files(tmp_path / "words.npy")
    content = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "short.npy").write_bytes(content[:-100])
    with pytest.raises(ts.StorageError, match=r"short.npy, signals: "):
        open_files(tmp_path / "short.npy")[0].rows()


def test_tables_of_columns_and_other_files(tmp_path, signals):
    names = [f"f{i}" for i in range(N_FEATURES)]
    wide = pyarrow.table(
        {"doc": [f"d{i}" for i in range(50)], "year": range(50)} | dict(zip(names, signals.T, strict=True))
    )
    parquet.write_table(wide, tmp_path / "wide.parquet", row_group_size=13)
    pytest.importorskip("pyarrow.feather").write_feather(wide, tmp_path / "wide.arrow")
    pytest.importorskip("pyarrow.csv").write_csv(wide, tmp_path / "wide.csv")
    for name in ("wide.parquet", "wide.arrow", "wide.csv"):
        (file,) = open_files(tmp_path / name, aside=("doc", "year"))
        np.testing.assert_allclose(np.asarray(file.rows()), signals, rtol=1e-6)
        assert file.columns(["doc"])["doc"].to_pylist()[7] == "d7"
        with pytest.raises(ValueError, match="has no column 'title'; it has doc, year"):
            open_files(tmp_path / name, aside=("title",))
        with pytest.raises(ValueError, match="column 'year' holds int64, not lists"):
            open_files(tmp_path / name, "year")
    parquet.write_table(wide.select(["doc", "year"]), tmp_path / "none.parquet")
    with pytest.raises(
        ValueError, match=r"1 numeric columns to take as features; it has doc \(string\), year \(int64\)"
    ):
        open_files(tmp_path / "none.parquet")
    rows = np.hstack([np.full((50, 1), N_FEATURES, np.int32).view(np.float32), signals])
    (tmp_path / "x.fvecs").write_bytes(rows.tobytes())
    assert_array_equal(open_files(tmp_path / "x.fvecs")[0].rows()[3:9], signals[3:9])
    whole = np.abs(signals * 50).astype(np.uint8)
    widths = np.tile(np.array([N_FEATURES], "<i4").view(np.uint8), (50, 1))
    (tmp_path / "x.bvecs").write_bytes(np.hstack([widths, whole]).tobytes())
    assert_array_equal(open_files(tmp_path / "x.bvecs")[0].rows()[3:9], whole[3:9])
    (tmp_path / "y.fvecs").write_bytes(rows.tobytes()[:-5])
    with pytest.raises(ts.StorageError, match="not rows of 6 values each"):
        open_files(tmp_path / "y.fvecs")
    import scipy.sparse

    scipy.sparse.save_npz(tmp_path / "s.npz", scipy.sparse.csr_matrix(signals))
    assert_array_equal(open_files(tmp_path / "s.npz")[0].rows()[5:8], signals[5:8])


def test_frames_are_tables(signals):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"doc": [f"d{i}" for i in range(50)], "vector": list(signals), "year": range(50)})
    frame.loc[3, "year"] = None
    index = ts.Index(N_FEATURES, family="adaptive", n_bits=3, random_state=1)
    ids = index.add_table(frame, id_column="doc", vector_column="vector", metadata_columns=["year"])
    assert ids.tolist() == [f"d{i}" for i in range(50)]
    plain = ts.Index(N_FEATURES, family="adaptive", n_bits=3, random_state=1)
    plain.add(signals)
    assert index.get(ids).codes == plain.get(range(50)).codes
    assert [index[name].metadata for name in ("d3", "d4")] == [None, {"year": 4.0}]
    index.add_table(pyarrow.Table.from_pandas(frame[:2]), id_column="doc", metadata_columns=["year"], upsert=True)
    assert len(index) == 50
    wide = pandas.DataFrame(signals, columns=[f"f{i}" for i in range(N_FEATURES)])
    assert plain.add_table(wide).tolist() == list(range(50, 100))
    assert plain.add(wide).tolist() == list(range(100, 150))
    with pytest.raises(ValueError, match="upsert needs id_column"):
        plain.add_table(wide, upsert=True)
    with pytest.raises(TypeError, match="table must be a pandas or Polars frame or an Arrow table, got int"):
        plain.add_table(7)


def test_polars_frames_are_tables(signals):
    polars = pytest.importorskip("polars")
    texts, fixed = [f"d{i}" for i in range(50)], polars.Array(polars.Float32, N_FEATURES)
    for kind in (fixed, polars.List(polars.Float64)):
        vectors = polars.Series(signals.tolist()).cast(kind)
        frame = polars.DataFrame({"doc": texts, "vector": vectors, "year": range(50)})
        index = ts.Index(N_FEATURES, family="adaptive", n_bits=3, random_state=1)
        index.add_table(frame, id_column="doc", metadata_columns=["year"])
        plain = ts.Index(N_FEATURES, family="adaptive", n_bits=3, random_state=1)
        plain.add(signals)
        assert index.get(texts).codes == plain.get(range(50)).codes
        found = index.search(signals[[7]], 1, where="year >= 5", with_metadata=True).to_polars()
        assert found.select("id", "metadata").row(0) == ("d7", '{"year": 7}')
    wide = polars.DataFrame({f"f{i}": signals[:, i] for i in range(N_FEATURES)})
    assert plain.add_table(wide).tolist() == list(range(50, 100))
    assert plain.add(wide).tolist() == list(range(100, 150))


def test_a_row_group_is_not_held_while_its_signals_are_read(tmp_path, rng):
    """Parquet pages are read through a buffer, so memory does not grow with the row groups of a file."""
    signals = rng.standard_normal((10_000, 256)).astype(np.float32)
    parquet.write_table(pyarrow.table({"vector": list(signals)}), tmp_path / "a.parquet", row_group_size=10_000)
    rows = open_file(Place.at(tmp_path / "a.parquet")).rows()
    tracemalloc.start()
    try:
        assert_array_equal(rows[9000:9010], signals[9000:9010])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < signals.nbytes / 2
