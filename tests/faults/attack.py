"""Fuzzing of all file formats: files and states that are damaged, or forged with valid checksums.

    python tests/faults/attack.py [--seconds 60] [--cases 20000] [--seed 0] [--core FILE] [--results FILE]

A case changes a valid file, opens it and uses it. Damaged bytes must raise StorageError or have no effect. Forged
files, whose checksums were recomputed, must raise StorageError or give results. Any other exception, a crash or a wrong
result ends the run. ``--core`` loads the kernels from another library, such as one built with sanitizers.
"""

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from folders import files_of, read_manifest, rewrite, rewrite_recipe

N_FEATURES, N_ENTRIES = 48, 30


def flip(rng, content, low=0):
    """Return the bytes with a few changes: single bits, bytes, or a truncation."""
    damaged = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(min(low, len(damaged) - 1), len(damaged)))
        damaged[at] = damaged[at] ^ (1 << int(rng.integers(8))) if rng.integers(2) else int(rng.integers(256))
    if rng.random() < 0.05:
        del damaged[int(rng.integers(1, len(damaged) + 1)) :]
    return bytes(damaged)


def hostile(rng, array):
    """Return an array of the same type with some or all bytes changed, sometimes with another shape or order."""
    array = np.array(array)
    content = array.reshape(-1).view(np.uint8)
    kind = rng.integers(5)
    if kind == 0:
        content[:] = rng.integers(0, 256, content.shape)
    elif kind == 1:
        content[:] = rng.choice([0, 1, 127, 128, 255])
    elif len(content):
        content[rng.integers(0, len(content), int(rng.integers(1, 9)))] = int(rng.integers(256))
    if kind == 3 and array.ndim:
        array = array[: rng.integers(len(array) + 1)]
    return np.asfortranarray(array) if kind == 4 else array


class Doors:
    """Attacks with one method per file format; each returns "refused" or "answered"."""

    def __init__(self, folder, rng):
        import topsign as ts

        self.ts, self.folder, self.rng = ts, folder, rng
        self.signals = rng.standard_normal((N_ENTRIES, N_FEATURES)).astype(np.float32)
        self.indexes = {}
        for name in ("adaptive", "grouped", "sign", "trellis"):
            self.indexes[name] = self._index(name, folder / f"{name}.topsign")
        self.answers = {name: self._use(path) for name, path in self.indexes.items()}
        with ts.open_index(self.indexes["adaptive"]) as index:
            self.recipe_names = list(index.recipe.to_json())
        encoder = ts.Encoder(self.signals.shape[1], family="adaptive", n_bits=12, random_state=3).fit(self.signals)
        self.codes = encoder.encode(self.signals)
        labels = np.arange(N_ENTRIES) % 5
        coef = np.stack([self.signals[labels == label].mean(axis=0) for label in range(5)])
        self.head = folder / "sound.head"
        ts.CompressedLinearClassifier.from_weights(coef, family="adaptive", n_bits=12, random_state=3).save(self.head)
        self.logits = ts.CompressedLinearClassifier.load(self.head).decision_function(self.signals)

    def _index(self, name, path):
        ts = self.ts
        from topsign.store import folder_store, stored_columns

        stored_columns.INLINE_BYTES = 0 if name == "grouped" else 2**14  # small files are in the manifest, or not
        folder_store.REMOVED_BYTES = 2**20  # two segments, with removed entries
        family = name if name in ("adaptive", "grouped", "sign") else "trellis"
        options = {"adaptive": {"n_bits": 12}, "trellis": {"n_bytes": 4, "basis": "hadamard", "center": False}}
        sizes = options.get(name, {"n_bytes": 4, "metric": "inner_product"})
        with ts.Index(family=family, n_features=N_FEATURES, random_state=3, path=path, **sizes) as index:
            index.add(self.signals[:20], metadata=[{"n": n} for n in range(20)])
            index.add(self.signals[20:])
            index.remove([3, 25])
            index.update_metadata([4], [{"n": "four"}])
        return path

    def _use(self, path):
        """Call all methods that read an index."""
        with self.ts.open_index(path, readonly=True) as index:
            near = index.search(self.signals[:3], k=40)
            scoring = index.recipe.scorings[0]
            others = index.search(self.signals[:3], k=5, scoring=scoring)
            within = index.within(self.signals[:3], threshold=0.2)
            entries = index.get(index.ids)
            data = entries.codes if isinstance(entries.codes, np.ndarray) else entries.codes.data
            return [near.ids, near.scores, others.ids, within.ids, data, np.array(json.dumps(entries.metadata))]

    def _chosen(self):
        return str(self.rng.choice(list(self.indexes)))

    def damaged_index(self):
        name, path = self._chosen(), self.folder / "damaged.topsign"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.indexes[name], path)
        file = path / str(self.rng.choice(files_of(path)))
        original = file.read_bytes()
        file.write_bytes(flip(self.rng, original))
        try:
            found = self._use(path)
        except self.ts.StorageError:
            return "refused"
        with self.ts.open_index(path, readonly=True) as index, contextlib.suppress(self.ts.StorageError):
            index.verify()
            assert file.read_bytes() == original, f"verify finds no damage in {file}"
        pairs = zip(found, self.answers[name], strict=True)
        same = all(np.array_equal(one, other, equal_nan=one.dtype.kind == "f") for one, other in pairs)
        assert same, f"wrong answers of a damaged index {path}"
        return "answered"

    def crafted_index(self):
        """Change a manifest, recipe, header or column and recompute the checksums."""
        path, rng = self.folder / "crafted.topsign", self.rng
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.indexes[self._chosen()], path)
        junk = [None, -1, 0, 1, 2**40, 1.5, "x", [], {}, True, [0, 0], {"file": "0" * 32}, "../x", 2**70]
        kind, n_segments = rng.integers(5), len(read_manifest(path)["segments"])

        def spoil(record):
            record[str(rng.choice(list(record)))] = junk[rng.integers(len(junk))]

        def spoil_some(manifest):
            chosen = [manifest, manifest["recipe"], *manifest["segments"]]
            chosen += [one[name] for one in manifest["segments"] for name in ("removed", "metadata") if name in one]
            spoil(chosen[rng.integers(len(chosen))])

        def spoil_header(header):
            spoil(header if rng.integers(2) else header[str(rng.choice(list(header)))])

        def spoil_column(columns):
            name = str(rng.choice(list(columns)))
            columns[name] = np.ascontiguousarray(hostile(rng, columns[name]))

        if kind == 0:
            rewrite(path, manifest=spoil_some)
        elif kind == 1:
            rewrite_recipe(path, **{str(rng.choice(self.recipe_names)): junk[rng.integers(len(junk))]})
        elif kind == 2:
            rewrite(path, header=spoil_header, segment=int(rng.integers(n_segments)))
        else:
            rewrite(path, spoil_column, segment=int(rng.integers(n_segments)))
        return self._try(lambda: self._use(path))

    def crafted_message(self):
        message = flip(self.rng, self.codes.to_bytes()[:-4], 4)
        message += zlib.crc32(message).to_bytes(4, "little")
        return self._try(lambda: self._read_codes(self.ts.read_codes(message)))

    def hostile_codes(self):
        data = hostile(self.rng, self.codes.data)
        recipe = self.codes.recipe
        return self._try(lambda: self._read_codes(self.ts.AdaptiveCodes(data, recipe=recipe)), ValueError)

    def _read_codes(self, codes):
        return codes.locations, codes.signs, codes.to_bits(), codes.to_bytes()

    def crafted_head(self):
        from topsign.heads import head

        path, rng = self.folder / "crafted.head", self.rng
        record, arrays = head.read_head(self.head)
        name = str(rng.choice([*arrays, "record"]))
        if name == "record":
            record[str(rng.choice(list(record)))] = [None, -1, "x", [], {}][rng.integers(5)]
        else:
            arrays[name] = hostile(rng, arrays[name])
        head.write_head(path, record, arrays)
        return self._try(lambda: self.ts.CompressedLinearClassifier.load(path).predict(self.signals))

    def damaged_head(self):
        path = self.folder / "damaged.head"
        path.write_bytes(flip(self.rng, self.head.read_bytes()))
        try:
            found = self.ts.CompressedLinearClassifier.load(path).decision_function(self.signals)
        except self.ts.StorageError:
            return "refused"
        assert np.array_equal(found, self.logits), "wrong answers of a damaged head"
        return "answered"

    def _try(self, use, *others):
        try:
            use()
        except (self.ts.StorageError, *others):
            return "refused"
        return "answered"


class FileDoors(Doors):
    """Attacks on formats that need pyarrow or torch."""

    def __init__(self, folder, rng):
        super().__init__(folder, rng)
        with self.ts.open_index(self.indexes["adaptive"]) as index:
            for form in ("codes", "bits", "sparse"):
                self.ts.export.write_parquet(folder / f"{form}.parquet", index, form=form)
        self.tables = {form: self._table(folder / f"{form}.parquet") for form in ("codes", "bits", "sparse")}
        np.savez(folder / "sound.npz", signals=self.signals)

        import torch

        from topsign import nn

        torch.manual_seed(0)
        self.torch = torch
        self.layer = nn.compress(torch.nn.Linear(N_FEATURES, 5), family="adaptive", n_bits=12, random_state=3)
        self.state = {name: tensor.clone() for name, tensor in self.layer.state_dict().items()}

    def crafted_state(self):
        """Change a PyTorch state dict that is saved and loaded with weights_only."""
        torch, path = self.torch, self.folder / "crafted.pt"
        state = dict(self.state)
        name = str(self.rng.choice(list(state)))
        state[name] = torch.from_numpy(np.array(hostile(self.rng, state[name].numpy())))
        torch.save(state, path)
        self.layer.load_state_dict(self.state)
        try:
            self.layer.load_state_dict(torch.load(path, weights_only=True))
        except RuntimeError:
            return "refused"
        self.layer(torch.from_numpy(self.signals))
        return "answered"

    def _table(self, path):
        entries = self.ts.export.read_parquet(path).entries
        return entries.ids.tolist(), entries.codes.to_bytes(), entries.metadata

    def damaged_table(self):
        form, path = str(self.rng.choice(list(self.tables))), self.folder / "damaged.parquet"
        path.write_bytes(flip(self.rng, (self.folder / f"{form}.parquet").read_bytes()))
        try:
            found = self._table(path)
        except self.ts.StorageError:
            return "refused"
        assert found == self.tables[form], "wrong values of a damaged table"
        return "answered"

    def damaged_npz(self):
        from topsign.signals import Place, open_file

        path = self.folder / "damaged.npz"
        path.write_bytes(flip(self.rng, (self.folder / "sound.npz").read_bytes()))
        try:
            rows = open_file(Place.at(path)).rows()
            found = np.asarray(rows[0 : rows.shape[0]])
        except self.ts.StorageError:
            return "refused"
        assert np.array_equal(found, self.signals), "wrong values of a damaged archive"
        return "answered"


CHEAP = ["crafted_message", "hostile_codes", "crafted_head", "damaged_head", "damaged_index", "crafted_index"]
FILES = ["damaged_table", "damaged_npz", "crafted_state"]


def attack(seconds, seed, *, files=True, cases=None):
    """Run all attacks in turn until the time or the number of cases is reached; return counts by format and outcome."""
    counts = Counter()
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        doors = (FileDoors if files else Doors)(Path(folder), rng)
        names = CHEAP + FILES * files
        end = time.monotonic() + seconds
        while time.monotonic() < end and (cases is None or counts.total() < cases):
            for name in names:
                for _ in range(8 if name in CHEAP[:3] else 1):
                    counts[name, getattr(doors, name)()] += 1
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--cases", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--core", help="library of kernels")
    parser.add_argument("--results", help="a JSON file for the counts")
    options = parser.parse_args()
    if options.core:
        from topsign.kernels import native

        native.library_file = lambda: Path(options.core)
    start = time.monotonic()
    counts = attack(options.seconds, options.seed, files=not options.core, cases=options.cases)
    taken = time.monotonic() - start
    doors = sorted({door for door, _ in counts})
    found = {door: {what: counts[door, what] for what in ("refused", "answered")} for door in doors}
    for door, outcome in found.items():
        print(f"{door:18s} {outcome['refused']:8,d} refused {outcome['answered']:8,d} answered")
    print(f"{counts.total():,} cases: no crash, no wrong answer, no other exception")
    if options.results:
        sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
        from shared.results import save, table

        rows = [[door, outcome["refused"], outcome["answered"]] for door, outcome in found.items()]
        options.json = options.results
        shown = table("Damaged and crafted files", ["door", "refused", "answered"], rows, f"{taken:.0f} seconds.")
        save(options, [shown])


if __name__ == "__main__":
    main()
