#!/bin/sh
# Print the interpreter to build with: $PYTHON if set, else the first argument if it already works (an existing
# environment), else the newest python3.x on PATH that is 3.11 or later and has what a build needs. A name on PATH
# proves nothing (a pyenv shim may stand for a version that is not there), so each candidate is run.
set -u

probe='
import importlib.util, os, sys, sysconfig
if sys.version_info < (3, 11):
    sys.exit("is older than 3.11")
missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
if missing:
    sys.exit("has no %s module (Debian and Ubuntu: apt install python3-venv)" % " and no ".join(missing))
if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    sys.exit("has no C headers (Debian and Ubuntu: apt install python3-dev)")
'

compiler=
for candidate in ${CXX:-} c++ g++ clang++; do
  if echo 'int main() { return 0; }' | "$candidate" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; then
    compiler=$candidate
    break
  fi
done
if [ -z "$compiler" ]; then
  echo "millstream needs a C++20 compiler (g++ 11 or clang 14, or later) and found none." >&2
  echo "Debian and Ubuntu: apt install g++. Fedora: dnf install gcc-c++." >&2
  exit 1
fi

reasons=
for candidate in ${PYTHON:-"$@" python3.14 python3.13 python3.12 python3.11 python3}; do
  command -v "$candidate" >/dev/null 2>&1 || continue
  if why=$("$candidate" -c "$probe" 2>&1 >/dev/null); then
    echo "$candidate"
    exit 0
  fi
  reasons="$reasons  $candidate $(echo "$why" | head -n 1)
"
done
echo "millstream needs Python 3.11 or later with its venv module and C headers, and found none that works." >&2
if [ -n "$reasons" ]; then
  printf '%s' "$reasons" >&2
else
  echo "  there is no ${PYTHON:-python3} on PATH" >&2
fi
exit 1
