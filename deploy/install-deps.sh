#!/bin/sh
# Installs what building and testing needs on Debian 12. Quick when everything is there. docs/dependencies.md gives each
# package's reason. Usage: deploy/install-deps.sh [build|test]; test (the default) adds the tests' tools.
set -eu

build="gcc libc6-dev cmake ninja-build pkg-config git
  libgrpc-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler libucx-dev libmicrohttpd-dev libgnutls28-dev zlib1g-dev libjansson-dev
  libpcre2-dev libutf8proc-dev libyaml-dev libxxhash-dev libcurl4-openssl-dev check"
tests="python3 python3-venv curl openssl clang libclang-rt-14-dev clang-format ca-certificates procps prometheus
  iproute2 util-linux"

packages=$build
[ "${1:-test}" = build ] || packages="$build $tests"

missing=""
for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q "install ok installed" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "installing:$missing"
root=""
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "run as root, or install sudo: these packages are missing:$missing" >&2; exit 1; }
    root=sudo
fi
# A fresh system has no package lists, an old one has stale ones; both end in "not found" without this.
$root apt-get update -qq
# Services that come with a package (prometheus) are for its tools only and must not start.
# shellcheck disable=SC2086
$root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $missing >/dev/null
