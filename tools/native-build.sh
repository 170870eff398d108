#!/bin/sh
# native-build.sh NAME [CMake options]: the native core, built into build/NAME and not installed.
set -eu
name=$1
shift
echo "native: building build/$name (some minutes)"
cmake -S . -B "build/$name" -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE="$PWD/$BIN/python" "$@" >/dev/null
cmake --build "build/$name" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-2}" >"build/$name/log" 2>&1 || {
  tail -40 "build/$name/log"
  exit 1
}
grep -A3 "warning:" "build/$name/log" || true
