#!/bin/sh
# Makes the virtual environment: make_venv.sh PYTHON DIR. Debian ships Python without ensurepip, so on a machine of
# that family, as root, the missing package is installed; elsewhere the message says what to install.
set -eu
python=$1
dir=$2

"$python" - <<'PY' || exit 1
import sys
if sys.version_info < (3, 11):
    sys.exit(f"pbserver needs Python 3.11 or newer, {sys.executable} is {sys.version.split()[0]}: make PYTHON=python3.11")
PY

if "$python" -c "import ensurepip" 2>/dev/null; then
    exec "$python" -m venv "$dir"
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Python's venv module is missing: installing python3-venv"
    (apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3-venv) >/dev/null
    exec "$python" -m venv "$dir"
fi
echo "Python's venv module is missing. On Debian or Ubuntu: sudo apt-get install python3-venv" >&2
exit 1
