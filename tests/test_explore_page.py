"""The page of ``topsign explore`` in a real browser: Debian's Chromium, driven by Selenium."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

import topsign as ts

pytest.importorskip("starlette", reason="needs the extra explore: pip install 'topsign[explore]'")
pytest.importorskip("selenium", reason="needs Selenium: pip install selenium")
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from topsign.explore.sizes import CodeSizes, describe

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("chromium") and shutil.which("chromedriver")),
        reason="needs Chromium and its driver (Debian: chromium chromium-driver)",
    ),
]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
PATIENCE = 180  # seconds, on a busy machine


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Address of the page for a small index, served as by the command."""
    folder = tmp_path_factory.mktemp("explore")
    signals = np.random.default_rng(5).standard_normal((200, 128)).astype(np.float32)
    with ts.Index(128, family="adaptive", n_bits=32, random_state=7, path=folder / "x.topsign") as index:
        index.add(signals, metadata=[{"row": row} for row in range(200)])
    np.save(folder / "vector.npy", signals[33])
    command = [sys.executable, "-m", "topsign", "explore", str(folder / "x.topsign"), "--no-open-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        yield server.stdout.readline().strip(), folder
        server.terminate()


@pytest.fixture
def browser():
    options = webdriver.ChromeOptions()
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    with webdriver.Chrome(options=options, service=service) as driver:
        driver.set_window_size(1280, 1600)
        yield driver


def wait_for_plan(browser):
    """Wait until curves and plan agree with the sliders."""

    def settled(driver):
        data = driver.find_element(By.TAG_NAME, "body").get_attribute("data-planned")
        chosen = driver.execute_script("return new URLSearchParams(choice()).toString()")
        return data == chosen and chosen

    return WebDriverWait(browser, PATIENCE).until(settled)


def curve(browser, place, name):
    return browser.find_element(By.CSS_SELECTOR, f"#{place} polyline[data-name='{name}']").get_attribute("points")


def test_sliders_move_curves_and_numbers_are_those_of_the_theory(browser, address):
    browser.get(address[0])
    wait_for_plan(browser)
    before = curve(browser, "bytes", "adaptive, real query")
    slider = browser.find_element(By.ID, "n_bits")
    slider.send_keys(Keys.ARROW_LEFT * 2)  # operated by keyboard
    Select(browser.find_element(By.ID, "family")).select_by_value("grouped")
    query = wait_for_plan(browser)
    assert "n_bits=256" in query
    assert "family=grouped" in query
    assert curve(browser, "bytes", "adaptive, real query") != before
    values = dict(pair.split("=") for pair in query.split("&"))
    numbers = describe(CodeSizes.parse(values))["numbers"]
    shown = browser.find_element(By.ID, "numbers").text
    assert f"bytes per entry {numbers['code_bytes']}\n" in shown
    assert f"\ndetection rate {numbers['detection']:.4f}\n" in shown
    assert f"{numbers['d_prime']:.2f} ({numbers['d_prime_signs']:.2f}" in shown
    assert "topsign build signals.npy" in browser.find_element(By.ID, "plan").text
    assert not browser.find_element(By.ID, "error").is_displayed()


def test_entries_can_be_looked_up(browser, address):
    browser.get(address[0])
    WebDriverWait(browser, PATIENCE).until(
        lambda driver: len(driver.find_elements(By.CSS_SELECTOR, "#entries tr")) == 10
    )
    box = browser.find_element(By.ID, "wanted")
    box.send_keys("21", Keys.ENTER)
    rows = WebDriverWait(browser, PATIENCE).until(lambda driver: driver.find_elements(By.CSS_SELECTOR, "#neighbors tr"))
    assert rows[0].text.startswith("21 ")
    assert '{"row":21}' in rows[0].text
    browser.find_element(By.ID, "vector").send_keys(str(address[1] / "vector.npy"))
    heading = browser.find_element(By.ID, "looked")
    WebDriverWait(browser, PATIENCE).until(lambda _: heading.text == "Neighbours of vector.npy")
    assert browser.find_element(By.CSS_SELECTOR, "#neighbors tr").text.startswith("33 ")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#histogram rect.bar")) == 40
