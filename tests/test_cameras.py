"""Cameras: residuals and fingerprints compared with plain definitions, the database, scenes, calibration, reports."""

import csv
import hashlib
import importlib
import itertools
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import camera_reference
import camera_reports
import numpy as np
import pytest
import scipy.stats
from camera_reports import HEIGHT, SIZE, WIDTH, scene
from folders import files_of
from PIL import Image
from typer.testing import CliRunner

import topsign
from topsign import StorageError, cameras
from topsign.cameras.alignment import PER_STEP, FrameSpectrum, n_trials, on_sensor, trial_scales
from topsign.cameras.calibration import CameraCalibration, LikelihoodRatios, normality_p_value
from topsign.cameras.enrolment import find_outliers
from topsign.cameras.fingerprint import filter_spectrum, pixel_weights, remove_linear_pattern
from topsign.cli import app
from topsign.significance.likelihood_ratios import verbal_equivalent
from topsign.store.versions import UnknownOutcomeError

STRENGTH = 0.05
NOTHING_KEPT = {"keep_names": False, "keep_hashes": False, "keep_exif": False}


def shot(rng, pattern):
    """Image of a sensor with this pattern, as 8-bit pixels."""
    seen = scene(rng, *pattern.shape)[:, :, np.newaxis] * np.array([1, 0.95, 0.85]) * (1 + pattern[:, :, np.newaxis])
    return np.clip(seen + rng.standard_normal(seen.shape), 0, 255).astype(np.uint8)


def pattern(seed, height=HEIGHT, width=WIDTH):
    return STRENGTH * np.random.default_rng(seed).standard_normal((height, width))


def made_in(folder, name="s.topsign"):
    return cameras.CameraDatabase(folder / name, size=SIZE, n_bits=1024)


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """Files by camera: seven photographs of each of three cameras, and twelve photographs of others."""
    folder, rng = tmp_path_factory.mktemp("photographs"), np.random.default_rng(5)
    files = {}
    for camera in (*"abc", "others"):
        files[camera] = []
        for number in range(12 if camera == "others" else 7):
            own = pattern(100 + number if camera == "others" else ord(camera))
            path = folder / f"{camera}{number}.jpg"
            exif = Image.Exif()
            exif[0x010F], exif[0x0110], exif[0x0112] = "Maker", f"Model {camera}", 6
            exif[0x0110] = "MAKER Model b" if camera == "b" else exif[0x0110]  # as some cameras write it
            Image.fromarray(shot(rng, own)).save(path, quality=92, exif=exif)
            files[camera].append(path)
    return files


@pytest.fixture(scope="module")
def enrolled(photographs, tmp_path_factory):
    """A calibrated database of the three cameras, six photographs each."""
    database = made_in(tmp_path_factory.mktemp("database"))
    for camera in "abc":
        done = cameras.enroll(database, camera, photographs[camera][:6])
        assert (done.n_enrolled, done.refused) == (6, [])
    learned, refused = cameras.calibrate(database, photographs["others"])
    assert (len(learned.impostors), len(learned.matches), refused) == (36, 18, [])
    return database


# Steps of the pipeline, compared with plain definitions


def test_residuals_are_those_of_the_reference(rng):
    pixels = shot(rng, pattern(1, 64, 64)).astype(np.float32)
    pixels[:8, :8] = 255
    pixels[20:30, 20:30] = 3
    found = cameras.extract_residual(pixels)
    noise, intensity = camera_reference.residual(pixels.astype(np.float64))
    np.testing.assert_allclose(found.noise, noise, atol=2e-4)  # float32 compared with float64
    np.testing.assert_allclose(found.intensity, intensity, rtol=1e-5, atol=1e-4)
    assert found.n_usable == np.count_nonzero(intensity) < 64 * 64
    np.testing.assert_allclose(cameras.denoise(pixels[:, :, 0]), camera_reference.denoise(pixels[:, :, 0]), atol=1e-3)


def test_linear_patterns_and_peaks_of_the_spectrum_are_removed(rng):
    noise = rng.standard_normal((64, 64))
    stripes = noise + 3 * rng.standard_normal(64) + 2 * rng.standard_normal((64, 1))
    cleaned = remove_linear_pattern(stripes)
    np.testing.assert_allclose(cleaned, camera_reference.remove_linear_pattern(stripes), atol=1e-5)
    assert np.corrcoef(cleaned.ravel(), noise.ravel())[0, 1] > 0.95
    grid = noise + 4 * np.cos(2 * np.pi * np.arange(64) / 8)
    flat = filter_spectrum(grid)
    np.testing.assert_allclose(flat, camera_reference.filter_spectrum(grid), atol=1e-4)
    assert abs(np.fft.fft2(flat)[0, 8]) < 0.2 * abs(np.fft.fft2(grid)[0, 8])


def test_fingerprints_are_those_of_the_reference_and_can_be_updated(rng):
    readings = [cameras.extract_residual(shot(rng, pattern(1, 64, 64))) for _ in range(4)]
    whole = cameras.FingerprintSums.of(readings)
    expected = camera_reference.fingerprint([(one.noise, one.intensity) for one in readings])
    np.testing.assert_allclose(whole.fingerprint(), expected, atol=1e-5)
    parts = [cameras.FingerprintSums.of(part) for part in (readings[:1], readings[1:])]
    np.testing.assert_allclose((parts[0] + parts[1]).fingerprint(), whole.fingerprint(), atol=1e-6)
    np.testing.assert_allclose(whole.without(readings[0]).fingerprint(), parts[1].fingerprint(), atol=1e-5)
    assert whole.without(readings[0]).n_photographs == 3


def test_peak_to_correlation_energy_is_that_of_the_reference(rng):
    own = rng.standard_normal((24, 20))
    for noise in (own + rng.standard_normal((24, 20)), rng.standard_normal((24, 20)), -own):
        expected = camera_reference.peak_to_correlation_energy(noise, own)
        assert cameras.peak_to_correlation_energy(noise, own) == pytest.approx(expected, rel=1e-9)
    assert cameras.peak_to_correlation_energy(np.zeros((24, 20)), own) == 0
    with pytest.raises(ValueError, match="more than 11 pixels a side"):
        cameras.peak_to_correlation_energy(own[:, :11], own[:, :11])


def test_saturated_and_dark_flat_pixels_have_no_weight(rng):
    pixels = 120 + rng.standard_normal((64, 64, 3)).astype(np.float32)
    pixels[:16], pixels[48:] = 255, 2
    weights = pixel_weights(pixels)
    assert not weights[:16].any()
    assert weights[16:47].all()
    assert not weights[49:].any()
    pixels[:] = 255
    with pytest.raises(ValueError, match=r"has 0 usable pixels of 4,096 .* at least 1,024 are needed"):
        cameras.extract_residual(pixels)


def test_the_normality_test_equals_that_of_scipy():
    rng = np.random.default_rng(3)
    normal = np.array([normality_p_value(rng.standard_normal(50)) for _ in range(400)])
    assert abs(np.mean(normal < 0.05) - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 400)
    assert normality_p_value(rng.standard_t(2, size=300)) < 0.01
    values = rng.gamma(4, size=40)
    simulated = scipy.stats.goodness_of_fit(scipy.stats.norm, values, statistic="ad", n_mc_samples=400, rng=rng)
    assert normality_p_value(values) == pytest.approx(simulated.pvalue, abs=0.05)


def test_the_orientation_of_exif_is_not_applied(photographs):
    found = cameras.read_photograph(photographs["a"][0], size=SIZE)
    assert found.exif == {"model": "Maker Model a", "orientation": "6"}
    assert (found.width, found.height) == (WIDTH, HEIGHT)
    assert cameras.read_photograph(photographs["b"][0], size=SIZE).exif["model"] == "MAKER Model b"


# The database


def test_photographs_find_their_cameras(enrolled, photographs):
    for camera in "abc":
        found = cameras.identify(enrolled, photographs[camera][6])
        best = found.candidates[0]
        assert (best.camera, found.is_match, best.orientation) == (camera, True, "as stored")
        # three cameras; turned by 90 degrees the frame would not fit
        assert best.e_value == pytest.approx(best.p_value * 3 * 4, rel=1e-9)
        assert best.e_value < 1e-6
        assert best.pce > 60 > found.candidates[1].pce
        assert (best.words, found.result) == ("moderate support for the same source", "match")
        assert found.orientations == ["as stored"]
    assert "matches 'c'" in found.conclusion()


def test_photographs_of_other_cameras_match_none(enrolled, photographs, tmp_path):
    rng = np.random.default_rng(77)
    Image.fromarray(shot(rng, pattern(500))).save(tmp_path / "new.jpg", quality=92)
    found = cameras.identify(enrolled, tmp_path / "new.jpg")
    assert not found.is_match
    assert len(found.orientations) == 4
    assert found.conclusion().startswith("No match at a false-alarm rate of 1e-06 over 3 cameras in 4 orientations")


@pytest.mark.parametrize("orientation", ["rotated by 90 degrees", "mirrored", "mirrored, rotated by 180 degrees"])
def test_turned_photographs_are_found(enrolled, photographs, orientation, tmp_path):
    turns, mirrored = cameras.ORIENTATIONS[orientation]
    pixels = np.asarray(Image.open(photographs["b"][6]))
    turned = np.rot90(pixels, -turns)
    Image.fromarray(np.ascontiguousarray(turned[:, ::-1] if mirrored else turned)).save(tmp_path / "turned.png")
    best = cameras.identify(enrolled, tmp_path / "turned.png").candidates[0]
    assert (best.camera, best.orientation) == ("b", orientation)


def test_other_sizes_are_refused_with_what_is_needed(enrolled, tmp_path, rng):
    Image.fromarray(shot(rng, pattern(1, 200, 300))).save(tmp_path / "large.png")
    with pytest.raises(
        cameras.PhotographError, match=r"300 x 200 pixels, .*sizes enrolled: 150 x 141\); use the photo"
    ):
        cameras.identify(enrolled, tmp_path / "large.png")
    with pytest.raises(ValueError, match="the photographs of this camera have 150 x 141"):
        cameras.enroll(enrolled, "a", [tmp_path / "large.png"])


def test_the_same_photograph_twice_is_refused(enrolled, photographs, tmp_path):
    again = tmp_path / "again.jpg"
    again.write_bytes(photographs["a"][0].read_bytes())
    with pytest.raises(ValueError, match=r"again\.jpg: is enrolled already, as a photograph of 'a'"):
        cameras.enroll(enrolled, "b", [again])
    database = made_in(tmp_path)
    done = cameras.enroll(database, "a", [again, photographs["a"][0], photographs["a"][1]])
    assert done.n_enrolled == 2
    assert [one.problem for one in done.refused] == [f"is the same photograph as {again}"]


def test_wrong_files_of_a_folder_are_named_and_left_out(photographs, tmp_path):
    (tmp_path / "torn.jpg").write_bytes(b"\xff\xd8\xff")
    database = made_in(tmp_path)
    files = [*photographs["a"][:5], tmp_path / "torn.jpg", photographs["b"][0]]
    done = cameras.enroll(database, "a", files)
    assert done.n_enrolled == 5
    assert [one.path for one in done.refused] == [str(tmp_path / "torn.jpg"), str(photographs["b"][0])]
    assert "does not fit the other photographs" in done.refused[1].problem
    only_right = made_in(tmp_path, "t.topsign")
    cameras.enroll(only_right, "a", photographs["a"][:5])
    np.testing.assert_allclose(database.fingerprint("a"), only_right.fingerprint("a"), atol=2e-4)
    assert find_outliers(np.array([0.2, 0.21, 0.001]), size=SIZE) == [2]
    assert find_outliers(np.array([0.2, 0.21, 0.1]), size=SIZE) == []


def test_later_photographs_update_the_fingerprint(photographs, tmp_path):
    at_once, first = (cameras.CameraDatabase(tmp_path / name, size=SIZE, n_bits=1024) for name in ("s", "t"))
    cameras.enroll(at_once, "a", photographs["a"][:6])
    cameras.enroll(first, "a", photographs["a"][:4])
    later = cameras.CameraDatabase(tmp_path / "t")
    cameras.enroll(later, "a", photographs["a"][4:6])
    np.testing.assert_allclose(later.fingerprint("a"), at_once.fingerprint("a"), atol=2e-4)  # float16
    assert len(later.camera("a").photographs) == 6
    assert later.verify() == []
    assert len([*later.sums_folder.glob("*.safetensors")]) == 1
    cameras.enroll(later, "b", photographs["b"][:2], keep_sums=False, **NOTHING_KEPT)
    assert later.camera("b").photographs[0].keys() == {"bytes", "width", "height"}
    with pytest.raises(ValueError, match="sums of 'b' are not stored"):
        cameras.enroll(later, "b", photographs["b"][2:4])


def test_enrolment_is_atomic(photographs, tmp_path, monkeypatch):
    database = made_in(tmp_path)
    cameras.enroll(database, "a", photographs["a"][:4])
    before = database.fingerprint("a"), sorted(database.sums_folder.iterdir())

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(type(database.index), "upsert", fail)
    with pytest.raises(OSError, match="disk full"):
        cameras.enroll(database, "a", photographs["a"][4:])
    after = cameras.CameraDatabase(tmp_path / "s.topsign")
    np.testing.assert_array_equal(after.fingerprint("a"), before[0])
    assert sorted(after.sums_folder.iterdir()) == before[1]
    assert after.verify() == []


def test_damaged_sums_and_foreign_indexes_are_refused(enrolled, photographs, tmp_path, rng):
    database = made_in(tmp_path)
    cameras.enroll(database, "a", photographs["a"][:2])
    (file,) = database.sums_folder.glob("*.safetensors")
    content = bytearray(file.read_bytes())
    for damaged in (bytes(content[:-1]) + b"\x01", bytes(content[:-4]), b"", b"\xff" * len(content)):
        file.write_bytes(damaged)
        with pytest.raises(StorageError, match="sums: cannot be read"):
            database.verify()
    topsign.Index(64, family="adaptive", n_bits=8, path=tmp_path / "x.topsign").add(rng.standard_normal((2, 64)))
    with pytest.raises(StorageError, match="not a camera database"):
        cameras.CameraDatabase(tmp_path / "x.topsign")
    with pytest.raises(ValueError, match=r"size of .* is 128, got size=256"):
        cameras.CameraDatabase(tmp_path / "s.topsign", size=256)


@pytest.mark.skipif(os.name == "nt", reason="needs links")
@pytest.mark.parametrize("linked", ["folder", "lock"])
def test_nothing_beside_a_database_is_written_or_deleted_through_a_link(photographs, tmp_path, linked):
    """An archive can contain links to folders of the user who unpacks it."""
    database, outside = made_in(tmp_path), tmp_path / "outside"
    cameras.enroll(database, "a", photographs["a"][:2])
    link = database.sums_folder if linked == "folder" else database.sums_folder / "lock"
    link.rename(outside)
    link.symlink_to(outside)
    before = files_of(tmp_path)
    with pytest.raises(StorageError, match=rf"{link.name} is a link, and nothing is written or deleted through links"):
        cameras.enroll(database, "a", photographs["a"][2:4])
    with pytest.raises(StorageError, match="is a link"):
        database.remove("a")
    assert files_of(tmp_path) == before


def test_an_entry_names_no_files_but_sums(photographs, tmp_path):
    """Removing a camera deletes its sums, so a forged entry must not name other files."""
    database = made_in(tmp_path)
    cameras.enroll(database, "a", photographs["a"][:2])
    for name in ("lock", "..", "thesis.tex", f"{'0' * 63}.safetensors"):
        (note,) = database.index.get(["a"]).metadata
        database.index.update_metadata(["a"], [note | {"sums": name}])
        with pytest.raises(StorageError, match="names of files are malformed"):
            database.remove("a")


@pytest.mark.parametrize("error", [UnknownOutcomeError("s.topsign", "versions", "unknown"), KeyboardInterrupt()])
def test_sums_of_an_enrolment_that_may_be_stored_are_kept(photographs, tmp_path, monkeypatch, error):
    database = made_in(tmp_path)
    cameras.enroll(database, "a", photographs["a"][:4])
    plain = type(database.index).upsert

    def store_and_fail(*arguments, **options):
        plain(*arguments, **options)
        raise error

    monkeypatch.setattr(type(database.index), "upsert", store_and_fail)
    with pytest.raises(type(error)):
        cameras.enroll(database, "a", photographs["a"][4:])
    after = cameras.CameraDatabase(tmp_path / "s.topsign")
    assert len(after.camera("a").photographs) == 7
    assert len(after.verify()) == 1, "the sums of the entry before"


# Photographs of one scene


def same_shots(rng, *patterns):
    """Return one scene as recorded by sensors with these patterns, as 8-bit pixels."""
    light = scene(rng)[:, :, np.newaxis] * np.array([1, 0.95, 0.85])
    seen = [light * (1 + one[:, :, np.newaxis]) + rng.standard_normal(light.shape) for one in patterns]
    return [np.clip(one, 0, 255).astype(np.uint8) for one in seen]


def test_signatures_recognise_scenes(rng):
    first, second = same_shots(rng, pattern(1), pattern(2))
    signature = cameras.scene_signature(first[:SIZE, :SIZE])
    assert len(signature) == 16
    for same in (second[:SIZE, :SIZE], second[:SIZE, :SIZE] * 0.3, second[2 : SIZE + 2, 1 : SIZE + 1]):
        assert cameras.same_scene(signature, cameras.scene_signature(same))
    assert not cameras.same_scene(signature, cameras.scene_signature(second[:SIZE, SIZE - 1 :: -1]))
    others = [cameras.scene_signature(scene(rng)[:SIZE, :SIZE, np.newaxis]) for _ in range(20)]
    assert not any(cameras.same_scene(signature, one) for one in others)
    even = 128 + rng.standard_normal((SIZE, SIZE, 3))
    assert cameras.scene_signature(even) is None
    assert not cameras.same_scene(None, None)


def test_cameras_with_a_photograph_of_the_same_scene_are_excluded(photographs, tmp_path):
    """Residuals of the same scene correlate even if the sensors differ, so the score would depend on the scene."""
    rng = np.random.default_rng(8)
    shared, questioned = same_shots(rng, pattern(300), pattern(500))
    more = {f"more{number}": shot(rng, pattern(300)) for number in range(2)}
    for name, pixels in {"shared": shared, "questioned": questioned, **more}.items():
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    database = made_in(tmp_path)
    cameras.enroll(database, "a", photographs["a"][:6], keep_fingerprints=True)
    files = [tmp_path / f"{name}.png" for name in ("shared", *more)]
    assert cameras.enroll(database, "d", files, keep_fingerprints=True).n_enrolled == 3
    others = [*photographs["others"], *photographs["b"], *photographs["c"], tmp_path / "questioned.png"]
    learned, refused = cameras.calibrate(database, others)
    assert (len(learned.impostors), refused) == (2 * 26 + 1, [])  # one comparison shares a scene
    found = cameras.identify(database, tmp_path / "questioned.png")
    assert [one.camera for one in found.candidates] == ["a"]
    (one,) = found.excluded
    assert (one.camera, one.same_scene["file"], found.is_match) == ("d", "shared.png", False)
    assert one.score > found.threshold, "without the signatures this would be a false match"
    assert "'d' is excluded, because the photograph shows the same scene as shared.png" in found.conclusion()
    cameras.write_report(tmp_path / "r.html", database, found, command="none")
    assert "a photograph of the same scene is enrolled" in (tmp_path / "r.html").read_text()
    cameras.write_matrix(tmp_path / "m.svg", [found])
    figure = (tmp_path / "m.svg").read_text()
    assert ("<circle" in figure, figure.count(">×</text>")) == (False, 1), "a dot would call the score significant"
    found = cameras.identify(database, tmp_path / "questioned.png", search=["crop"], orientations=["as stored"])
    assert (found.result, "d" in {one.camera for one in found.aligned}) == ("no match", False)
    database.remove("a")
    for search in ((), ("crop",)):
        with pytest.raises(cameras.PhotographError, match=r"questioned\.png: cannot be judged\. 'd' is excluded"):
            cameras.identify(database, tmp_path / "questioned.png", search=search, orientations=["as stored"])


def test_repeated_scenes_of_a_camera_are_no_known_matches(tmp_path):
    rng = np.random.default_rng(9)
    own = pattern(3)
    pixels = [*same_shots(rng, own, own), *(shot(rng, own) for _ in range(3))]
    for number, one in enumerate(pixels):
        Image.fromarray(one).save(tmp_path / f"{number}.png")
    database = made_in(tmp_path)
    done = cameras.enroll(database, "a", sorted(tmp_path.glob("*.png")))
    assert (done.n_enrolled, len(database.camera("a").match_scores)) == (5, 3)
    assert "2 of the photographs show the scene of another one" in done.notes[0]


# Calibration


def test_no_p_value_is_stated_without_calibration(photographs, tmp_path):
    database = made_in(tmp_path)
    cameras.enroll(database, "a", photographs["a"][:4])
    with pytest.raises(ValueError, match="not calibrated, so no p-value can be stated"):
        cameras.identify(database, photographs["a"][6])
    with pytest.raises(ValueError, match="at least 30 impostor scores, got 0"):
        cameras.calibrate(database)
    with pytest.raises(ValueError, match="is enrolled for 'a', so it is not an impostor"):
        cameras.calibrate(database, photographs["a"][:1])
    with pytest.raises(ValueError, match="seems to have been taken by 'a'"):
        cameras.calibrate(database, photographs["a"][6:])


def test_impostors_count_once(enrolled, photographs, tmp_path):
    """Repeated scores would make the sample look larger than it is."""
    copies = []
    for number, path in enumerate(photographs["others"][:3]):
        copies += [tmp_path / f"{number}.jpg", tmp_path / f"{number}.png"]
        copies[-2].write_bytes(path.read_bytes())
        Image.open(path).save(copies[-1])
    with pytest.raises(ValueError, match=r"got 9; 6 files were left out: .*0\.jpg: shows the same scene as .*others0"):
        cameras.calibrate(enrolled, photographs["others"][:3] + copies)


def test_likelihood_ratios_are_not_fitted_again(enrolled, photographs, monkeypatch):
    def fail(*_):
        raise AssertionError

    monkeypatch.setattr(LikelihoodRatios, "fit", fail)
    opened = cameras.CameraDatabase(enrolled.path)
    assert cameras.identify(opened, photographs["a"][6]).best.log10_likelihood_ratio is not None


def test_the_other_cameras_of_a_database_calibrate_it(enrolled):
    kept = [sum(map(len, one.impostor_scores.values())) for one in enrolled.cameras()]
    assert kept == [0, 6, 12]
    with pytest.raises(ValueError, match="at least 30 impostor scores, got 18"):
        cameras.calibrate(enrolled)


def calibration_of(scores, matches=()):
    ratios = LikelihoodRatios.fit(np.array(matches), np.concatenate([*scores.values()]))
    texts = {"source": "simulated", "date": "today", "models": []}
    return CameraCalibration(scores, np.array(matches), ratios, n_photographs=10, n_cameras=4, **texts)


def test_p_values_use_a_normal_distribution_only_if_it_fits():
    rng = np.random.default_rng(1)
    learned = calibration_of({"normal": rng.standard_normal(40)}, np.linspace(8, 9, 12))
    normal = learned.null("normal")
    assert normal.tail_fits
    assert scipy.stats.norm.logsf(8.0) / np.log(10) < normal.log10_p_value(8.0) < -6, (
        "40 scores give no exact deviation"
    )
    assert "rest on a tail model, a normal law" in learned.statement()
    heavy = calibration_of({"normal": rng.standard_t(1.5, size=200)}).null("normal")
    assert not heavy.tail_fits
    assert heavy.log10_p_value(1e9) == -np.log10(201)
    assert heavy.threshold(1e-6) == np.inf
    assert "never below 0.005" in heavy.statement()
    record = json.loads(json.dumps(learned.to_json(), allow_nan=False))
    again = CameraCalibration.from_json(record, "x")
    np.testing.assert_array_equal(again.impostors, learned.impostors)
    assert [again.ratios.ratio(at) for at in (-1, 5, 9)] == [learned.ratios.ratio(at) for at in (-1, 5, 9)]
    damages = {"impostors": {"normal": [1.0, "x"]}}, {"ratios": record["ratios"] | {"log10": [1.0, 0.0]}}
    for damage in (*damages, {"impostors": {"odd": [1.0]}}, {"ratios": record["ratios"] | {"starts": [None]}}):
        with pytest.raises(StorageError, match="camera calibration: cannot be read"):
            CameraCalibration.from_json(record | damage, "x")


def test_dark_photographs_have_a_null_distribution_of_their_own():
    """Their scores vary twice as much here; the null of all photographs would give them too small p-values."""
    rng = np.random.default_rng(2)
    learned = calibration_of({"normal": rng.standard_normal(2000), "dark": 2 * rng.standard_normal(400)})
    thresholds = [learned.null(condition).threshold(0.001) for condition in ("normal", "dark", "overexposed")]
    assert [round(one) for one in thresholds[:2]] == [3, 6]
    assert thresholds[2] == learned.null("").threshold(0.001), "no overexposed impostor is known"
    dark = np.array([learned.null("dark").log10_p_value(one) for one in 2 * rng.standard_normal(2000)])
    assert abs(np.mean(dark <= -2) - 0.01) < 4 * np.sqrt(0.01 / 2000)


def test_likelihood_ratios_are_those_of_the_reference_and_bounded():
    rng = np.random.default_rng(3)
    for n, m, distance in ((12, 40, 1.0), (54, 135, 2.0), (54, 135, 9.0), (30, 900, 3.0)):
        matches, impostors = distance + rng.standard_normal(n), rng.standard_normal(m)
        found = LikelihoodRatios.fit(matches, impostors)
        expected = camera_reference.likelihood_ratios(matches, impostors)
        for score, ratio in expected.items():
            assert found.ratio(score) == pytest.approx(ratio, abs=1e-9)
        assert -np.log10(n + 1) <= found.bounds[0] <= 0 <= found.bounds[1] <= np.log10(m + 1)
        assert found.ratio(1e9) == found.bounds[1]
        assert "upper bound" in found.note(1e9)
        middle = (impostors.max() + matches.min()) / 2
        is_gap = impostors.max() < matches.min()
        assert (found.ratio(middle) is None, "no known match or impostor scored" in found.note(middle)) == (is_gap,) * 2
    assert not is_gap
    assert LikelihoodRatios.fit(impostors, matches) is None


def test_likelihood_ratios_seldom_mislead():
    """The chance that an impostor has a ratio of at least x is at most 1 / x, over calibrations and new impostors."""
    rng, ratios = np.random.default_rng(4), []
    for _ in range(100):
        found = LikelihoodRatios.fit(2 + rng.standard_normal(54), rng.standard_normal(135))
        ratios += [found.ratio(one) for one in rng.standard_normal(40)]
    for x in (0.3, 1.0):
        assert np.mean(np.array(ratios) >= x) < 10**-x + 4 * np.sqrt(10**-x / len(ratios))


# Crops, scales and groups


def test_correlations_at_all_shifts_are_those_of_the_reference(rng):
    fingerprint = rng.standard_normal((32, 40)).astype(np.float32)
    query = (fingerprint[9:29, 5:35] + rng.standard_normal((20, 30))).astype(np.float32)
    found = FrameSpectrum(fingerprint).best_shift(query, 1.0)
    top, left, pce = camera_reference.best_shift(query.astype(float), fingerprint.astype(float))
    assert (found.top, found.left, found.width, found.height) == (top, left, 30, 20) == (9, 5, 30, 20)
    assert found.pce == pytest.approx(pce, rel=1e-3)


def test_refined_scales_count_as_often_as_their_correlations_differ(rng):
    """The formula of Rice: of correlations with this deviation of their derivative, so many reach a PCE of 60."""
    query, frame, search = rng.standard_normal((130, 143)).astype(np.float32), (240, 264), ("crop", "scale")
    for scale in (0.9003, 1.2003, 1.7003):
        tenth = 0.1 * scale * 2 * scale / 143  # of a step of the grid
        one, near = (on_sensor(query, frame, at) for at in (scale, scale + tenth))
        correlation = np.corrcoef(one[: near.shape[0], : near.shape[1]].ravel(), near.ravel())[0, 1]
        per_step = 10 * np.sqrt(2 * (1 - correlation) / (2 * np.pi))
        assert PER_STEP / 2 < 1 + per_step * np.sqrt(60) < PER_STEP
    sizes = [(int(130 / at + 1e-6), int(143 / at + 1e-6)) for at in trial_scales(query.shape, frame, search)]
    n_shifts = sum((241 - height) * (265 - width) for height, width in sizes)
    assert n_trials(query.shape, frame, search) == PER_STEP * n_shifts
    assert n_trials(query.shape, frame, ["crop"]) == (241 - 130) * (265 - 143)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A calibrated database of two cameras with fingerprints of whole frames, and the patterns of their sensors."""
    folder, rng = tmp_path_factory.mktemp("whole"), np.random.default_rng(12)
    patterns = {name: pattern(number, 240, 264) for number, name in enumerate(("p", "q"), 40)}
    database = made_in(folder)
    for name, own in patterns.items():
        files = [folder / f"{name}{number}.png" for number in range(8)]
        for path in files:
            Image.fromarray(shot(rng, own)).save(path)
        cameras.enroll(database, name, files[:5], keep_fingerprints=True)
        cameras.enroll(database, name, files[5:])  # updates the stored fingerprint
    others = [folder / f"other{number}.png" for number in range(16)]
    for number, path in enumerate(others):
        Image.fromarray(shot(rng, pattern(60 + number, 240, 264))).save(path)
    cameras.calibrate(database, others)
    return database, patterns


@pytest.mark.parametrize("search", [("crop",), ("scale",), ("crop", "scale")])
def test_cropped_and_scaled_photographs_are_found(search, whole, tmp_path):
    """A crop of 60% of the area, the whole frame resized to 70%, and both; the camera of the last is unknown."""
    database, patterns = whole
    rng = np.random.default_rng(13)
    for own in (patterns["q"], pattern(99, 240, 264)):
        image = Image.fromarray(shot(rng, own))
        image = image.crop((41, 33, 41 + 204, 33 + 186)) if "crop" in search else image
        size = [round(0.7 * one) for one in image.size] if "scale" in search else image.size
        image.resize(size, Image.Resampling.LANCZOS).save(tmp_path / "x.png")
        found = cameras.identify(database, tmp_path / "x.png", search=search, orientations=["as stored"])
        record = json.loads(json.dumps(found.to_json(), allow_nan=False))
        if own is patterns["q"]:
            best = found.aligned[0]
            assert (found.result, best.camera, record["aligned"][0]["camera"]) == ("match", "q", "q")
            assert best.alignment.scale == pytest.approx(0.7 if "scale" in search else 1.0, rel=0.005)
            if "crop" in search:
                assert max(abs(best.alignment.left - 41), abs(best.alignment.top - 33)) <= 1
                assert "as a crop of" in found.conclusion()
            assert "but on a normal law of the correlations at other shifts" in found.conclusion()
            assert "those of the calibration" not in found.conclusion(), "which it does not use"
            assert camera_reports.contradictions(found) == []
        else:
            assert (found.result, found.aligned[0].e_value > 1e-3) == ("no match", True)
            assert f"The best camera of the search for {' and '.join(search)} is" in found.conclusion()
    cameras.write_report(tmp_path / "r.html", database, found, command="none")
    page = (tmp_path / "r.html").read_text()
    assert f"Search for {' and '.join(search)}" in page
    assert "P-values of the search do not rest on known impostors" in page
    for part in ("Tippett", "known impostors (photographs", "threshold of the score", "Orientations tried: none"):
        assert part not in page, "no score of the whole frame was compared"


def test_a_search_needs_fingerprints_and_names_what_to_do(enrolled, whole, photographs, tmp_path):
    with pytest.raises(ValueError, match="remove each camera and enroll all of its photographs again with keep_"):
        cameras.identify(enrolled, photographs["a"][6], search=["crop"])
    with pytest.raises(
        cameras.PhotographError, match=r"; or search for crops and scaled copies with --search crop,scale$"
    ):
        cameras.identify(whole[0], photographs["a"][6])
    Image.open(photographs["a"][6]).crop((0, 0, 120, 100)).save(tmp_path / "small.png")  # smaller than the crop
    with pytest.raises(
        cameras.PhotographError, match=r"small\.png: has 120 x 100 .*; or remove each camera and enroll"
    ):
        cameras.identify(enrolled, tmp_path / "small.png")
    with pytest.raises(cameras.PhotographError, match=r"neither scaled nor cropped.* as a camera; or search for crops"):
        cameras.identify(whole[0], tmp_path / "small.png", search=["scale"])
    with pytest.raises(ValueError, match="search must name crop and scale, got zoom"):
        cameras.identify(whole[0], photographs["a"][6], search=["zoom"])
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        cameras.identify(enrolled, photographs["a"][6], k=0)
    assert whole[0].verify() == []
    with pytest.raises(ValueError, match="fingerprint of the whole frame of 'a' is not stored"):
        cameras.enroll(enrolled, "a", photographs["a"][6:], keep_fingerprints=True)


def test_a_search_whose_tests_disagree_is_inconclusive(whole, tmp_path):
    """A PCE of 45 with an E-value of 1e-9 is neither a match nor none."""
    database, patterns = whole
    image = Image.fromarray(shot(np.random.default_rng(14), patterns["q"]))
    image.resize([round(0.7 * one) for one in image.size], Image.Resampling.LANCZOS).save(tmp_path / "x.png")
    found = cameras.identify(database, tmp_path / "x.png", search=["scale"])
    assert (found.result, found.best.camera) == ("match", "q")
    results = set()
    for pce, log10_p in itertools.product((45.0, 61.0), (-1.0, -12.0)):
        best = found.aligned[0]
        changed = replace(
            best,
            alignment=replace(best.alignment, pce=pce),
            log10_p_value=log10_p,
            log10_e_value=log10_p + 1,
            e_value=10 ** (log10_p + 1),
        )
        made = replace(found, aligned=[changed, *found.aligned[1:]])
        assert camera_reports.contradictions(made) == []
        assert made.best == changed
        results.add((pce, log10_p, made.result))
    assert results == {
        (45.0, -1.0, "no match"),
        (45.0, -12.0, "inconclusive"),
        (61.0, -1.0, "inconclusive"),
        (61.0, -12.0, "match"),
    }


def test_a_search_that_finds_the_whole_frame_judges_its_score_as_well(whole, tmp_path):
    """At this false-alarm rate all pixels are significant, but the code of the crop is not."""
    database, patterns = whole
    Image.fromarray(shot(np.random.default_rng(19), patterns["q"])).save(tmp_path / "x.png")
    options = {"search": ["crop"], "orientations": ["as stored"], "false_alarm": 1e-150}
    found = cameras.identify(database, tmp_path / "x.png", **options)
    (first, *others), conclusion = found.candidates, found.conclusion()
    assert (found.result, found.best.camera, first.camera, first.score < found.threshold) == ("match", "q", "q", True)
    assert "matches 'q' (as stored) as the whole frame, at" in conclusion
    assert f"The score of the centre of the frame, by codes, is {first.score:.4f}" in conclusion
    assert "such a copy" not in conclusion
    opposed = replace(first, log10_likelihood_ratio=-1.4, words=verbal_equivalent(-1.4), ratio_note="")
    made = replace(found, candidates=[opposed, *others])
    assert (made.result, made.best.camera) == ("inconclusive", "q")
    assert "The likelihood ratio is 10^-1.4: moderate support for different sources." in made.conclusion()
    assert [camera_reports.contradictions(one) for one in (found, made)] == [[], []]
    edited = replace(found.aligned[0], alignment=replace(found.aligned[0].alignment, width=200, height=180))
    assert "do not apply to such a copy" in replace(found, aligned=[edited]).conclusion()


def test_a_search_reports_the_score_of_the_camera_that_it_finds(whole, tmp_path):
    """The other camera has the only place among the candidates."""
    database, patterns = whole
    Image.fromarray(shot(np.random.default_rng(19), patterns["q"])).save(tmp_path / "x.png")
    options = {"search": ["crop"], "orientations": ["as stored"], "false_alarm": 1e-150, "k": 1}
    found = cameras.identify(database, tmp_path / "x.png", **options)
    assert found.aligned[0].camera in {one.camera for one in found.candidates}


def test_a_second_camera_that_a_search_finds_is_named(whole, tmp_path):
    """The same photographs under two names, of which only one was asked for."""
    folder = Path(whole[0].path).parent
    database = made_in(tmp_path)
    for name, numbers in (("first", "012"), ("second", "345")):
        cameras.enroll(database, name, [folder / f"q{one}.png" for one in numbers], keep_fingerprints=True)
    cameras.calibrate(database, sorted(folder.glob("other*.png")))
    image = Image.fromarray(shot(np.random.default_rng(17), whole[1]["q"]))
    image.crop((41, 33, 245, 219)).save(tmp_path / "x.png")
    found = cameras.identify(database, tmp_path / "x.png", search=["crop"], orientations=["as stored"], k=1)
    assert {one.camera for one in found.aligned_matches} == {"first", "second"}
    assert re.search(r"Also significant: '(first|second)'.*does not decide between", found.conclusion())


def test_e_values_of_a_search_count_both_of_its_parts(whole, photographs, tmp_path):
    """The whole frame and the search have half of the false-alarm rate each, so their E-values are doubled."""
    database, patterns = whole
    Image.fromarray(shot(np.random.default_rng(15), patterns["p"])).save(tmp_path / "x.png")
    alone, searched = (cameras.identify(database, tmp_path / "x.png", search=one) for one in ((), ("crop",)))
    assert searched.best.e_value == pytest.approx(2 * alone.best.e_value)
    assert searched.calibration.null("normal").log10_p_value(searched.threshold) == pytest.approx(
        np.log10(searched.false_alarm / 2 / searched.n_comparisons), abs=1e-3
    )
    assert "over 2 cameras in 4 orientations;" in searched.conclusion(), "no shift was tried"


def test_photographs_of_unknown_cameras_are_grouped(photographs, tmp_path):
    copy = tmp_path / "copy.jpg"
    Image.open(photographs["a"][0]).save(copy, quality=80)
    files = [*photographs["a"][:4], *photographs["b"][:3], *photographs["others"][:2], copy]
    found = cameras.group_photographs(files, size=SIZE)
    assert found.groups == [[*map(str, photographs["a"][:4]), str(copy)], [*map(str, photographs["b"][:3])]]
    assert found.single == [*map(str, photographs["others"][:2])]
    assert found.same_scene == [(str(photographs["a"][0]), str(copy))]
    code, shown = run("group", *files, "--size", SIZE, "--json")
    assert (code, json.loads(shown[shown.index("{") :])["groups"]) == (0, found.groups)
    check(0, f"photographs that match no other: 2\n  {files[7]}\n  {files[8]}\n", "group", *files, "--size", SIZE)


def test_likelihood_ratios_are_exported_for_lir(enrolled, tmp_path):
    assert run("export", enrolled.path, "--lir", tmp_path / "x.csv")[0] == 0
    rows = [*csv.DictReader((tmp_path / "x.csv").read_text().splitlines())]
    ratios = enrolled.calibration.ratios
    assert [one["label"] for one in rows] == ["1"] * 18 + ["0"] * 36
    assert all(float(one["llr"]) == ratios.ratio(float(one["score"])) for one in rows)


# Results in words


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 7])
def test_reports_never_contradict_themselves(seed, tmp_path):
    """A sample of ``python tests/camera_reports.py``, whose 10,000 identifications had no contradiction."""
    results = [found for *_, found in camera_reports.simulate(seed, 24, tmp_path) if found is not None]
    assert [camera_reports.contradictions(found) for found in results] == [[]] * len(results)
    assert len({found.result for found in results}) > 1


def test_all_combinations_of_tests_lead_to_words_that_agree(enrolled, photographs):
    found = cameras.identify(enrolled, photographs["a"][6])
    results = set()
    for score, ratio, pce, second in itertools.product(
        (-0.5, 0.5), (None, -1.4, -0.2, 0.0, 0.2, 2.1), (-3.0, 59.0, 61.0), (0.0, 0.4)
    ):
        words = None if ratio is None else verbal_equivalent(ratio)
        changes = {"log10_likelihood_ratio": ratio, "words": words, "ratio_note": "None is stated." * (ratio is None)}
        changes["e_value"] = 1e-9 if score > 0 else 0.5
        first = replace(found.candidates[0], score=found.threshold + score, pce=pce, **changes)
        other = replace(found.candidates[1], score=found.threshold + score - 0.4 + second)
        made = replace(found, candidates=[first, other])
        assert camera_reports.contradictions(made) == []
        assert made.is_match == (score > 0 and pce == 61 and (ratio is None or ratio >= -np.log10(2)))
        results.add((score > 0, made.result))
    assert results == {(True, "match"), (True, "inconclusive"), (False, "no match"), (False, "inconclusive")}


def test_a_second_camera_with_a_supporting_likelihood_ratio_is_named(enrolled, photographs):
    found = cameras.identify(enrolled, photographs["a"][6])
    second = replace(found.candidates[1], log10_likelihood_ratio=0.5, words=verbal_equivalent(0.5))
    made = replace(found, candidates=[found.candidates[0], second])
    words = f"The likelihood ratio also supports {second.camera!r} (10^0.5: weak support for the same source)"
    assert (made.result, words in made.conclusion()) == ("match", True)
    assert camera_reports.contradictions(made) == []
    both = replace(made, candidates=[found.candidates[0], replace(second, pce=80.0)])
    assert both.conclusion().count(repr(second.camera)) == 1, "it is significant"


def test_conditions_and_models_without_impostors_are_warned_of(enrolled, photographs, tmp_path):
    found = cameras.identify(enrolled, photographs["a"][6])
    (warning,) = found.warnings
    assert "No impostor of the calibration is of the model of 'a' (Maker Model a)" in warning
    assert warning in found.conclusion()
    dark = (np.asarray(Image.open(photographs["a"][6])) * 0.3).astype(np.uint8)
    Image.fromarray(dark).save(tmp_path / "dark.png")
    found = cameras.identify(enrolled, tmp_path / "dark.png")
    assert found.condition == "dark"
    assert "is dark, and the calibration has 0 impostor scores of such photographs" in found.warnings[0]


# Commands and reports


def run(*arguments):
    shown = CliRunner().invoke(app, ["cameras", *map(str, arguments)])
    return shown.exit_code, shown.output


def check(expected_code, words, *arguments):
    code, shown = run(*arguments)
    assert (code, words in shown) == (expected_code, True), shown


def test_the_commands_lead_from_photographs_to_a_report(photographs, tmp_path):
    database = tmp_path / "s.topsign"
    for camera in "abc":
        options = ("--camera", camera, "--size", SIZE, "--n-bits", 1024) if camera == "a" else ("--camera", camera)
        code, shown = run("enroll", database, *options, *photographs[camera][:6])
        assert (code, "6 photographs enrolled, 6 in total" in shown) == (0, True), shown
    check(1, "is not calibrated", "identify", database, photographs["a"][6])
    check(0, "from 36 scores of known impostors", "calibrate", database, "--impostors", *photographs["others"])
    check(0, "The photograph matches 'a'", "identify", database, photographs["a"][6], "--report", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    for part in ("data:image/jpeg;base64", "Tippett plot", "SHA-256", "Maker Model a", "projections kept", "Match<"):
        assert part in page
    assert not re.search(r"(src|href)=\"(?!data:)", page), "the page fetches something"
    code, shown = run("identify", database, photographs["a"][6], "--report", tmp_path / "r.json", "--json")
    record = json.loads((tmp_path / "r.json").read_text())
    assert record.keys() == json.loads(shown[shown.index("{") :]).keys()
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in photographs["a"][:6]}
    assert {one["file"]: one["sha256"] for one in record["enrolled"]["a"]} == hashes
    hashes |= {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in photographs["others"]}
    assert {one["sha256"] for one in record["calibration"]["photographs"]} <= set(hashes.values())
    assert len(record["calibration"]["photographs"]) == 12
    assert all(name in page and digest in page for name, digest in hashes.items())
    assert (record["match"], record["candidates"][0]["camera"]) == (True, "a")
    code, _ = run("identify", database, photographs["a"][6], "--report", tmp_path / "q.html", "--without-thumbnail")
    assert "data:image" not in (tmp_path / "q.html").read_text()
    check(3, "No match", "identify", database, photographs["others"][0])
    code, shown = run("enroll", database, "--camera", "b", photographs["b"][0], photographs["b"][6])
    assert (code, "1 photograph enrolled, 7 in total" in shown, "is enrolled already" in shown) == (1, True, True)
    code, shown = run("calibrate", database)
    assert (code, "got 20" in shown, "0/?" in shown) == (1, True, False), shown
    code, shown = run("list", database)
    assert [line.split()[:2] for line in shown.splitlines()[1:]] == [["a", "6"], ["b", "7"], ["c", "6"]]
    check(0, "sound: 3 cameras", "verify", database)
    check(0, "c removed, 2 cameras remain", "remove", database, "c", "--erase")
    assert run("remove", database, "c")[0] == 2
    assert run("verify", database)[0] == 0


def test_batches_give_tables_a_matrix_and_a_case(enrolled, photographs, tmp_path):
    folder = tmp_path / "evidence"
    (folder / "more").mkdir(parents=True)
    for path in (photographs["a"][6], photographs["b"][6], photographs["others"][0]):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "more" / "torn.jpg").write_bytes(b"\xff\xd8\xff")
    (folder / "notes.txt").write_text("not a photograph")
    for kind in ("csv", "json"):
        out = tmp_path / f"t.{kind}"
        code, shown = run("identify", enrolled.path, folder, "-o", out, "--matrix", tmp_path / "m.svg")
        assert (code, "torn.jpg: " in shown) == (1, True), shown
        rows = (
            [*csv.DictReader(out.read_text().splitlines())]
            if kind == "csv"
            else json.loads(out.read_text(), parse_constant=fail)
        )
        assert [one["result"] or None for one in rows] == ["match", "match", None, "no match"]
        assert [one["camera"] for one in rows[:2]] == ["a", "b"]
        assert float(rows[0]["e_value"]) < 1e-6
        assert "is not an image" in rows[2]["problem"]
    figure = (tmp_path / "m.svg").read_text()
    assert (figure.count("<rect"), figure.count("<circle")) == (9, 2)
    code, shown = run(
        *("report", enrolled.path, folder, "-o", tmp_path / "c.html", "--case-number", "<7>", "--examiner", "A. Reyes")
    )
    page = (tmp_path / "c.html").read_text()
    for part in (
        "case &lt;7&gt;",
        "A. Reyes",
        "signature, date",
        "2 match, 1 match no camera",
        "torn.jpg",
        "1. a6.jpg",
    ):
        assert part in page
    run("report", enrolled.path, folder, "-o", tmp_path / "c.json")
    assert page.count("Tippett plot:") == page.count(">Calibration<") == 1
    assert "threshold of the score" not in page, "it differs between photographs"
    record = json.loads((tmp_path / "c.json").read_text(), parse_constant=fail)
    assert [one["result"] for one in record["photographs"]] == ["match", "match", None, "no match"]
    check(2, "topsign cameras report writes a case", "identify", enrolled.path, folder, "--report", tmp_path / "r.html")
    check(2, "--search must be crop, scale or crop,scale", "identify", enrolled.path, folder, "--search", "zoom")


def test_rows_of_the_matrix_have_the_numbers_of_the_sections(whole, tmp_path):
    """The first photograph is a crop, which has no scores of the whole frame."""
    database, patterns = whole
    rng = np.random.default_rng(16)
    for name in ("a.png", "b.png"):
        Image.fromarray(shot(rng, patterns["p"])).save(tmp_path / name)
    Image.open(tmp_path / "a.png").crop((20, 20, 220, 200)).save(tmp_path / "a.png")
    files = [str(tmp_path / name) for name in ("a.png", "b.png")]
    results = [*cameras.identify_all(database, files, search=["crop"], orientations=["as stored"])]
    assert [len(one.scores) for one in results] == [0, 2]
    cameras.write_case(tmp_path / "c.html", database, results, command="none")
    page = (tmp_path / "c.html").read_text()
    assert '"photograph-2">2. b.png<' in page
    assert page.count(">2. b.png<") == 2, "in the heading and in the matrix"
    assert "Score: estimated correlation" in page, "the second photograph has scores"
    cameras.write_matrix(tmp_path / "m.svg", results)
    assert ">2. b.png<" in (tmp_path / "m.svg").read_text()


def fail(constant):
    raise AssertionError(f"{constant} is not JSON")


@pytest.mark.parametrize("shape", ["vision", "dresden"])
def test_a_folder_of_real_cameras_is_measured(shape, photographs, tmp_path, monkeypatch):
    """Three cameras are enrolled; the impostors are those of the fourth, and the fifth is unknown."""
    others = photographs["others"]
    for number, files in enumerate((photographs["a"], photographs["b"], photographs["c"], others[:11], others[11:])):
        for at, path in enumerate(files):
            kind = "flat" if number < 3 and at < 6 else "nat"
            place = (
                f"dataset/D0{number}_Maker/images/{kind}/{at}.jpg"
                if shape == "vision"
                else f"{kind}/Maker_{number}_{at}.JPG"
            )
            (tmp_path / "flat data" / place).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "flat data" / place).write_bytes(path.read_bytes())
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    script = importlib.import_module("camera_photographs")
    options = SimpleNamespace(data=str(tmp_path / "flat data"), size=SIZE, enrolled=6)
    enrolled, results = (one["rows"] for one in script.real(options, tmp_path))
    assert [row[1:3] for row in enrolled] == [[6, 0]] * 3
    assert [[row[0], *row[2:]] for row in results] == [["enrolled", 3, 0, 0, 0, 0], ["unknown", 0, 0, 0, 1, 0]]
    options.size = 1024
    (tmp_path / "large").mkdir()
    with pytest.raises(SystemExit, match=r"no camera of .* can be enrolled: .* \(--size 128;"):
        script.real(options, tmp_path / "large")
    options.data = str(tmp_path / "none")
    with pytest.raises(SystemExit, match="none is not a folder"):
        script.real(options, tmp_path / "large")


def test_a_refused_enrolment_leaves_nothing_but_a_short_message(photographs, tmp_path):
    code, shown = run("enroll", tmp_path / "s.topsign", "--camera", "a", *photographs["a"])
    assert (code, shown.count("but the crop has 1024 x 1024"), "; and 4 more" in shown) == (1, 3, True)
    assert list(tmp_path.iterdir()) == []


def test_commands_name_what_is_wrong(enrolled, photographs, tmp_path):
    check(2, "does not exist", "identify", tmp_path / "none.topsign", photographs["a"][0])
    check(
        2, "--report must be one of .html, .json", "identify", enrolled.path, photographs["a"][6], "--report", "r.pdf"
    )
    code, shown = run("identify", enrolled.path, photographs["a"][6], "--report", tmp_path / "none" / "r.html")
    assert (code, "--report: the folder" in shown, "none does not exist; create it first" in shown) == (2, True, True)
    check(2, "--false-alarm must lie in (0, 1)", "identify", enrolled.path, photographs["a"][6], "--false-alarm", "2")
