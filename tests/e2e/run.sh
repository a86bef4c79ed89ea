#!/bin/sh
# Real processes, real clients. Usage: tests/e2e/run.sh [pytest arguments]. BUILD is the folder with the programs
# (default build/release). The Python environment is made once under build/ and again when requirements.txt changes.
set -eu
cd "$(dirname "$0")/../.."

venv=build/e2e-venv
stamp=$venv/requirements.txt
if ! cmp -s tests/e2e/requirements.txt "$stamp"; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r tests/e2e/requirements.txt
    cp tests/e2e/requirements.txt "$stamp"
fi
# UCX's own signal handlers would write debug output into the logs; the programs have their own.
export UCX_HANDLE_ERRORS="${UCX_HANDLE_ERRORS:-none}"
export PYTHONDONTWRITEBYTECODE=1
# gRPC's handlers around fork are for children that use it; the children here become other programs at once.
export GRPC_ENABLE_FORK_SUPPORT=0
[ $# -gt 0 ] || set -- tests/e2e
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider "$@"
