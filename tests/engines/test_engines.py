"""Third-party engines return the same ids and mismatches as the library."""

import numpy as np
import pytest

import topsign as ts


def test_faiss(problem):
    import faiss

    engine = ts.export.FaissBinary.of(problem.codes)
    index = faiss.IndexBinaryIDMap(faiss.IndexBinaryFlat(engine.dimension))
    index.add_with_ids(engine.entries(problem.codes), problem.ids)
    distances, ids = index.search(engine.queries(problem.projected), len(problem.ids))
    problem.check(engine, ids, distances)
    with pytest.raises(ValueError, match="cannot be; were entries and queries"):  # padding of FAISS
        engine.mismatches(index.search(engine.queries(problem.projected), len(problem.ids) + 1)[0])


def test_usearch(problem):
    from usearch.index import Index

    engine = ts.export.USearchBits.of(problem.codes)
    index = Index(ndim=engine.dimension, metric="hamming", dtype="b1")
    index.add(problem.ids, engine.entries(problem.codes))
    matches = index.search(engine.queries(problem.projected), len(problem.ids), exact=True)
    problem.check(engine, matches.keys.astype(np.int64), matches.distances)


def test_lancedb(problem, tmp_path):
    import lancedb
    import pyarrow as arrow

    engine = ts.export.LanceBinary.of(problem.codes)
    table = lancedb.connect(tmp_path).create_table(
        "codes", arrow.table({"id": problem.ids, "code": engine.entries(problem.codes)})
    )
    answers = []
    for query in engine.queries(problem.projected):
        found = table.search(query, vector_column_name="code").distance_type("hamming").limit(len(problem.ids))
        answers.append(found.select(["id", "_distance"]).to_arrow())
    ids, distances = ([answer.column(name).to_numpy() for answer in answers] for name in ("id", "_distance"))
    problem.check(engine, ids, distances)


def test_duckdb(problem):
    import duckdb

    engine = ts.export.DuckDBBits.of(problem.codes)
    with duckdb.connect() as database:
        database.execute("CREATE TABLE codes (id BIGINT, code BIT)")
        database.executemany(
            "INSERT INTO codes VALUES (?, ?::BIT)",
            list(zip(problem.ids.tolist(), engine.entries(problem.codes), strict=True)),
        )
        for row, query in enumerate(engine.queries(problem.projected)):
            found = database.execute(
                "SELECT id, bit_count(xor(code, ?::BIT)) AS distance FROM codes ORDER BY distance, id LIMIT ?",
                [query, problem.k],
            ).fetchnumpy()
            np.testing.assert_array_equal(found["id"], problem.expected_ids[row])
            np.testing.assert_array_equal(engine.mismatches(found["distance"]), problem.expected[row])


def test_qdrant(problem, tmp_path):
    import qdrant_edge as qdrant

    engine = ts.export.QdrantSparse.of(problem.codes)
    config = qdrant.EdgeConfig(sparse_vectors={"code": qdrant.EdgeSparseVectorParams()})
    shard = qdrant.EdgeShard.create(str(tmp_path), config)
    points = [
        qdrant.Point(int(id), {"code": qdrant.SparseVector(**vector)}, {})
        for id, vector in zip(problem.ids, engine.entries(problem.codes), strict=True)
    ]
    shard.update(qdrant.UpdateOperation.upsert_points(points))
    ids, scores = [], []
    for vector in engine.queries(problem.projected):
        query = qdrant.Query.Nearest(qdrant.SparseVector(**vector), using="code")
        found = shard.query(qdrant.QueryRequest(query=query, limit=len(problem.ids)))
        answered = {point.id: point.score for point in found}
        assert 0 not in answered.values(), (
            "Qdrant leaves out entries whose product is zero, half of the signs differing"
        )
        ids.append(problem.ids)
        scores.append([answered.get(id, 0) for id in problem.ids.tolist()])
    problem.check(engine, ids, scores)


@pytest.fixture(scope="module")
def postgres(postgres_settings):
    import psycopg

    options = {name.removeprefix("PG").lower(): value for name, value in postgres_settings.items()}
    options["dbname"] = options.pop("database")
    with psycopg.connect(**options, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        yield connection


@pytest.mark.parametrize(
    ("adapter", "operator"),
    [(ts.export.PgvectorBits, "<~>"), (ts.export.PgvectorSparse, "<#>")],
    ids=["bit", "sparsevec"],
)
def test_pgvector(problem, postgres, adapter, operator):
    engine = adapter.of(problem.codes)
    postgres.execute("DROP TABLE IF EXISTS codes")
    postgres.execute(f"CREATE TABLE codes (id bigint PRIMARY KEY, code {engine.column})")
    with postgres.cursor().copy("COPY codes FROM STDIN") as copy:
        for row in zip(problem.ids.tolist(), engine.entries(problem.codes), strict=True):
            copy.write_row(row)
    sql = f"SELECT id, code {operator} %s::{engine.column} AS answer FROM codes ORDER BY answer, id LIMIT %s"
    for row, query in enumerate(engine.queries(problem.projected)):
        found = np.array(postgres.execute(sql, [query, problem.k]).fetchall(), float)
        np.testing.assert_array_equal(found[:, 0], problem.expected_ids[row])
        np.testing.assert_array_equal(engine.mismatches(found[:, 1]), problem.expected[row])


def test_scipy(problem):
    engine = ts.export.ScipySparse.of(problem.codes)
    products = engine.entries(problem.codes) @ engine.queries(problem.projected).T
    problem.check(engine, np.tile(problem.ids, (5, 1)), products.T)
