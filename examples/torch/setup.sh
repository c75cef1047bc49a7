#!/bin/sh
# Makes the Python environment of this example, `.venv`, with nothing but `python3` and pip.
#
# The packages go into a folder named after what they depend on (requirements.txt and the Python version), below
# LAMP_CACHE_DIR, which survives attempts on the same machine: the second attempt starts in a second. Without
# Lamplighter the folder is `.cache` beside this file. Run it as often as you like: `sh setup.sh`.
set -eu
cd "$(dirname "$0")"

cache=${LAMP_CACHE_DIR:-$PWD/.cache}
python=${PYTHON:-python3}

if ! command -v "$python" >/dev/null; then
    echo "error: \`$python\` is not installed" >&2
    echo "hint: sudo apt install python3 python3-venv" >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))'; then
    echo "error: $("$python" --version) is too old, 3.9 or later is needed" >&2
    echo "hint: name another one: PYTHON=python3.11 sh setup.sh" >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    echo "error: \`$python\` cannot make virtual environments here" >&2
    echo "hint: sudo apt install python3-venv   (or python$version-venv)" >&2
    exit 1
fi

key=$("$python" - <<'PYTHON'
import hashlib, platform, sys
facts = f"{sys.implementation.cache_tag} {sys.prefix} {platform.machine()} ".encode() + open("requirements.txt", "rb").read()
print(hashlib.sha256(facts).hexdigest()[:12])
PYTHON
)
venv=$cache/venv-$key

mkdir -p "$cache"
# Two attempts at once must not build the same folder; the lock is given back when this script ends, however it ends.
if command -v flock >/dev/null; then
    exec 9>"$cache/venv-$key.lock"
    flock 9
fi

# `complete` is written last: a folder without it was left by an interruption and is made anew.
if [ -e "$venv/complete" ] && "$venv/bin/python" -c '' 2>/dev/null; then
    echo "environment: $venv (made earlier)"
else
    echo "environment: making $venv (once; PyTorch with CUDA is about 3 GB to download)"
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --progress-bar off -r requirements.txt
    touch "$venv/complete"
fi
ln -sfn "$venv" .venv
