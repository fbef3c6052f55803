#!/usr/bin/env bash
# The NEON kernels in Python on an emulated 64-bit ARM processor. Run as root on Debian; everything lies in build/arm.
#   tests/arm/run.sh PYTHON [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$1
shift
arm=$PWD/build/arm
mkdir -p "$arm/debs"

which aarch64-linux-gnu-g++ qemu-aarch64-static > /dev/null || apt-get install -y g++-aarch64-linux-gnu qemu-user-static
if [ ! -d "$arm/root" ]; then
    dpkg --add-architecture arm64 && apt-get update -qq
    packages="python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libstdc++6 libgcc-s1 zlib1g libexpat1
        libffi8 libssl3 libbz2-1.0 liblzma5 libsqlite3-0 libuuid1 libcrypt1 libreadline8 libncursesw6 libtinfo6
        libdb5.3 libgomp1"
    (cd "$arm/debs" && apt-get download -qq $(printf '%s:arm64 ' $packages))
    for package in "$arm"/debs/*.deb; do dpkg-deb -x "$package" "$arm/root"; done
fi
if [ ! -d "$arm/site" ]; then
    "$python" -m pip install --quiet --target "$arm/site" --platform manylinux2014_aarch64 \
        --platform manylinux_2_27_aarch64 --platform manylinux_2_28_aarch64 --python-version 3.11 \
        --only-binary=:all: numpy scipy scikit-learn pytest hypothesis rich typer
fi
mkdir -p "$arm/site/topsign-0.dist-info"  # index files name the version that wrote them
printf 'Metadata-Version: 2.1\nName: topsign\nVersion: 0\n' > "$arm/site/topsign-0.dist-info/METADATA"

cmake -S native -B "$arm/core" -DCMAKE_BUILD_TYPE=Release -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ > /dev/null
cmake --build "$arm/core" --parallel 2 > /dev/null
rm -rf "$arm/src" && cp -r src "$arm/src"
rm -f "$arm"/src/topsign/kernels/topsign_core.* && cp "$arm/core/topsign_core.so" "$arm/src/topsign/kernels/"

on_arm() {
    PYTHONPATH=$arm/src:$arm/site OPENBLAS_NUM_THREADS=1 qemu-aarch64-static -L "$arm/root" \
        "$arm/root/usr/bin/python3.11" "$@"
}

rm -rf "$arm/exchange"
"$python" tests/arm/exchange.py write "$arm/exchange/x86"
on_arm tests/arm/exchange.py compare "$arm/exchange/x86"
on_arm tests/arm/exchange.py write "$arm/exchange/arm"
"$python" tests/arm/exchange.py compare "$arm/exchange/arm"
on_arm -m pytest -q -p no:cacheprovider "$@" tests/test_kernels.py
